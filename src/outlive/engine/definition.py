"""What a registered tool and a registered agent are. Neither can be called: a run calls them, so that the log knows."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, ParamSpec, TypeVar, cast

from outlive.engine.callables import describe, refuse_unnameable, run_callable
from outlive.log.codec import Codec, Signature, codec_of
from outlive.model.errors import BadArguments, Refused
from outlive.model.function import UserFunction
from outlive.model.operation import Effect, Retry

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
I_contra = TypeVar("I_contra", contravariant=True)

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

    def check(self, tool: str) -> None:
        """Refuse a policy that could not be kept."""
        if self.settle_after <= timedelta(0):
            raise Refused(
                what=f"settle_after={self.settle_after} of {tool}",
                why="a request may arrive after the worker that sent it is gone; say how long the other side needs",
            )
        if self.timeout <= timedelta(0) or self.retry.attempts < 1:
            raise Refused(what=f"timeout or retry of {tool}", why="both must allow one attempt")
        if self.effect in ("read", "transactional") and self.reconcile is not None:
            raise Refused(what=f"reconcile of {tool}", why=f"a {self.effect} tool is never in doubt")


class ToolSpec:
    """What the engine knows of a tool, whatever its parameters."""

    def __init__(self, name: str, fn: UserFunction, policy: ToolPolicy) -> None:
        refuse_unnameable(fn)
        policy.check(name)
        self.name = name
        self.fn = fn
        self.policy = policy
        self.where = describe(fn)
        self.signature = Signature.of(fn, skip=1, where=name)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"


class Tool(ToolSpec, Generic[P, R_co]):
    """A registered tool. `await run.call(tool, …)` calls it; `await tool.test(op, …)` runs its body alone in a test."""

    async def test(self, op: object, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Run the body once with an operation of the test's own making; nothing is recorded."""
        return cast(R_co, await run_callable(self.fn, op, *args, **kwargs))


class AgentSpec:
    """What the engine knows of an agent, whatever its input and result."""

    def __init__(self, name: str, version: str, fn: UserFunction) -> None:
        refuse_unnameable(fn)
        if not inspect.iscoroutinefunction(fn):
            raise Refused(what=describe(fn), why="an agent is an `async def` function")
        self.name = name
        self.version = version
        self.fn = fn
        self.where = describe(fn)
        signature = Signature.of(fn, skip=1, where=name)
        if len(signature.parameters) != 1:
            raise BadArguments(function=name, why="an agent takes a run and exactly one input")
        self.signature = signature
        self.input: Codec[object] = codec_of(signature.parameters[0].annotation)
        self.result: Codec[object] = signature.result

    def __repr__(self) -> str:
        return f"<agent {self.name} version {self.version}>"


class Agent(AgentSpec, Generic[I_contra, R_co]):
    """A registered agent: an async function of a run and one input, with a name and a version."""
