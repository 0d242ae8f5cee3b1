"""Rules in code about what older versions of an agent have recorded: which of it the present version adopts, and how.

A rule speaks of the runs of one version. Everything here is pure: the same log and the same rule give the same entry.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic_core import to_json

from outlive.engine.callables import check_name, describe, refuse_unnameable
from outlive.engine.failures import clean, record
from outlive.engine.journal import Item
from outlive.log import kinds
from outlive.log.codec import Codec, codec_of
from outlive.log.difference import Adoption, Difference
from outlive.log.fold import Call
from outlive.model.errors import Diverged, OutliveError, Refused
from outlive.model.function import UserFunction
from outlive.secret.scrubber import Scrubber


@dataclass(frozen=True, slots=True)
class Adopts:
    """What a version of an agent adopts of the runs of an older one.

    `state` makes the state of the loop of turns out of the old one: a plain, pure function of JSON data, or of a
    pydantic model that its parameter is annotated with. Of steps, `renamed` ones give what is recorded, if their
    arguments are the same; `replaced` ones are done again in the place of the recorded one; `removed` ones need not be
    asked for; `added` ones are done before what is recorded. `why` is kept in the log (default: the first line of the
    docstring of `state`).
    """

    state: UserFunction | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)
    removed: Sequence[str] = ()
    added: Sequence[str] = ()
    why: str = ""

    def way(self, call: Call, asked: Difference) -> Adoption | None:
        """How it wants the difference at a recorded call adopted; None where it says nothing of it.

        Each gives way to the next try, or is not asked for twice: what was let in, or has taken a result, under that
        name and is asked for with other arguments now, differs from try to try, and no rule can mend that.
        """
        known = call.adopted
        waits = {name for name, _ in known.let_in} if known is not None else set()
        taken = {name for name, _ in known.takers} if known is not None else set()
        if call.kind == "step" and asked.kind == "step":
            same = call.digest == asked.digest
            if self.renamed.get(call.name) == asked.name and same and asked.name not in taken:
                return "take-old" if call.done else "run-again"
            if self.replaced.get(call.name) == asked.name and asked.name not in waits:
                return "run-again"
        if call.kind == "step" and call.name in self.removed:
            return "skip"
        if asked.kind == "step" and asked.name in self.added and asked.name not in waits:
            return "insert"
        return None

    def reason(self) -> str:
        """What an entry says about why."""
        if self.why or self.state is None:
            return self.why or "a rule in code"
        told = inspect.getdoc(self.state)
        return told.splitlines()[0] if told else self.state.__name__


Rules = Mapping[str, Adopts]


def rules_of(agent: str, version: str, given: Mapping[str, Adopts | UserFunction] | None) -> dict[str, Adopts]:
    """The rules of a version of an agent by the versions of which they speak. Raises Refused."""
    found: dict[str, Adopts] = {}
    for old, rule in (given or {}).items():
        what = f"adopts={{{old!r}: …}} of {agent}"
        if old == version:
            raise Refused(what=what, why="that is its own version; say which older one it adopts runs of")
        made = rule if isinstance(rule, Adopts) else Adopts(state=rule)
        _check(what, made)
        found[old] = made
    return found


def _check(what: str, rule: Adopts) -> None:
    if not (rule.state or rule.renamed or rule.replaced or rule.removed or rule.added):
        raise Refused(what=what, why="it adopts nothing; say state, renamed, replaced, removed or added")
    for old, new in rule.renamed.items():
        if old == new:
            raise Refused(what=what, why=f"renamed says {old!r} twice: it is the same name")
    for texts in (rule.removed, rule.added):
        if isinstance(texts, str):
            raise Refused(what=what, why=f"{texts!r} is one text; say a tuple of names, such as ({texts!r},)")
    steps = [*rule.renamed.items(), *rule.replaced.items()]
    for name in [*(name for pair in steps for name in pair), *rule.removed, *rule.added]:
        check_name("name of a step", name)
    olds = [*rule.renamed, *rule.replaced, *rule.removed]
    if twice := sorted({name for name in olds if olds.count(name) > 1}):
        raise Refused(what=what, why=f"{twice[0]} is said in two ways; a recorded step is adopted in one")
    if rule.state is not None:
        _check_state(what, rule.state)


def _check_state(what: str, fn: UserFunction) -> None:
    refuse_unnameable(fn)
    if inspect.iscoroutinefunction(fn):
        raise Refused(what=what, why=f"{describe(fn)} is `async def`; it is a plain function of the old state")
    if len(inspect.signature(fn).parameters) != 1:
        raise Refused(what=what, why=f"{describe(fn)} takes the old state, and nothing else")
    annotated = _annotation(what, fn)
    if _model(annotated) is None and not _is_data(annotated):
        raise Refused(what=what, why=f"{describe(fn)} takes a dict, or a pydantic model of the old state")


def _annotation(what: str, fn: UserFunction) -> object:
    [name] = inspect.signature(fn).parameters
    try:
        return get_type_hints(fn).get(name, dict)
    except (NameError, TypeError) as error:
        raise Refused(what=what, why=f"an annotation of {describe(fn)} cannot be resolved: {error}") from None


def _model(annotated: object) -> type[BaseModel] | None:
    return annotated if isinstance(annotated, type) and issubclass(annotated, BaseModel) else None


def _is_data(annotated: object) -> bool:
    return (get_origin(annotated) or annotated) in (object, Any, dict, Mapping)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The state that the present code has: the name and digest of its loop, what reads and writes it, its type."""

    name: str
    digest: str
    codec: Codec[object]
    kind: type[BaseModel]
    line: str


def state_by_rule(
    agent: str, version: str, rules: Rules, turn: Call, wanted: Wanted, scrubber: Scrubber
) -> Item | None:
    """The entry by which a rule makes a state of the present version out of a recorded one.

    None where no rule speaks of its version. Raises Diverged for a rule that raises or gives what does not fit, and for
    a state that a rule has taken away from this version.
    """
    rule = rules.get(turn.version) if turn.version != version else None
    if rule is None or rule.state is None:
        if version in turn.left and version != turn.version:
            raise Diverged(
                has=f"{turn.shown}, of which version {turn.version} has made its own state",
                asks=f"that of version {version}, which has no rule for it", line=wanted.line, seq=turn.seq,
            )  # fmt: skip
        return None
    try:
        text = _made(rule.state, turn, wanted)
        text = clean(scrubber, wanted.codec, text, f"the state of {wanted.name}")
    except Exception as error:
        said = record(error, scrubber)
        what = said.message if isinstance(error, _Unfit | OutliveError) else f"{said.type}: {said.message}"
        at = f" (at {said.at})" if said.at else ""
        asks = f"{wanted.name}, which {describe(rule.state)} did not make of it: {what}{at}"
        has = f"{turn.shown} of version {turn.version}"
        raise Diverged(has=has, asks=asks, line=wanted.line, seq=turn.seq) from error
    fact = kinds.StateAdopted(
        entry=turn.seq, of=turn.version, version=version, who=who(agent, version), why=rule.reason(),
        name=wanted.name, digest=wanted.digest,
    )  # fmt: skip
    return Item(fact, turn.scope, turn.key, text)


class _Unfit(Exception):
    """What a rule gave is no state."""


def who(agent: str, version: str) -> str:
    """Who has decided what a rule says."""
    return f"{agent} version {version}"


def _made(fn: UserFunction, turn: Call, wanted: Wanted) -> str:
    model = _model(_annotation(describe(fn), fn))
    given: object = json.loads(turn.payload or "null")
    if model is not None:
        given = codec_of(model).decode(turn.payload or "null", where=f"the state of turn {turn.number}")
    made = fn(given)
    where = f"what {fn.__name__} gives"
    if isinstance(made, wanted.kind):
        return wanted.codec.encode(made, where=where)
    if not isinstance(made, Mapping):
        raise _Unfit(f"it gives a {type(made).__name__}, which is neither a {wanted.kind.__name__} nor a dict")
    text = wanted.codec.encode(wanted.codec.decode(to_json(made).decode(), where=where), where=where)
    written: object = json.loads(text)
    if isinstance(written, dict) and (more := sorted(str(name) for name in made if name not in written)):
        raise _Unfit(f"it gives {', '.join(more)}, which {wanted.kind.__name__} does not have")
    return text
