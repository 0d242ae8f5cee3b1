"""A rehearsal: the code is run against a log, and nothing is written, sent or waited for.

It is an attempt like any other up to the first thing that the log does not have. There its scope is held, the others go
on until nothing recorded is left that they can ask for, and then it is over. So what a rehearsal finds is what the next
attempt at the run would find with this code, short of what that would do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from types import CoroutineType
from typing import Literal, TypeVar

from outlive.engine import failures
from outlive.engine.adoption import by_rule
from outlive.engine.attempt import Attempt, Kit
from outlive.engine.authority import Grip
from outlive.engine.definition import AgentSpec
from outlive.engine.drive import Harness, invoke
from outlive.engine.journal import NOTHING, Also, Item, Journal, Made
from outlive.engine.scope import Parked, Scope, Stop, current
from outlive.log import kinds
from outlive.log.fold import Call, Fold, step
from outlive.model.errors import Diverged, Refused
from outlive.model.ids import Owner
from outlive.model.operation import OPEN
from outlive.model.run import Authority, RunRow
from outlive.model.signals import Unwind

T = TypeVar("T")

_FOR_EVER = 2.0**62
_LEASE_MS = 30_000
_OWNER = Owner("rehearsal")


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a scope was held: what it asks for there, and whether that is recorded as under way."""

    scope: str
    asks: str
    line: str
    recorded: bool


@dataclass(slots=True)
class Rehearsed:
    """How it ended, after all that is recorded was asked for, or at what does not fit.

    `ended`: the agent has returned `result` (as JSON) or raised `error`. `held`: it `stands` where the log ends.
    `diverged`: that is in `diverged`, or in `report` where no call of the code is in the way of a recorded one.
    `fault`: code that no attempt gets past. `restless`: it has not come to any of these in time; `report` says where
    it is. `broken off`: whoever rehearses it wanted no more, and it was there.
    """

    how: Literal["ended", "held", "diverged", "fault", "restless", "broken off"]
    stands: tuple[Stand, ...] = ()
    result: str | None = None
    error: BaseException | None = None
    diverged: Diverged | None = None
    report: str = ""
    changed: list[str] = field(default_factory=list)
    """What is declared otherwise than when it was asked for, without being in the way."""


class _Held(Journal):
    """A journal that nothing is added to: who wants to append is held."""

    hold: Callable[[], Awaitable[None]]

    def buffer(self, item: Item) -> None:
        pass

    async def flush(self) -> None:
        await self.hold()

    async def append(self, *items: Item, also: Also = NOTHING, made: Made | None = None) -> None:
        await self.hold()

    async def append_using(self, *items: Item, also: Also) -> None:
        await self.hold()


class _Attempt(Attempt):
    """An attempt that is held at the first thing of each scope that the log does not have."""

    def __init__(self, kit: Kit, journal: _Held, key: bytes, agent: AgentSpec) -> None:
        super().__init__(kit, journal, key, agent)
        journal.hold = self.hold
        self.stands: dict[str, Stand] = {}
        self.changes: list[str] = []

    def rests_in(self, scope: str) -> bool:
        return scope in self.stands

    async def beyond(
        self, scope: Scope, call: Call | None, changed: Callable[[], list[str]] = lambda: []
    ) -> None:  # fmt: skip
        self.changes += changed()
        if call is not None and call.sent is not None and call.sent.status in OPEN and not self.leaving(scope):
            await self._stand(scope)  # what may have acted is settled, also where its branch was cancelled
        await self.gate(scope)

    async def gate(self, scope: Scope, *, cancellable: bool = True) -> None:
        if self.closed:
            raise Unwind(self.closed)
        if self.leaving(scope) or (scope.cancelled and cancellable):
            raise asyncio.CancelledError
        await self._stand(scope)

    async def adopt(self, scope: Scope, item: Item) -> None:
        """What a rule makes of the log is taken for written: the next attempt would write it, and go on."""
        self.changes.append(adopt(self.journal.row, self.fold, item))

    async def _stand(self, scope: Scope, *, adds: bool = False) -> None:
        """Hold the scope. What it `adds` to a call that is recorded is none the less new: how a gather is decided."""
        call = self.fold.keys.get(scope.key) if scope.key else None
        self.stands[scope.name] = Stand(scope.name, scope.asked, scope.line, call is not None and not adds)
        joining, scope.joining = scope.joining, False
        try:
            await self.park(scope, Parked("it is not recorded", cancellable=call is None))
        finally:
            scope.joining = joining
            self.stands.pop(scope.name, None)

    async def hold(self) -> None:
        """For what is appended without a gate: it is not recorded, so its scope is held too."""
        await self._stand(current.get(), adds=True)

    def standing(self) -> tuple[Stand, ...]:
        """Where its scopes stand; those that wait for a person are recorded as under way."""
        others = [
            Stand(one.name, one.parked.why, "", recorded=True)
            for one in self.scopes.values()
            if one.parked is not None and one.name not in self.stands
        ]
        return (*self.stands.values(), *others)


@dataclass(frozen=True, slots=True)
class Subject:
    """A run as it is recorded: its row, its folded log, and its tenant's key."""

    row: RunRow
    state: Fold
    key: bytes


async def rehearse(
    kit: Kit, harness: Harness, agent: AgentSpec, of: Subject, *, limit_s: float, enough: asyncio.Future[T]
) -> Rehearsed:  # fmt: skip
    """Run the agent's code against the folded log of a run. Nothing is written; `kit.store` is only read.

    What rules of the agent adopt is folded in, and tried again, as the next attempts would do. It is broken off when
    `enough` is done.
    """
    changes: list[str] = []
    while True:
        ended = await _rehearse(kit, harness, agent, of, limit_s=limit_s, enough=enough)
        changes += ended.changed
        item = by_rule(agent, of.state, ended.diverged) if ended.how == "diverged" else None
        if item is None:
            return replace(ended, changed=list(dict.fromkeys(changes)))
        changes.append(adopt(of.row, of.state, item))


def adopt(row: RunRow, state: Fold, item: Item) -> str:
    """Fold in what a rule adopts, without writing it; what it is, in words."""
    fact = item.fact
    assert isinstance(fact, kinds.Adopted | kinds.StateAdopted)
    step(state, row.head.seq, fact, item.scope, item.key, item.payload)
    if isinstance(fact, kinds.StateAdopted):
        what = f"the state of entry {fact.entry}, which is of version {fact.of}"
    else:
        what = f"{fact.how} at entry {fact.entry}: {fact.shown}"
    return f"a rule of {fact.who} adopts {what}: {fact.why}"


async def _rehearse(
    kit: Kit, harness: Harness, agent: AgentSpec, of: Subject, *, limit_s: float, enough: asyncio.Future[T]
) -> Rehearsed:  # fmt: skip
    loop = asyncio.get_running_loop()
    grip = Grip(Authority(of.row.tenant, of.row.id, of.row.epoch, ""), _FOR_EVER, kit.clock, loop)
    journal = _Held(kit.store, _OWNER, _LEASE_MS, kit.clock, kit.time, grip, of.row, of.state)
    attempt = _Attempt(kit, journal, of.key, agent)
    journal.seam = attempt
    root = attempt.open("")
    root.task = asyncio.ensure_future(invoke(attempt, root, harness))
    root.task.add_done_callback(lambda _: attempt.changed.set())
    loop.call_soon(attempt.tell)
    enough.add_done_callback(lambda _: attempt.changed.set())
    try:
        async with asyncio.timeout(limit_s):
            return await _watched(attempt, root, agent, enough)
    except TimeoutError:
        return Rehearsed("restless", report=_place(root), changed=attempt.changes)
    finally:
        await _unload(attempt)


def _place(root: Scope) -> str:
    """The line of the agent's code that waits for something that is no durable call, or that ended it."""
    task, place = root.task, ""
    if task is None:
        return place
    if task.done():
        error = None if task.cancelled() else task.exception()
        return failures.place(error) if error is not None else place
    waits: object = task.get_coro()
    while isinstance(waits, CoroutineType) and waits.cr_frame is not None:
        if failures.is_users(waits.cr_frame):
            place = f"{os.path.basename(waits.cr_code.co_filename)}:{waits.cr_frame.f_lineno}"
        waits = waits.cr_await
    return place


async def _watched(attempt: _Attempt, root: Scope, agent: AgentSpec, enough: asyncio.Future[T]) -> Rehearsed:
    assert root.task is not None
    while True:
        await attempt.changed.wait()
        attempt.changed.clear()
        if enough.done():
            return Rehearsed("broken off", report=_place(root), changed=attempt.changes)
        if attempt.stop is not None:
            return _stopped(attempt, attempt.stop)
        if root.task.done():
            return _returned(attempt, root, agent)
        if attempt.quiet():
            return Rehearsed("held", attempt.standing(), changed=attempt.changes)


def _stopped(attempt: _Attempt, stop: Stop) -> Rehearsed:
    if stop.kind == "diverged":
        diverged = stop.fault if isinstance(stop.fault, Diverged) else None
        return Rehearsed("diverged", diverged=diverged, report=stop.report, changed=attempt.changes)
    return Rehearsed("fault", error=stop.fault, report=str(stop.fault or stop.kind), changed=attempt.changes)


def _returned(attempt: _Attempt, root: Scope, agent: AgentSpec) -> Rehearsed:
    assert root.task is not None
    error: BaseException | None = asyncio.CancelledError("the agent cancelled itself")
    if not root.task.cancelled():
        error = root.task.exception()
    try:
        attempt.leave(root)
    except Diverged as diverged:
        return Rehearsed("diverged", error=error, diverged=diverged, report=str(diverged), changed=attempt.changes)
    if error is None and attempt.unawaited:
        forgotten = ", ".join(attempt.unawaited.values())
        error = Refused(what=forgotten, why="the call was made but never awaited, so it was never done")
    result = None
    if error is None:
        try:
            codec, where = agent.result, f"the result of {agent.name}"
            encoded = codec.encode(root.task.result(), where=where)
            result = failures.clean(attempt.kit.scrubber, codec, encoded, where)
        except Exception as refused:  # noqa: BLE001 - validators of a user's types may raise anything
            error = refused
    return Rehearsed("ended", result=result, error=error, changed=attempt.changes)


async def _unload(attempt: _Attempt) -> None:
    """Unwind the code; what does not end soon is cancelled, and then left."""
    attempt.closed = attempt.closed or "the rehearsal is over"
    attempt.streamed.close()
    for scope in attempt.scopes.values():
        if scope.waiter is not None and not scope.waiter.done():
            scope.waiter.set_exception(Unwind(attempt.closed))
    tasks = {scope.task for scope in attempt.scopes.values() if scope.task is not None} | attempt.helpers
    await _ended(tasks, attempt.kit.unload_s)


async def _ended(tasks: set[asyncio.Task[object]], within_s: float) -> None:
    done, left = await asyncio.wait(tasks, timeout=within_s)
    for task in left:
        task.cancel()
    if left:
        done |= (await asyncio.wait(left, timeout=within_s))[0]
    for task in done:
        if not task.cancelled():
            task.exception()  # nobody else looks at how it was unwound
