"""What a person or a rule can accept of a divergence, and what only code can mend: decided purely, from the folded log.

Only steps are adoptable, since they are harmless to repeat and to forget. What has acted, what was told to the run, and
what holds other calls together stays recorded: the code has to ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from outlive.engine.definition import AgentSpec
from outlive.engine.failures import writable
from outlive.engine.journal import Item
from outlive.engine.rules import who
from outlive.log import kinds
from outlive.log.difference import Adoption, Difference
from outlive.log.fold import Call, Fold, find
from outlive.model.errors import Diverged, NotAdoptable

ALL: tuple[Adoption, ...] = get_args(Adoption)

_WHAT = {
    "operation": "what a tool did", "value": "a value that was drawn", "branches": "a gather, map or first",
    "turn": "a turn", "emit": "an event that was seen", "wait": "what the run waited for",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to adopt the last divergence of a run, in words."""

    how: Adoption
    means: str


@dataclass(frozen=True, slots=True)
class Step:
    """The step that code will ask for, as a rehearsal has found it: its name, and the digest of its arguments.

    Of *skip* it is the recorded one, by its name alone.
    """

    name: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a person wants: how, at which entry (None: where a build diverged last), by whom, why.

    With a `step` it is accepted what no build has run into yet.
    """

    how: Adoption
    who: str
    why: str
    at: int | None = None
    step: Step | None = None


def difference(diverged: Exception | None) -> Difference | None:
    """What an entry says of a divergence, where one call is in the way of another."""
    if not isinstance(diverged, Diverged) or diverged.call is None:
        return None
    scope, kind, name, digest = diverged.call
    return Difference(
        entry=diverged.seq, scope=scope, kind=kind, name=name, digest=digest, shown=diverged.asks
    )  # fmt: skip


def adopt(fold: Fold, run: str, wish: Acceptance) -> Item:
    """The entry that adopts. Raises NotAdoptable, which says why, and what else can be done."""
    where = _ahead(fold, run, wish, wish.step) if wish.step is not None else _where(fold, run, wish.at)
    call = _call(fold, run, where)
    if why := _against(call, where, wish.how):
        raise NotAdoptable(run=run, why=why)
    return _item(call, where, wish)


def _item(call: Call, where: Difference, wish: Acceptance, version: str = "") -> Item:
    fact = kinds.Adopted(
        entry=where.entry, how=wish.how, who=writable(wish.who), why=writable(wish.why),
        name="" if wish.how == "skip" else where.name, digest="" if wish.how == "skip" else where.digest,
        shown=call.shown if wish.how == "skip" else where.shown, version=version,
    )  # fmt: skip
    return Item(fact, call.scope, call.key)


def by_rule(agent: AgentSpec, fold: Fold, diverged: Exception | None) -> Item | None:
    """The entry with which a rule of the agent adopts a divergence, as a person would. None where none speaks of it.

    A rule speaks of calls that were recorded while the run was of its version, and adopts what a person could.
    """
    where = difference(diverged)
    call = find(fold, where.scope, where.entry) if where is not None else None
    rule = agent.adopts.get(call.version) if call is not None else None
    if where is None or call is None or rule is None or call.version == agent.version:
        return None
    how = rule.way(call, where)
    if how is None or _against(call, where, how):
        return None
    wish = Acceptance(how, who(agent.name, agent.version), rule.reason())
    return _item(call, where, wish, agent.version)


def choices(fold: Fold, run: str) -> list[Choice]:
    """The ways in which the last divergence can be adopted; none where there is none."""
    try:
        where = _where(fold, run, None)
        call = _call(fold, run, where)
    except NotAdoptable:
        return []
    means: dict[Adoption, str] = {
        "skip": f"the code need not ask for {call.shown} any more",
        "insert": f"the code does {where.shown} first, which is not recorded; then it asks for {call.shown}",
        "take-old": f"{where.shown} gives what {call.shown} has given",
        "run-again": f"{where.shown} is done in the place of {call.shown}",
    }
    return [Choice(how, means[how]) for how in ALL if not _against(call, where, how)]


def _where(fold: Fold, run: str, at: int | None) -> Difference:
    found = [one for one in fold.differences if at is None or one.entry == at]
    if found:
        return found[-1]
    if at is None:
        raise NotAdoptable(run=run, why="no build has said at which recorded call it differs; deploy code that fits")
    known = ", ".join(str(entry) for entry in dict.fromkeys(one.entry for one in fold.differences)) or "none"
    raise NotAdoptable(run=run, why=f"no build has diverged at entry {at}; entries where one has: {known}")


def _ahead(fold: Fold, run: str, wish: Acceptance, step: Step) -> Difference:
    """Where code will differ that no worker has run yet: whoever says so has rehearsed it."""
    if wish.at is None:
        raise NotAdoptable(run=run, why="no build has diverged there yet; say at which entry")
    found = [(name, call) for name in fold.current if (call := find(fold, name, wish.at)) is not None]
    if not found:
        why = f"no call that the run stands behind was recorded first as entry {wish.at}"
        if len(fold.windows) > 1:
            why += "; of a run with turns, those of the present turn can be adopted"
        raise NotAdoptable(run=run, why=why)
    scope, call = found[0]
    if wish.how == "skip":
        if call.name != step.name:
            raise NotAdoptable(run=run, why=f"entry {wish.at} is {call.shown}, and not {step.name}")
        return Difference(entry=wish.at, scope=scope)
    if not step.digest:
        raise NotAdoptable(run=run, why=f"say the digest of the arguments of {step.name}; outlive replay tells it")
    shown = f"{step.name}(…)"
    return Difference(entry=wish.at, scope=scope, kind="step", name=step.name, digest=step.digest, shown=shown)


def _call(fold: Fold, run: str, where: Difference) -> Call:
    call = find(fold, where.scope, where.entry)
    if call is None:
        why = f"entry {where.entry} is before the loop of turns, which keeps only what is recorded there; mend the code"
        raise NotAdoptable(run=run, why=why)
    return call


def _against(call: Call, where: Difference, how: Adoption) -> str:
    """Why it is not to be had in this way; empty where it is."""
    if how != "insert" and call.kind != "step":
        return (
            f"entry {where.entry} is {call.shown}: {_WHAT[call.kind]} stays recorded, and the code has to ask for it; "
            "only steps can be adopted"
        )
    if how != "skip" and not where.kind:
        return f"the code asks for nothing in the place of {call.shown}; it can only be skipped"
    if how != "skip" and where.kind != "step":
        return f"the code asks for {where.shown}, which is no step; only steps can be adopted"
    if how == "take-old" and not call.done:
        return f"{call.shown} has no result yet"
    return ""
