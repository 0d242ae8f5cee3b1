"""One invocation of an agent function, from a claim to its end: the seam that all durable calls go through.

The attempt goes by its own flags, never by the exception that reaches it: once `closed`, every durable call raises
Unwind again, nothing is appended or sent, and what the function returns or raises is ignored. A run is unloaded or
blocked only when every scope is parked; calls in flight run to their record first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal

from outlive.engine.authority import DatabaseTime
from outlive.engine.callables import check_name, describe, refuse_unnameable
from outlive.engine.definition import ToolSpec
from outlive.engine.journal import Journal
from outlive.engine.replay import Cursor
from outlive.log.canonical import digest
from outlive.log.codec import Signature
from outlive.log.fold import Call, CallKind, Fold, ScopeLog
from outlive.model.clock import Clock
from outlive.model.errors import ConcurrentCalls, Diverged, ForeignCancellation, Refused, ScopeError
from outlive.model.function import UserFunction
from outlive.model.run import Block
from outlive.model.signals import Unwind
from outlive.secret.port import Secrets
from outlive.secret.scrubber import Scrubber
from outlive.store.port import Store

log = logging.getLogger("outlive.run")

DIGEST_CHARS = 32


@dataclass(frozen=True, slots=True)
class Kit:
    """What a worker hands to each attempt."""

    store: Store
    clock: Clock
    time: DatabaseTime
    tools: Mapping[str, ToolSpec]
    secrets: Secrets
    scrubber: Scrubber
    deps: object
    lease_s: float
    code: str = ""
    unload_s: float = 5.0
    wake_in_place: bool = True
    evict: bool = False
    doubts_since: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of operations that this worker has seen become doubtful: since when by its own clock, and how long to wait."""
    on_send: Callable[[ToolSpec, str, dict[str, object]], None] | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """Why a scope waits: until a time, for a message, until a person decides (`block`), or for the attempt's end."""

    why: str
    until: int | None = None
    block: Block | None = None
    detail: str = ""
    message: bool = False
    cancellable: bool = True


@dataclass(frozen=True, slots=True)
class Stop:
    """Why an attempt takes no new work: what happens when the calls in flight have reached their record."""

    kind: Literal["lost", "drain", "diverged", "fault", "expired"]
    report: str = ""
    fault: Exception | None = None


class Scope:
    """A sequential strand of calls: what is recorded of it, the task that owns it, and what it is doing."""

    def __init__(self, name: str, recorded: ScopeLog) -> None:
        self.name = name
        self.cursor = Cursor(name, recorded)
        self.task: asyncio.Task[object] | None = None
        self.sending: asyncio.Task[Call] | None = None
        self.asked = ""
        self.joining = False
        self.executing = False
        self.shielded = False
        self.cancelled = False
        self.above: Scope | None = None
        self.branches: list[Scope] = []
        self.opening = False
        self.parked: Parked | None = None
        self.waiter: asyncio.Future[None] | None = None

    def cancel(self, why: str) -> None:
        """The scope and all below it are over, as is recorded: told now, or when what replay has left is consumed."""
        for branch in self.branches:
            branch.cancel(why)
        self.cursor.cancelled = self.cursor.cancelled or why
        self.consumed()

    def consumed(self) -> None:
        """A recorded call was met, here or below. Cancellation is told exactly when nothing is left before it.

        Branches are told first: what is recorded below a scope is before its end.
        """
        if self.cursor.cancelled is not None and not self.cancelled and self._exhausted():
            self.cancelled = True
            asyncio.get_running_loop().call_soon(self._tell)
        if self.above is not None:
            self.above.consumed()

    def _exhausted(self) -> bool:
        """Whether nothing recorded is left, here and below."""
        return self.cursor.exhausted and not self.opening and all(branch._exhausted() for branch in self.branches)

    def _tell(self) -> None:
        """At once, or after the record of an operation that may have been sent."""
        if self.parked is not None and self.waiter is not None and not self.waiter.done():
            if self.parked.cancellable:
                self.parked = None
                self.waiter.set_exception(asyncio.CancelledError())
        elif not self.shielded and self.task is not None:
            self.task.cancel()


current: ContextVar[Scope] = ContextVar("outlive_scope")


def _never_renamed(name: str) -> frozenset[str]:
    return frozenset()


class Attempt:
    """The seam of one invocation."""

    def __init__(self, kit: Kit, journal: Journal, key: bytes) -> None:
        self.kit, self.journal = kit, journal
        self.scopes: dict[str, Scope] = {}
        self.closed = ""
        self.stop: Stop | None = None
        self.changed = asyncio.Event()
        self.turning = False
        self.listening = False
        """What is in the inbox is being taken: whoever waits for it must not be unloaded meanwhile, or never wakes."""
        self.unawaited: dict[int, str] = {}
        self.helpers: set[asyncio.Task[object]] = set()
        # For each gather, map or first under way: whether it is about to go on by itself.
        self.joins: list[Callable[[], bool]] = []
        self.key = key
        self.former: Callable[[str], frozenset[str]] = _never_renamed
        """Under which names older code has recorded calls of a step or tool."""
        self._steps: dict[str, UserFunction] = {}
        self._told_closed = False
        self._tickets = 0

    @property
    def fold(self) -> Fold:
        """What the log says, kept true with every append."""
        return self.journal.fold

    def expect(self, asked: str) -> int:
        """A call was made, but not begun yet; the ticket is taken back when it is."""
        ticket = self._tickets = self._tickets + 1
        self.unawaited[ticket] = asked
        return ticket

    def digest(self, *parts: bytes) -> str:
        """A keyed digest under the tenant's key."""
        return digest(self.key, *parts)[:DIGEST_CHARS]

    # ---- scopes and their calls

    def open(self, name: str) -> Scope:
        """Begin a scope of the window that the code is in: the prologue, until the loop of turns is reached."""
        window = self.fold.windows[-1 if self.turning else 0]
        scope = Scope(name, window.get(name, ScopeLog()))
        self.scopes[name] = scope
        return scope

    @contextmanager
    def entering(self, asked: str, line: str) -> Iterator[Scope]:
        """A durable call from the scope of the running task.

        Raises what makes it impossible, translates cancellation.
        """
        scope = self._owned(asked, line)
        scope.asked = asked
        try:
            yield scope
        except asyncio.CancelledError:
            self._cancelled(scope, asked, line)
            raise
        except Diverged as diverged:
            self.halt(Stop("diverged", str(diverged), diverged))
            raise Unwind("diverged") from diverged
        finally:
            scope.asked = ""
            scope.executing = False
            if scope.cancelled and scope.task is not None and not self.closed:
                asyncio.get_running_loop().call_soon(scope.task.cancel)
            if self.stop is not None:
                # Who waits for this call to reach its record looks again; without a stop only parked scopes count.
                self.changed.set()

    def _owned(self, asked: str, line: str) -> Scope:
        if self.closed:
            if not self._told_closed:
                self._told_closed = True
                drained = self.stop is not None and self.stop.kind == "drain"
                why = f"the attempt was closed ({self.closed})"
                level = logging.DEBUG if drained else logging.WARNING
                log.log(level, "run %s: %s at %s is not done: %s", self.journal.row.id, asked, line, why)
            raise Unwind(self.closed)
        scope = current.get(None)
        if scope is None or self.scopes.get(scope.name) is not scope or scope.task is not asyncio.current_task():
            if scope is not None and scope.asked:
                raise ConcurrentCalls(asked=asked, in_flight=scope.asked, line=line)
            raise ScopeError(asked=asked, line=line)
        if scope.asked:
            raise ConcurrentCalls(asked=asked, in_flight=scope.asked, line=line)
        if scope.cancelled and scope.cursor.exhausted:
            raise asyncio.CancelledError
        return scope

    def _cancelled(self, scope: Scope, asked: str, line: str) -> None:
        if self.closed:
            raise Unwind(self.closed)
        if scope.cancelled:
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            fault = ForeignCancellation(call=asked, line=line)
            self.halt(Stop("fault", fault=fault))
            raise Unwind("foreign cancellation") from fault

    def consume(
        self, scope: Scope, kind: CallKind, name: str, digested: str, shown: str, line: str
    ) -> tuple[str, Call | None]:
        """Match a call with the log; raises Diverged."""
        key, call = scope.cursor.next(kind, name, digested, shown, line, self.former(name))
        if call is not None:
            scope.consumed()
        return key, call

    def step_signature(self, name: str, fn: UserFunction) -> Signature:
        """The signature of a step. Refuses what has no stable name, and two functions of one name in a run."""
        known = self._steps.get(name)
        if known is not fn:
            if isinstance(fn, ToolSpec):
                raise Refused(what=f"step {fn.name}", why="it is a tool; use run.call")
            refuse_unnameable(fn)
            check_name("name", name)
            if known is not None:
                raise Refused(
                    what=f"step {name}",
                    why=f"{describe(known)} and {describe(fn)} share the name; use run.options(name=…)",
                )
            self._steps[name] = fn
        return Signature.of(fn, skip=0, where=name)

    # ---- waiting

    async def gate(self, scope: Scope, *, cancellable: bool = True) -> None:
        """Before anything live: returns when new work may begin, or parks for good.

        What is in doubt is not cancellable: it is settled first.
        """
        if self.closed:
            raise Unwind(self.closed)
        if scope.cancelled and cancellable:
            raise asyncio.CancelledError
        deadline = self.journal.row.deadline_at
        if deadline is not None and self.kit.time.now() >= deadline:
            self.halt(Stop("expired"))
        if self.stop is not None:
            await self.park(scope, Parked(self.stop.kind))
        while self.fold.duplicate:
            detail = f"operation {self.fold.duplicate} may have acted twice"
            await self.park(scope, Parked("duplicate", block="duplicate effect", detail=detail, cancellable=False))
        while self.fold.lost:
            await self.park(scope, Parked("a loss", block="entries lost", detail=self.fold.lost, cancellable=False))

    async def park(self, scope: Scope, parked: Parked) -> None:
        """Wait as `parked` says. Raises Unwind when the run is unloaded meanwhile."""
        if scope.cancelled and parked.cancellable:
            raise asyncio.CancelledError
        scope.parked = parked
        scope.waiter = asyncio.get_running_loop().create_future()
        was, scope.executing = scope.executing, False
        timer = None
        if parked.until is not None and self.kit.wake_in_place:
            timer = asyncio.ensure_future(self._wake_at(scope, scope.waiter, parked.until))
        self.changed.set()
        try:
            await scope.waiter
        finally:
            scope.parked, scope.waiter, scope.executing = None, None, was
            if timer is not None:
                timer.cancel()

    async def wait_until(self, scope: Scope, at: int, why: str, *, cancellable: bool = True) -> None:
        """Wait for a moment of database time; the run is unloaded when nothing else goes on."""
        while self.kit.time.now() < at:
            await self.park(scope, Parked(why, until=at, cancellable=cancellable))

    async def _wake_at(self, scope: Scope, waiter: asyncio.Future[None], at: int) -> None:
        await self.kit.clock.sleep(max(0, at - self.kit.time.now()) / 1000)
        self.wake(scope, waiter)

    def wake(self, scope: Scope, waiter: asyncio.Future[None] | None = None) -> None:
        """Let a parked scope look again, unless the attempt is being unloaded."""
        waiter = waiter or scope.waiter
        if waiter is not None and not waiter.done() and not self.closed:
            scope.parked = None  # at once: until its task runs again nobody may think that it still waits
            waiter.set_result(None)

    def wake_all(self) -> None:
        """Something arrived that may concern any of them."""
        for scope in self.scopes.values():
            self.wake(scope)

    async def recorded(self, scope: Scope) -> None:
        """After a live record: where runs are evicted at every step (a test mode), the place where it happens."""
        if self.kit.evict:
            await self.park(scope, Parked("evicted", until=self.kit.time.now(), cancellable=False))

    # ---- stopping

    def halt(self, stop: Stop) -> None:
        """Take no new work. The first reason counts, but a lost lease beats them all."""
        if self.stop is None or stop.kind == "lost":
            self.stop = stop
        if stop.kind == "lost":
            self.closed = self.closed or "lease lost"
            for scope in self.scopes.values():
                if scope.executing and not scope.shielded and scope.task is not None:
                    scope.task.cancel()
        self.changed.set()

    def quiet(self) -> bool:
        """Whether nothing is in flight that must reach its record, and nobody could go on by himself."""
        if self.stop is not None:
            return not any(scope.executing for scope in self.scopes.values())
        if self.listening or any(moves() for moves in self.joins):
            return False
        waiting = [scope for scope in self.scopes.values() if not scope.joining]
        return bool(waiting) and all(scope.parked is not None for scope in waiting)
