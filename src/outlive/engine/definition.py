"""What a registered tool and a registered agent are. Neither can be called: a run calls them, so that the log knows."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Literal, ParamSpec, TypeVar, cast, get_args, get_type_hints

from outlive.engine.callables import check_name, describe, refuse_unnameable, run_callable
from outlive.engine.rules import Adopts, rules_of
from outlive.log.codec import Codec, Signature, codec_of
from outlive.model.approval import Approval
from outlive.model.errors import BadArguments, Refused
from outlive.model.function import UserFunction
from outlive.model.operation import Effect, Retry

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
I_contra = TypeVar("I_contra", contravariant=True)

# A function of the tool's own parameters, which gives an Approval or None.
ApprovalRule = UserFunction

# A function of the tool's own parameters, which gives the text of a business key.
KeyRule = UserFunction

# What becomes of what a run has done when its agent raises.
OnFailure = Literal["nothing", "rollback"]

_NONE: frozenset[str] = frozenset()

TOOL_TIMEOUT = timedelta(minutes=10)
STEP_TIMEOUT = timedelta(minutes=1)
SETTLE_AFTER = timedelta(seconds=60)
DEDUPES_FOR = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """What a tool declares about repeating it."""

    effect: Effect = "external"
    reconcile: UserFunction | None = None
    settle_after: timedelta = SETTLE_AFTER
    dedupes_for: timedelta = DEDUPES_FOR
    raises: tuple[type[Exception], ...] = ()
    not_sent: tuple[type[Exception], ...] = ()
    timeout: timedelta = TOOL_TIMEOUT
    retry: Retry = field(default_factory=Retry)
    approval: Approval | ApprovalRule | None = None
    compensate: UserFunction | ToolSpec | None = None
    key: KeyRule | None = None
    harmless: bool = False
    """Recorded as an operation so that it is seen, but nobody minds it twice: a fork does it again, a rollback has
    nothing to undo.
    """

    def check(self, tool: str) -> None:
        """Refuse a policy that could not be kept."""
        if self.effect not in get_args(Effect):
            raise Refused(what=f"effect={self.effect!r} of {tool}", why=f"say one of {', '.join(get_args(Effect))}")
        for name in ("settle_after", "dedupes_for", "timeout"):
            if not isinstance(getattr(self, name), timedelta):
                raise Refused(what=f"{name} of {tool}", why="say a timedelta, such as timedelta(seconds=30)")
        self._check_exceptions(tool)
        if self.settle_after <= timedelta(0):
            raise Refused(
                what=f"settle_after={self.settle_after} of {tool}",
                why="a request may arrive after the worker that sent it is gone; say how long the other side needs",
            )
        if self.timeout <= timedelta(0) or self.retry.attempts < 1:
            raise Refused(what=f"timeout or retry of {tool}", why="both must allow one attempt")
        if self.effect in ("read", "transactional") and self.reconcile is not None:
            raise Refused(what=f"reconcile of {tool}", why=f"a {self.effect} tool is never in doubt")
        if self.effect == "read" and self.compensate is not None:
            raise Refused(what=f"compensate of {tool}", why="a read tool has done nothing that could be undone")
        if self.effect == "read" and self.key is not None:
            raise Refused(what=f"key of {tool}", why="a read tool does nothing that could be done once")

    def _check_exceptions(self, tool: str) -> None:
        declared: tuple[tuple[str, object], ...] = (("raises", self.raises), ("not_sent", self.not_sent))
        for what, kinds in declared:
            if not isinstance(kinds, tuple) or not all(_is_error(kind) for kind in kinds):
                raise Refused(what=f"{what} of {tool}", why="say a tuple of exception classes, such as (CardDeclined,)")
            if Exception in kinds:
                raise Refused(what=f"{what}=(Exception,) of {tool}", why="then nothing could be in doubt; name which")
        names = [kind.__name__ for kind in self.raises]
        if len(set(names)) < len(names):
            raise Refused(what=f"raises of {tool}", why="two classes of one name cannot be told apart in the log")


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Exception)


class ToolSpec:
    """What the engine knows of a tool, whatever its parameters."""

    def __init__(self, name: str, fn: UserFunction, policy: ToolPolicy) -> None:
        refuse_unnameable(fn)
        check_name("name of the tool", name)
        policy.check(describe(fn))
        if policy.effect == "transactional" and not inspect.iscoroutinefunction(inspect.unwrap(fn)):
            raise Refused(what=describe(fn), why="a transactional tool awaits op.connection; make it `async def`")
        self.name = name
        self.fn = fn
        self.source: UserFunction = fn
        self.policy = policy
        self.where = describe(fn)
        self.signature = Signature.of(fn, skip=1, where=name)
        if policy.approval is not None and not isinstance(policy.approval, Approval):
            says = "an Approval, or a plain function that gives one or None"
            check_rule(name, self.signature, policy.approval, "approval", says)
        if policy.key is not None:
            hints = check_rule(name, self.signature, policy.key, "key", "a plain function that gives a text")
            if hints.get("return") is not str:
                what = f"key={getattr(policy.key, '__name__', policy.key)!r} of {name}"
                raise Refused(what=what, why="it gives a text: annotate it `-> str`")
        self.compensation = _compensation(name, policy)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


def _compensation(tool: str, policy: ToolPolicy) -> ToolSpec | None:
    """What undoes the tool, as a tool that takes nothing but its operation. Raises Refused.

    A plain function is *external*: whether it has acted, only a person can say once its worker is lost.
    """
    given, what = policy.compensate, f"compensate of {tool}"
    if given is None:
        return None
    if not isinstance(given, ToolSpec):
        if not inspect.isfunction(given):
            raise Refused(what=what, why="say a function of an operation, or a registered tool that takes nothing else")
        like = ToolPolicy(
            settle_after=policy.settle_after, not_sent=policy.not_sent, timeout=policy.timeout, retry=policy.retry
        )  # fmt: skip
        given = ToolSpec(f"{tool}.compensate", given, like)
    if len(inspect.signature(given.fn).parameters) != 1:
        raise Refused(what=what, why="it takes its operation alone; op.original has arguments and outcome")
    if given.policy.effect in ("read", "transactional"):
        raise Refused(what=what, why=f"it is {given.policy.effect}; what compensates is idempotent or external")
    if given.policy.raises:
        raise Refused(what=what, why="it declares raises=; it has either undone what was done, or failed")
    if given.policy.key is not None:
        raise Refused(what=what, why="it has a key; what it undoes, it undoes once")
    if given.compensation is not None:
        raise Refused(what=what, why="it is compensated itself; what was undone is done again by a new run")
    return given


def check_rule(tool: str, signature: Signature, rule: UserFunction, of: str, says: str) -> dict[str, object]:
    """A rule takes parameters of the tool, by their names and types; its annotations. Raises Refused."""
    what = f"{of}={getattr(rule, '__name__', rule)!r} of {tool}"
    if not inspect.isfunction(rule) or inspect.iscoroutinefunction(rule):
        raise Refused(what=what, why=f"say {says}")
    try:
        hints: dict[str, object] = get_type_hints(rule, include_extras=True)
    except (NameError, TypeError) as error:
        raise Refused(what=what, why=f"an annotation cannot be resolved: {error}") from None
    known = {one.name: one.annotation for one in signature.parameters}
    for name, parameter in inspect.signature(rule).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY) or name not in known:
            raise Refused(what=what, why=f"{tool} has no parameter {name}; it has {', '.join(known) or 'none'}")
        if hints.get(name) != known[name]:
            raise Refused(what=what, why=f"its parameter {name} has another type than that of {tool}")
    return hints


class Tool(ToolSpec, Generic[P, R_co]):
    """A registered tool. `await run.call(tool, …)` calls it; `await tool.test(op, …)` runs its body alone in a test."""

    async def test(self, op: object, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the body once with an operation of the test's own making; nothing is recorded."""
        return cast(R_co, await run_callable(self.fn, op, *args, **kwargs))


class AgentSpec:
    """What the engine knows of an agent, whatever its input and result."""

    def __init__(
        self, name: str, version: str, fn: UserFunction, *, pin: bool = False,
        renamed: Mapping[str, str] | None = None, on_failure: OnFailure = "nothing",
        adopts: Mapping[str, Adopts | UserFunction] | None = None,
    ) -> None:  # fmt: skip
        refuse_unnameable(fn)
        check_name("name of the agent", name)
        if not version.strip() or not version.isprintable():
            raise Refused(what=f"version={version!r} of {name}", why="a version is a printable text")
        if not inspect.iscoroutinefunction(fn):
            raise Refused(what=describe(fn), why="an agent is an `async def` function")
        if on_failure not in get_args(OnFailure):
            raise Refused(
                what=f"on_failure={on_failure!r} of {name}", why=f"say one of {', '.join(get_args(OnFailure))}"
            )
        self.name = name
        self.version = version
        self.pin = pin
        self.on_failure = on_failure
        self.renamed = dict(renamed or {})
        _check_renamed(name, self.renamed)
        self.adopts = rules_of(name, version, adopts)
        self.fn = fn
        self.source: UserFunction = fn
        self.where = describe(fn)
        signature = Signature.of(fn, skip=1, where=name)
        if len(signature.parameters) != 1:
            raise BadArguments(function=name, why="an agent takes a run and exactly one input")
        self.signature = signature
        self.input: Codec[object] = codec_of(signature.parameters[0].annotation)
        self.result: Codec[object] = signature.result

    def former(self, name: str) -> frozenset[str]:
        """The names under which older code has recorded calls of this step or tool."""
        return frozenset(old for old, new in self.renamed.items() if new == name) if self.renamed else _NONE

    def __repr__(self) -> str:
        return f"<agent {self.name} version {self.version}>"


def _check_renamed(agent: str, renamed: Mapping[str, str]) -> None:
    """Refuse what could be read in two ways."""
    for old, new in renamed.items():
        check_name(f"old name in renamed of {agent}", old)
        check_name(f"new name in renamed of {agent}", new)
        if old == new:
            raise Refused(what=f"renamed={{{old!r}: {new!r}}} of {agent}", why="it is the same name")
        if new in renamed:
            why = f"{new} is renamed as well; say for each old name what it is called now"
            raise Refused(what=f"renamed={{{old!r}: {new!r}}} of {agent}", why=why)


class Agent(AgentSpec, Generic[I_contra, R_co]):
    """A registered agent: an async function of a run and one input, with a name and a version."""
