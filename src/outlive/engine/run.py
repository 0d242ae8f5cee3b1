"""`Run`: what agent code holds. Every durable thing that an agent does goes through one of its methods."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Generic, NoReturn, ParamSpec, TypeVar, cast, overload
from uuid import UUID
from weakref import WeakKeyDictionary

from pydantic import BaseModel
from typing_extensions import TypeVar as DefaultTypeVar

from outlive.engine import undoing, waits
from outlive.engine.attempt import Attempt
from outlive.engine.branches import Branches, Start, close_unused, numbered, unique
from outlive.engine.callables import caller_line, check_name, run_callable
from outlive.engine.calls import Asked, Repeatable, repeat, told
from outlive.engine.definition import STEP_TIMEOUT, Agent, Tool, ToolSpec
from outlive.engine.failures import clean
from outlive.engine.journal import Item
from outlive.engine.operation import Facts, Operation
from outlive.engine.replay import show
from outlive.engine.scope import current
from outlive.engine.send import Policy, Send, shielded
from outlive.engine.transact import Transact
from outlive.engine.turns import Turns
from outlive.engine.undoing import check_reason
from outlive.log import kinds
from outlive.log.canonical import canonical
from outlive.log.codec import codec_of
from outlive.log.fold import Call
from outlive.model.approval import Approval
from outlive.model.errors import Refused
from outlive.model.function import UserFunction
from outlive.model.operation import Retry
from outlive.model.signals import Unwind

P = ParamSpec("P")
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - as the public surface names it
M = TypeVar("M")
A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S", bound=BaseModel)
D = DefaultTypeVar("D", default=None)

log = logging.getLogger("outlive.run")

# Steps are repeated only on request: an error in a computation will not go away by itself.
_STEP_RETRY = Retry(attempts=1)

# The run whose code is being executed, for what is handed none.
running: ContextVar[Run[object]] = ContextVar("outlive_run")

# What a coroutine of ours calls, so that branches can be keyed by it and not by their place.
_names: WeakKeyDictionary[Awaitable[object], str] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Options:
    """What `run.options` changes for one call."""

    name: str | None = None
    timeout: timedelta | None = None
    retry: Retry | None = None
    approval: Approval | None = None
    effect_key: str | None = None


class QuietOnReplay(logging.LoggerAdapter[logging.Logger]):
    """A standard logger with the run's id, silent while recorded calls are being repeated."""

    def __init__(self, run: Run[object]) -> None:
        super().__init__(log, {"run": run.id})
        self._run = run

    def isEnabledFor(self, level: int) -> bool:
        return not self._run.replaying and super().isEnabledFor(level)

    def process(self, msg: object, kwargs: MutableMapping[str, object]) -> tuple[object, MutableMapping[str, object]]:
        return f"[{self._run.id}] {msg}", {**kwargs, "extra": self.extra}


class Run(Generic[D]):
    """One task, as the agent that does it sees it.

    Await one call at a time in a scope; for several at once use `gather`, `map` or `first`. After a crash the agent is
    called again and every recorded call returns what it returned before. `version` is the version of the agent that
    started the run; `replaying` says that the next call is a recorded one; `used` that another agent uses this one.
    """

    def __init__(
        self, attempt: Attempt, deps: D, version: str, options: Options | None = None, *, used: bool = False
    ) -> None:  # fmt: skip
        self.id: str = attempt.journal.row.id
        self.used = used
        self.version = version
        self.deps = deps
        self.log = QuietOnReplay(cast("Run[object]", self))
        self._attempt = attempt
        self._options = options or Options()

    @property
    def replaying(self) -> bool:
        """Whether the scope that asks still has recorded calls before it."""
        scope = current.get(None)
        return scope is not None and not scope.cursor.exhausted

    def options(
        self, *, name: str | None = None, timeout: timedelta | None = None, retry: Retry | None = None,
        approval: Approval | None = None, effect_key: str | None = None,
    ) -> Run[D]:  # fmt: skip
        """The same run, with other options for the call that follows: `await run.options(timeout=…).call(…)`.

        `approval` is what the call of a tool needs whose own rule asks for none. `effect_key` is the business key of
        the call, in the place of what the tool declares: how code acts again after *compensated*.
        """
        if timeout is not None and timeout <= timedelta(0):
            raise Refused(what=f"options(timeout={timeout})", why="a call needs some time")
        changed = replace(
            self._options, name=name or self._options.name, timeout=timeout or self._options.timeout,
            retry=retry or self._options.retry, approval=approval or self._options.approval,
            effect_key=self._options.effect_key if effect_key is None else effect_key,
        )  # fmt: skip
        return Run(self._attempt, self.deps, self.version, changed, used=self.used)

    # ---- calls

    @overload
    def step(
        self, fn: Callable[P, Coroutine[object, object, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[object, object, R]: ...
    @overload
    def step(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R]: ...
    def step(self, fn: UserFunction, /, *args: object, **kwargs: object) -> Coroutine[object, object, object]:
        """A call that is harmless to repeat; its result is recorded once. A plain `def` runs on a thread.

        Default time-out 1 min, no retries. Raises StepFailed; BadArguments and Refused for what cannot be recorded.
        """
        if self._options.approval is not None or self._options.effect_key is not None:
            option = "approval" if self._options.approval is not None else "effect_key"
            raise Refused(what=f"options({option}=…) of {fn!r}", why="steps are harmless; make it a tool, and call it")
        name = self._options.name or str(getattr(fn, "__name__", type(fn).__name__))
        line = caller_line()
        ticket = self._attempt.expect(f"{name} at {line}")
        return _named(self._step(ticket, name, fn, args, kwargs, line), name)

    def call(self, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[object, object, R]:
        """Use a tool. What happens after a crash is what the tool's effect says.

        Raises the exceptions that the tool declares, ToolFailed when it is known not to have acted, Abandoned when a
        person gave up on it. While it is in doubt the run waits.
        """
        if self._options.name is not None:
            raise Refused(what=f"options(name=…) of {tool!r}", why="a tool has its registered name; name= is for steps")
        if not isinstance(tool, ToolSpec):
            raise Refused(
                what=f"call of {tool!r}", why="not a registered tool; use run.step, or register it with @app.tool"
            )
        line = caller_line()
        work = self._call(self._attempt.expect(f"{tool.name} at {line}"), tool, args, kwargs, line)
        return cast("Coroutine[object, object, R]", _named(work, tool.name))

    async def _step(
        self, ticket: int, name: str, fn: UserFunction, args: tuple[object, ...], kwargs: dict[str, object], line: str
    ) -> object:
        attempt = self._attempt
        attempt.unawaited.pop(ticket, None)
        signature = attempt.step_signature(name, fn)
        arguments = signature.bind(args, kwargs)
        asked = self._asked(name, lambda: signature.encode(arguments), signature.digest_form(arguments), line)
        with attempt.entering(asked.shown, line) as scope:
            key, call = attempt.consume(scope, "step", name, asked.digest, asked.shown, line)
            if call is None or not call.done:
                await attempt.beyond(scope, call)
                positional, named = signature.spread(arguments)
                what = Repeatable(
                    asked, False, lambda _: run_callable(fn, *positional, **named), signature.result,
                    self._options.timeout or STEP_TIMEOUT, self._options.retry or _STEP_RETRY,
                )  # fmt: skip
                call = await repeat(attempt, scope, key, what, call)
            return told(call, signature.result, ())

    async def _call(
        self, ticket: int, tool: ToolSpec, args: tuple[object, ...], kwargs: dict[str, object], line: str
    ) -> object:
        attempt, signature = self._attempt, tool.signature
        attempt.unawaited.pop(ticket, None)
        arguments = signature.bind(args, kwargs)
        asked = self._asked(tool.name, lambda: signature.encode(arguments), signature.digest_form(arguments), line)
        options = self._options
        policy = Policy(
            options.timeout or tool.policy.timeout, options.retry or tool.policy.retry, options.approval,
            options.effect_key,
        )  # fmt: skip
        with attempt.entering(asked.shown, line) as scope:
            key, call = attempt.consume(scope, "operation", tool.name, asked.digest, asked.shown, line)
            if call is None or not call.done:
                send = Send(attempt, scope, tool, policy, asked, key, arguments)
                await attempt.beyond(scope, call, send.changed)
                work = self._perform(send, call)
                # What is harmless to repeat is cut short, as a step is.
                harmless = tool.policy.effect == "read" and (call is None or call.sent is None)
                call = await (work if harmless else shielded(scope, work))
                if call.cut:
                    raise asyncio.CancelledError
            return told(call, signature.result, tool.policy.raises)

    async def _perform(self, send: Send, call: Call | None) -> Call:
        """What is recorded decides how the call goes on; what the tool declares, how it begins."""
        effect = send.tool.policy.effect
        sent = call.sent if call is not None else None
        # What was held and never sent goes as the tool is now.
        if sent is not None and sent.effect != "transactional" and call is not None and call.attempt:
            return await send.run(call)
        if effect == "read" and sent is None:
            return await repeat(send.attempt, send.scope, send.key, self._read(send), call)
        if effect == "transactional":
            return await Transact(send).run(call)
        return await send.run(call)

    def _read(self, send: Send) -> Repeatable:
        tool, attempt = send.tool, send.attempt

        async def body(number: int) -> object:
            facts = Facts(send.key, attempt.digest(send.key.encode()), number, dict(send.arguments))
            op: Operation[object] = Operation(attempt, tool, attempt.kit.deps, facts)
            if attempt.kit.on_send is not None:
                attempt.kit.on_send(tool, send.key, send.arguments)
            positional, named = tool.signature.spread(send.arguments)
            return await run_callable(tool.fn, op, *positional, **named)

        policy = send.policy
        return Repeatable(
            send.asked,
            True,
            body,
            tool.signature.result,
            policy.timeout,
            policy.retry,
            tool.policy.raises,
            send.allowed if send.consent.needed else None,
        )

    def _asked(self, name: str, text: Callable[[], str], form: bytes, line: str) -> Asked:
        digest, scope = self._attempt.digest(form), current.get(None)
        head = scope.cursor.head if scope is not None else None
        if head is not None and head.digest == digest and head.name == name:
            return Asked(name, digest, head.shown, line)  # written as it was when it was recorded
        return Asked(name, digest, self._attempt.kit.scrubber.scrub(show(name, text())), line)

    async def use(self, agent: Agent[I, R], input: I, /) -> R:
        """Have another agent do a part of the task, in this run and its log: what it does is recorded here.

        Its result is not recorded apart: after a crash it is asked again, and its recorded calls answer. Raises what it
        raises, BadArguments for an input that does not fit, and Refused for an agent with a loop of turns.
        """
        (given,) = agent.signature.bind((input,), {}).values()
        used: Run[object] = Run(self._attempt, self.deps, self.version, used=True)
        return cast(R, await cast("Awaitable[object]", agent.fn(used, given)))

    # ---- scopes

    @overload
    async def gather(self, a: Awaitable[A], /) -> tuple[A]: ...
    @overload
    async def gather(self, a: Awaitable[A], b: Awaitable[B], /) -> tuple[A, B]: ...
    @overload
    async def gather(self, *each: Awaitable[A]) -> tuple[A, ...]: ...
    async def gather(self, *each: Awaitable[object]) -> tuple[object, ...]:
        """Several calls at once, each in a scope of its own, keyed by what it calls. Results in order.

        When one raises, the others are cancelled (an operation that may have been sent reaches its record first) and
        that exception is raised.
        """
        keys = numbered([_name_of(one) for one in each])
        results = await self._branch("gather", dict(zip(keys, each, strict=True)), caller_line())
        return tuple(results[key] for key in keys)

    async def map(
        self, fn: Callable[[I], Awaitable[R]], items: Iterable[I], /, *, key: Callable[[I], str], limit: int = 10
    ) -> list[R]:
        """`fn` of each item, at most `limit` at once, each in a scope named by `key(item)`.

        Results in order of items.
        """
        line = caller_line()
        listed = list(items)
        keys = [key(item) for item in listed]
        unique(keys, "run.map")

        def start(item: I) -> Start:
            return lambda: fn(item)

        starts = {name: start(item) for name, item in zip(keys, listed, strict=True)}
        results = await Branches(self._attempt, "map", starts, limit).run(line)
        return [cast(R, results[name]) for name in keys]

    async def first(self, **events: Awaitable[object]) -> tuple[str, object]:
        """The name and result of the branch that ends first; the others are cancelled. Raises what the first raised."""
        if not events:
            raise Refused(what="run.first()", why="it needs at least one branch")
        results = await self._branch("first", dict(events), caller_line())
        return next(iter(results.items()))

    async def _branch(self, ends: str, awaitables: dict[str, Awaitable[object]], line: str) -> dict[str, object]:
        begun = False

        def start(one: Awaitable[object]) -> Start:
            def begin() -> Awaitable[object]:
                nonlocal begun
                begun = True
                return one

            return begin

        try:
            starts = {name: start(one) for name, one in awaitables.items()}
            return await Branches(self._attempt, "first" if ends == "first" else "gather", starts).run(line)
        except (Unwind, Exception, asyncio.CancelledError):
            if not begun:
                close_unused([one for one in awaitables.values() if isinstance(one, Coroutine)])
            raise

    # ---- waits

    def sleep(self, when: timedelta | datetime, /) -> Coroutine[object, object, None]:
        """Wait for a time, or until an instant (with its time zone), by the database's clock.

        It costs nothing meanwhile: the run is unloaded, and any worker wakes it.
        """
        line = caller_line()
        shown = f"sleep({when})"
        return _named(self._sleep(self._attempt.expect(f"{shown} at {line}"), when, shown, line), "sleep")

    async def _sleep(self, ticket: int, when: timedelta | datetime, shown: str, line: str) -> None:
        attempt = self._attempt
        attempt.unawaited.pop(ticket, None)
        until = waits.moment(when, attempt.kit.time.now())
        asked = Asked("sleep", attempt.digest(canonical(when)), shown, line)
        await waits.wait(attempt, asked, waits.Wanted("a timer", until=until))

    def receive(
        self, topic: str, kind: type[M], /, *, timeout: timedelta | None = None
    ) -> Coroutine[object, object, M]:
        """The next message of a topic, in the order in which they arrived; it may have arrived long before.

        Raises TimedOut when none has come in time, MessageRefused for one that is no `kind` (it is used up).
        """
        line = caller_line()
        check_name("topic", topic)
        shown = f"receive({topic})"
        work = self._receive(self._attempt.expect(f"{shown} at {line}"), topic, kind, timeout, shown, line)
        return _named(work, f"receive:{topic}")

    async def _receive(
        self, ticket: int, topic: str, kind: type[M], timeout: timedelta | None, shown: str, line: str
    ) -> M:
        attempt, codec = self._attempt, codec_of(kind)
        attempt.unawaited.pop(ticket, None)
        until = waits.moment(timeout, attempt.kit.time.now()) if timeout is not None else 0
        asked = Asked(f"receive:{topic}", "", shown, line)
        wanted = waits.Wanted(f"a message on {topic}", topic=topic, until=until, kind=codec)
        return cast(M, await waits.wait(attempt, asked, wanted))

    def ask(
        self, question: str, answer: type[M], /, *, role: str, timeout: timedelta | None = None
    ) -> Coroutine[object, object, M]:
        """Ask a person who has the role, and wait for the answer. The question is seen as soon as it is asked.

        Raises TimedOut when nobody has answered in time, MessageRefused for an answer that is no `answer`.
        """
        line = caller_line()
        work = self._ask(self._attempt.expect(f"ask at {line}"), question, answer, role, timeout, line)
        return _named(work, "ask")

    async def _ask(
        self, ticket: int, question: str, answer: type[M], role: str, timeout: timedelta | None, line: str
    ) -> M:
        attempt, codec = self._attempt, codec_of(answer)
        attempt.unawaited.pop(ticket, None)
        check_name("role", role)
        until = waits.moment(timeout, attempt.kit.time.now()) if timeout is not None else 0
        plain = codec_of(str)
        text = clean(attempt.kit.scrubber, plain, plain.encode(question, where="a question"), "a question")
        shown = show("ask", f'{{"{role}":{text}}}')
        asked = Asked("ask", attempt.digest(canonical(question), canonical(role)), shown, line)
        wanted = waits.Wanted(
            f"an answer of {role}",
            until=until,
            role=role,
            question=text,
            topic="answer",
            expects=codec.name,
            kind=codec,
        )
        return cast(M, await waits.wait(attempt, asked, wanted))

    # ---- values, events, turns

    def now(self) -> datetime:
        """The time, recorded: the same on every replay. UTC."""
        moment = datetime.fromtimestamp(self._attempt.kit.time.now() / 1000, UTC)
        return cast(datetime, self._value("now", datetime, moment, caller_line()))

    def random(self) -> float:
        """A number in [0, 1), recorded."""
        return cast(float, self._value("random", float, self._attempt.kit.clock.random(), caller_line()))

    def uuid(self) -> UUID:
        """A random UUID, recorded."""
        drawn = UUID(hex=self._attempt.kit.clock.token(), version=4)
        return cast(UUID, self._value("uuid", UUID, drawn, caller_line()))

    def _value(self, name: str, kind: type[object], fresh: object, line: str) -> object:
        attempt, codec = self._attempt, codec_of(kind)
        with attempt.entering(f"run.{name}()", line) as scope:
            key, call = attempt.consume(scope, "value", name, "", f"run.{name}()", line)
            if call is not None:
                return codec.decode(call.payload or "null", where=f"the value of run.{name}()")
            text = codec.encode(fresh, where=f"run.{name}()")
            fact = kinds.Value(name=name, shown=f"run.{name}()")
            # Nobody outside can see it before the next append, which carries it.
            attempt.journal.buffer(Item(fact, scope.name, key, text))
            return codec.decode(text, where=f"the value of run.{name}()")

    async def emit(self, name: str, data: BaseModel) -> None:
        """An event for whoever follows the run; committed before anyone sees it, and never repeated."""
        line, attempt = caller_line(), self._attempt
        check_name("event name", name)
        codec = codec_of(type(data))
        text = clean(attempt.kit.scrubber, codec, codec.encode(data, where=f"event {name}"), f"event {name}")
        asked = self._asked(f"emit:{name}", lambda: text, canonical(data), line)
        with attempt.entering(asked.shown, line) as scope:
            key, call = attempt.consume(scope, "emit", asked.name, asked.digest, asked.shown, line)
            if call is None:
                await attempt.gate(scope)
                fact = kinds.Emitted(name=asked.name, digest=asked.digest, shown=asked.shown)
                scope.executing = True
                await attempt.journal.append(Item(fact, scope.name, key, text))
                scope.executing = False
                attempt.streamed.came(key)
                await attempt.recorded(scope)

    async def rollback(self, reason: str, /) -> NoReturn:
        """Fail here, and have all that the run has done undone: by a run of its own, newest first, as `compensate=` of
        each tool says. It begins when this one has ended, for the `reason` that it has failed for.
        """
        line, attempt = caller_line(), self._attempt
        check_reason("run.rollback", reason)
        shown = show("rollback", json.dumps({"reason": reason}))
        asked = Asked("rollback", attempt.digest(canonical(reason)), attempt.kit.scrubber.scrub(shown), line)
        with attempt.entering(asked.shown, line) as scope:
            key, call = attempt.consume(scope, "rollback", asked.name, asked.digest, asked.shown, line)
            await undoing.from_inside(attempt, scope, key, asked, reason, call)
        raise Unwind("rollback")

    def stream(self, name: str, text: str) -> None:
        """Let whoever follows the run see text at once, on its way to the next `run.emit(name, …)` of this scope.

        It is shown soon, or not at all: nothing waits for it, it is in no log, and that event supersedes it. While
        recorded calls are being repeated it does nothing. Raises Refused, and BadArguments for what is no text.
        """
        check_name("event name", name)
        attempt, scope = self._attempt, current.get(None)
        if scope is not None and scope.cursor.exhausted and not attempt.closed:
            attempt.streamed.toward(scope.cursor.key_of(f"emit:{name}"), name, text)

    def turns(self, initial: S) -> Turns[S]:
        """The loop of a long run: `async for state in run.turns(State()):`. See `Turns`."""
        if self.used:
            raise Refused(what="run.turns of an agent that another one uses", why="a run has one loop of turns")
        return Turns(self._attempt, initial)


def _named(work: Coroutine[object, object, R], name: str) -> Coroutine[object, object, R]:
    _names[work] = name
    return work


def _name_of(one: Awaitable[object]) -> str:
    return _names.get(one) or str(getattr(one, "__name__", type(one).__name__))
