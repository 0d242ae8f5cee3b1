"""Code of a framework inside a run: it has tasks of its own, and asks for durable calls that the run's scopes make.

The task that owns a scope *hosts*: it starts the guest, makes the calls that the guest asks for one after another, and
between them waits. For calls that may go on at the same time the guest opens lanes, each a scope of its own with a key:
what is recorded of one does not depend on when the others ended. What a guest does between two calls is code like any
other: it is done again on replay.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar, cast

from pydantic import BaseModel

from outlive.engine import streaming
from outlive.engine.attempt import Attempt
from outlive.engine.branches import Branches, Start
from outlive.engine.callables import caller_line, check_name, describe, until_done
from outlive.engine.definition import ToolPolicy, ToolSpec
from outlive.engine.failures import writable
from outlive.engine.operation import sending
from outlive.engine.run import Run
from outlive.engine.scope import Parked, Scope, current
from outlive.log.codec import Signature
from outlive.log.entry import Entry
from outlive.model.approval import Approval
from outlive.model.errors import Refused, ScopeError
from outlive.model.function import UserFunction
from outlive.model.run import Block

T = TypeVar("T")
D = TypeVar("D")

Make = Callable[[], Awaitable[object]]
Body = Callable[[dict[str, object]], Coroutine[object, object, object]]
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call that the guest waits for."""

    make: Make
    answer: asyncio.Future[object]


class _Lane:
    """What is asked for in one scope, by whoever, to be made by the task that owns it."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._asked: deque[_Asked] = deque()
        self._over = False
        self._closed: BaseException | None = None
        self._scope: Scope | None = None

    async def ask(self, make: Make) -> object:
        """Have a call made, and wait for what it gives or raises.

        Raises CancelledError when nobody makes calls here any more, and why not where the lane could not be opened.
        """
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self._closed is not None:
            raise self._closed
        self._asked.append(_Asked(make, answer))
        self._move()
        return await answer

    def end(self) -> None:
        """Nothing more is asked for."""
        self._over = True
        self._move()

    def close(self, why: BaseException) -> None:
        """Nothing more is made: that is raised to who waits, and to who asks later."""
        self._closed = self._closed or why
        while self._asked:
            _tell(self._asked.popleft().answer, self._closed)

    def _move(self) -> None:
        scope = self._scope
        if scope is not None and scope.waiter is not None and not scope.waiter.done():
            scope.joining = False  # at once: from here on it is going to move by itself
            scope.waiter.set_result(None)

    async def serve(self, *, rests: bool) -> None:
        """Make what is asked for until the end. With `rests` the scope counts as waiting for others between calls."""
        self._scope = scope = current.get()
        try:
            while True:
                while self._asked:
                    asked = self._asked.popleft()
                    if not asked.answer.done():
                        await _answer(asked)
                if self._over:
                    return
                await self._rest(scope, rests=rests)
        finally:
            self.close(asyncio.CancelledError())

    async def _rest(self, scope: Scope, *, rests: bool) -> None:
        """Until something is asked for. Raises Unwind when the run is unloaded meanwhile."""
        scope.waiter = asyncio.get_running_loop().create_future()
        scope.joining = rests
        self._attempt.changed.set()  # it may be that all the others wait as well
        try:
            await scope.waiter
        finally:
            scope.waiter, scope.joining = None, False


class _Calls(Protocol):
    """A run, for tools whose parameters are not known here."""

    def call(self, tool: ToolSpec, /, **arguments: object) -> Awaitable[object]: ...


def _nobody(key: str) -> None:
    """Nobody wants to know."""


def _tell(answer: asyncio.Future[object], error: BaseException) -> None:
    """Let who waits have an exception, if they still do."""
    if answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
    else:
        answer.set_exception(error)
        answer.exception()  # who asked may be gone, and nobody else has to look


async def _answer(asked: _Asked) -> None:
    """Make one call. Its exception is the guest's; a cancellation and an unwinding are the host's as well."""
    try:
        given = await asked.make()
    except Exception as error:  # noqa: BLE001 - whatever it is, who has asked is told
        _tell(asked.answer, error)
    except BaseException:
        _tell(asked.answer, asyncio.CancelledError())
        raise
    else:
        if not asked.answer.done():
            asked.answer.set_result(given)


class Guest:
    """One piece of foreign code, as it is hosted by the scope that starts it."""

    def __init__(self, run: Run[D]) -> None:
        self._run, self._attempt = run, run._attempt
        self._root = _Lane(self._attempt)
        self._lanes: dict[str, _Lane] = {}

    async def host(self, work: Coroutine[object, object, T]) -> T:
        """Run foreign code in a task of its own and make its calls, until it ends. Raises what it raises.

        When this is cancelled or unwound, it is cancelled, and has ended before that goes on.
        """
        root = self._root = _Lane(self._attempt)
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: root.end())
        try:
            await root.serve(rests=False)
        finally:
            if not task.done():
                task.cancel()
                await until_done(task)
        return task.result()

    async def ask(self, make: Make, lane: str = "") -> object:
        """From foreign code: have a durable call made in the scope of the lane, or in that of the host.

        Raises ScopeError for a lane that is not open, and for the host's scope while lanes are.
        """
        if lane in self._lanes:
            return await self._lanes[lane].ask(make)
        if lane or self._lanes:
            raise ScopeError(asked=f"a call of a framework in lane {lane!r}", line=caller_line())
        return await self._root.ask(make)

    @asynccontextmanager
    async def lanes(self, keys: Sequence[str]) -> AsyncIterator[None]:
        """From foreign code: open a scope for each key, at once, for as long as the block lasts. A single one needs no
        scope of its own: its calls are those of the host's.

        Raises, here or to who asks in the block, what is wrong with a key.
        """
        different = list(dict.fromkeys(keys))
        if len(different) < 2:
            self._lanes = dict.fromkeys(different, self._root)
            try:
                yield
            finally:
                self._lanes = {}
            return
        lanes = {key: _Lane(self._attempt) for key in different}

        def failed(opened: asyncio.Future[object]) -> None:
            error = None if opened.cancelled() else opened.exception()
            for lane in lanes.values():
                lane.close(error or asyncio.CancelledError())

        opened = asyncio.ensure_future(self._root.ask(lambda: self._branch(lanes)))
        opened.add_done_callback(failed)
        self._lanes = lanes
        try:
            yield
        finally:
            self._lanes = {}
            for lane in lanes.values():
                lane.end()
            await until_done(opened)
        opened.result()

    async def _branch(self, lanes: dict[str, _Lane]) -> None:
        def start(lane: _Lane) -> Start:
            return lambda: lane.serve(rests=True)

        starts = {key: start(lane) for key, lane in lanes.items()}
        await Branches(self._attempt, "map", starts).run(caller_line())

    async def call(
        self, tool: ToolSpec, arguments: Mapping[str, object], *, body: Body | None = None, lane: str = "",
        approval: Approval | None = None, by_people: bool = True, made: Callable[[str], None] = _nobody,
    ) -> object:  # fmt: skip
        """From foreign code: `run.call` in the scope of the lane. `made` is told its key when it has its outcome.

        `body` is what a `Brought` tool does, in the context of whoever asks. `approval` is what it needs whose own rule
        asks for none: where `by_people` says so, or has said so when people were asked. Raises Refused inside such a
        body: its lane is taken by the call that it is of.
        """
        attempt, outer = _inside.get((None, ""))
        if attempt is self._attempt:
            why = "what a tool does is one call of the run; let the agent itself call it"
            raise Refused(what=f"a call of {tool.name} inside the call of {outer}", why=why)
        context = contextvars.copy_context()

        async def do(given: dict[str, object]) -> object:
            assert body is not None
            context.run(_inside.set, (self._attempt, tool.name))
            return await _within(context, lambda: body(given))

        async def make() -> object:
            token, run = _brought.set(do), self._run
            if approval is not None and (by_people or (tool.policy.approval is None and self._was_asked(tool))):
                run = run.options(approval=approval)
            try:
                outcome = await cast(_Calls, run).call(tool, **arguments)
            finally:
                _brought.reset(token)
            made(current.get().met)
            return outcome

        return await self.ask(make, lane)

    def _was_asked(self, tool: ToolSpec) -> bool:
        """Whether the log has people asked about the next call of a tool: then they are, whatever a rule says now."""
        known = self._attempt.fold.keys.get(current.get().cursor.key_of(tool.name))
        return known is not None and known.asked is not None

    async def hold(self, reason: Block, detail: str) -> None:
        """From foreign code: block the run after its last call, until a person says that it is to go on."""

        async def make() -> None:
            scope = current.get()
            last = self._attempt.fold.keys.get(scope.met)
            while last is not None and self._attempt.fold.retried < last.seq:
                waiting = Parked("a person decides", block=reason, detail=writable(detail))
                await self._attempt.park(scope, waiting)

        await self.ask(make)

    async def emit(self, name: str, data: BaseModel, *, lane: str = "") -> None:
        """From foreign code: `run.emit` in the scope of the lane."""
        await self.ask(lambda: self._run.emit(name, data), lane)

    def outcome(self, key: str) -> str | None:
        """What is recorded as the outcome of a call of the present window, as JSON."""
        call = self._attempt.fold.keys.get(key)
        return call.payload if call is not None else None

    def digest(self, text: str) -> str:
        """A mark of a text under the tenant's key: the same for the same text, and nothing can be told from it."""
        return self._attempt.digest(text.encode())

    @property
    def started_at(self) -> datetime:
        """When the run was started, by the database's clock."""
        return datetime.fromtimestamp(self._attempt.journal.row.created_at / 1000, UTC)

    async def recorded(self) -> AsyncIterator[Entry]:
        """The whole log so far, in order: also what has left the replay window. Not for scopes that are under way."""
        row, after = self._attempt.journal.row, -1
        while True:
            page = await self._attempt.patiently(
                lambda: self._attempt.kit.store.entries(row.tenant, row.id, after=after, limit=_PAGE),  # noqa: B023 - asked before the next round
                "its log",
            )
            for entry in page:
                yield entry
            if len(page) < _PAGE:
                return
            after = page[-1].seq


class Brought(ToolSpec):
    """A tool that a framework brings: what it does is said with each call. `source` is where it comes from."""

    def __init__(self, name: str, policy: ToolPolicy, signature: Signature, source: UserFunction) -> None:
        check_name("name of the tool", name)
        policy.check(name)
        self.name, self.policy, self.signature = name, policy, signature
        self.fn, self.source, self.where = _do, source, describe(source)
        self.compensation = None


_brought: ContextVar[Body] = ContextVar("outlive_brought")
_inside: ContextVar[tuple[Attempt | None, str]] = ContextVar("outlive_inside")
"""The tool whose body this is, and the attempt at a run that it is called in."""


async def _do(op: object, **arguments: object) -> object:
    return await _brought.get()(arguments)


async def _within(context: contextvars.Context, body: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run the body of a call in the context of whoever asked for it, as the call that it is."""
    for variable in (current, sending, streaming.current):
        context.run(_set, cast("ContextVar[object]", variable), variable.get(None))
    task = asyncio.get_running_loop().create_task(body(), context=context)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            await until_done(task)
        raise


def _set(variable: ContextVar[object], value: object) -> None:
    variable.set(value)
