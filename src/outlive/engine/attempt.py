"""One invocation of an agent function, from a claim to its end: the seam that all durable calls go through.

The attempt goes by its own flags, never by the exception that reaches it: once `closed`, every durable call raises
Unwind again, nothing is appended or sent, and what the function returns or raises is ignored. A run is unloaded or
blocked only when every scope is parked; calls in flight run to their record first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from outlive.engine.authority import DatabaseTime
from outlive.engine.callables import check_name, describe, refuse_unnameable
from outlive.engine.cancelling import WITH_RUN, late
from outlive.engine.definition import AgentSpec, ToolSpec
from outlive.engine.journal import Item, Journal, Seam
from outlive.engine.scope import Parked, Scope, Stop, current
from outlive.engine.streaming import Streamed, Streams
from outlive.log import kinds
from outlive.log.canonical import digest
from outlive.log.codec import Signature
from outlive.log.fold import Call, CallKind, Fold, ScopeLog
from outlive.model.clock import Clock
from outlive.model.errors import (
    ConcurrentCalls,
    Diverged,
    ForeignCancellation,
    LeaseLost,
    Refused,
    ScopeError,
    StoreError,
)
from outlive.model.function import UserFunction
from outlive.model.signals import Unwind
from outlive.secret.port import Secrets
from outlive.secret.scrubber import Scrubber
from outlive.store.port import Store

log = logging.getLogger("outlive.run")

DIGEST_CHARS = 32
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kit:
    """What a worker hands to each attempt."""

    store: Store
    clock: Clock
    time: DatabaseTime
    tool: Callable[[str], ToolSpec | None]
    secrets: Secrets
    scrubber: Scrubber
    deps: object
    lease_s: float
    code: str = ""
    unload_s: float = 5.0
    wake_in_place: bool = True
    evict: bool = False
    grace_s: float = 30.0
    doubts_since: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of operations that this worker has seen become doubtful: since when by its own clock, and how long to wait."""
    on_send: Callable[[ToolSpec, str, dict[str, object]], None] | None = None
    roles: Callable[[str], Awaitable[set[str]]] | None = None
    """The application's directory: which roles somebody has now. None: what was said at the decision counts."""
    streams: Streams | None = None


class Attempt(Seam):
    """The seam of one invocation."""

    def __init__(self, kit: Kit, journal: Journal, key: bytes, agent: AgentSpec) -> None:
        self.kit, self.journal, self.streamed = kit, journal, Streamed(kit.streams, journal)
        self.scopes: dict[str, Scope] = {}
        self.closed = ""
        self.stop: Stop | None = None
        self.changed = asyncio.Event()
        self.turning = False
        self.wakes = 0
        """How often all were woken. Who reads before it waits compares, lest it miss the one that comes meanwhile."""
        self.listening = False
        """What is in the inbox is being taken: whoever waits for it must not be unloaded meanwhile, or never wakes."""
        self.unawaited: dict[int, str] = {}
        self.helpers: set[asyncio.Task[object]] = set()
        # For each gather, map or first under way: whether it is about to go on by itself.
        self.joins: list[Callable[[], bool]] = []
        self.alarms: set[asyncio.Task[None]] = set()
        self.key = key
        self.agent = agent
        self._steps: dict[str, tuple[UserFunction, Signature]] = {}
        self._told_closed, self._tickets = False, 0

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
        scope = Scope(name, window.setdefault(name, ScopeLog()))
        self.scopes[name] = scope
        return scope

    @contextmanager
    def entering(self, asked: str, line: str) -> Iterator[Scope]:
        """A durable call from the scope of the running task.

        Raises what makes it impossible, translates cancellation.
        """
        scope = self._owned(asked, line)
        scope.asked, scope.line = asked, line
        try:
            yield scope
        except asyncio.CancelledError:
            self._cancelled(scope, asked, line)
            raise
        except Diverged as diverged:
            self.halt(Stop("diverged", str(diverged), diverged))
            raise Unwind("diverged") from diverged
        finally:
            scope.asked = scope.key = ""
            scope.executing = False
            if not scope.name and self.leaving(scope):
                asyncio.get_running_loop().call_soon(self.tell)
            elif scope.cancelled and scope.task is not None and not self.closed:
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
        if scope.struck and scope.task is not None:
            scope.struck = False
            scope.task.uncancel()
        if not scope.name and self.leaving(scope):
            scope.told = True
            raise asyncio.CancelledError
        if scope.cancelled and scope.cursor.exhausted:
            raise asyncio.CancelledError
        return scope

    def _cancelled(self, scope: Scope, asked: str, line: str) -> None:
        if self.closed:
            raise Unwind(self.closed)
        if not scope.name and self.leaving(scope):
            self._told(scope)
            return
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
        key, call = scope.cursor.next(kind, name, digested, shown, line, self.agent.former(name))
        if call is None and scope.cursor.cancelled is None:
            self._keep_to_loop(shown, line)
        scope.key = scope.met = key
        if call is not None:
            scope.consumed()
            if call.cut and (call.done or kind != "operation"):
                raise asyncio.CancelledError
        return key, call

    def leave(self, root: Scope) -> None:
        """The agent's code has ended: raises Diverged if the log has more."""
        asks = "the end of the agent"
        root.cursor.leave(asks)
        self._keep_to_loop(asks, "")

    def _keep_to_loop(self, asks: str, line: str) -> None:
        """A run that is in its loop of turns has all that comes before it: a new call there would be made again at each
        attempt, for nobody looks for it where it would be recorded. Raises Diverged.
        """
        if not self.turning and len(self.fold.windows) > 1:
            loop = self.fold.current[""].calls[0]
            raise Diverged(has=loop.shown, asks=asks, line=line, seq=loop.seq)

    def step_signature(self, name: str, fn: UserFunction) -> Signature:
        """The signature of a step. Refuses what has no stable name, and two functions of one name in a run."""
        known = self._steps.get(name)
        if known is not None and known[0] is fn:
            return known[1]
        if isinstance(fn, ToolSpec):
            raise Refused(what=f"step {fn.name}", why="it is a tool; use run.call")
        refuse_unnameable(fn)
        check_name("name", name)
        if known is not None:
            raise Refused(
                what=f"step {name}",
                why=f"{describe(known[0])} and {describe(fn)} share the name; use run.options(name=…)",
            )
        signature = Signature.of(fn, skip=0, where=name)
        self._steps[name] = fn, signature
        return signature

    # ---- waiting

    async def gate(self, scope: Scope, *, cancellable: bool = True) -> None:
        """Before anything live: returns when new work may begin, or parks for good.

        What is in doubt is not cancellable: it is settled first.
        """
        if self.closed:
            raise Unwind(self.closed)
        if self._is_over(self.deadline):
            await self.expire()
        if self.leaving(scope) or (scope.cancelled and cancellable):
            raise asyncio.CancelledError
        if self._is_over(self.grace_until):
            self.halt(Stop("over"))
        if self.stop is not None:
            await self.park(scope, Parked(self.stop.kind))
        while self.fold.duplicate:
            detail = f"operation {self.fold.duplicate} may have acted twice"
            await self.park(scope, Parked("duplicate", block="duplicate effect", detail=detail, cancellable=False))
        while self.fold.lost:
            await self.park(scope, Parked("a loss", block="entries lost", detail=self.fold.lost, cancellable=False))

    async def park(self, scope: Scope, parked: Parked) -> None:
        """Wait as `parked` says. Raises Unwind when the run is unloaded meanwhile."""
        if parked.cancellable and (scope.cancelled or self.leaving(scope)):
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
        self.wakes += 1
        for scope in self.scopes.values():
            self.wake(scope)

    async def beyond(
        self, scope: Scope, call: Call | None, changed: Callable[[], list[str]] = lambda: []
    ) -> None:  # fmt: skip
        """What is asked for has no outcome in the log: `call` is what is recorded of it, None if nothing is.

        `changed` says what the code declares about it otherwise than what is recorded of it.
        """

    def rests_in(self, scope: str) -> bool:
        """Whether the scope of that name is held, whatever it could do."""
        return False

    def marked(self) -> None:
        """See Seam. Another branch may wait for it."""
        self.wake_all()

    async def recorded(self, scope: Scope) -> None:
        """After a live record: where runs are evicted at every step (a test mode), the place where it happens."""
        if self.kit.evict:
            await self.park(scope, Parked("evicted", until=self.kit.time.now(), cancellable=False))

    async def adopt(self, scope: Scope, item: Item) -> None:
        """Commit what a rule of the agent has made of the log, before the calls that follow from it are compared."""
        await self.gate(scope)
        scope.executing = True
        await self.journal.append(item)
        scope.executing = False
        await self.recorded(scope)

    async def patiently(self, ask: Callable[[], Awaitable[T]], what: str) -> T:
        """Ask the store until it answers, as long as the run is ours; `what` cannot be done meanwhile.

        Raises LeaseLost, and Unwind when the run is not ours any more.
        """
        while True:
            try:
                return await ask()
            except LeaseLost:
                raise
            except StoreError as error:
                log.warning("run %s: %s cannot be had, trying again: %s", self.journal.row.id, what, error)
                await self.kit.clock.sleep(0.1)
                await self.journal.grip.ensure()

    # ---- being cancelled

    @property
    def deadline(self) -> int | None:
        """When the run is to be cancelled, unless it is being already."""
        return self.journal.row.deadline_at if self.fold.cancelling is None else None

    @property
    def grace_until(self) -> int | None:
        """When clean-up is over, if there is any."""
        return self.fold.cancelling.grace_until if self.fold.cancelling is not None else None

    def _is_over(self, at: int | None) -> bool:
        return at is not None and self.kit.time.now() >= at

    async def expire(self) -> None:
        """The deadline has passed: its code is told, as of any cancellation."""
        await self.journal.append(made=lambda: late(self.journal, int(self.kit.grace_s * 1000)))

    def leaving(self, scope: Scope) -> bool:
        """Whether the run is being cancelled and this scope with it, and its code has still to be told: it begins
        nothing more, and sends nothing again.
        """
        if self.fold.cancelling is None:
            return False
        return scope.cancelled if scope.name else not scope.told and scope.cursor.cancelling

    def admit(self, items: Sequence[Item]) -> None:
        """No call of the root scope gets an entry between the cancellation of the run and its being told: replay could
        not tell it from one of the clean-up.
        """
        root = self.scopes.get("")
        if root is not None and self.leaving(root):
            if any(not item.scope and isinstance(item.fact, kinds.Call | kinds.Joined) for item in items):
                raise asyncio.CancelledError

    def in_call(self, key: str) -> bool:
        """See Seam."""
        root = self.scopes.get("")
        replaying = root is None or not root.cursor.exhausted or self.turning != (len(self.fold.windows) > 1)
        return replaying or (root is not None and bool(root.asked) and root.key == key)

    def in_flight(self, operation: str) -> bool:
        """See Seam."""
        call = self.fold.sent(operation)
        if call is None or call.sent is None or call.sent.status != "pending":
            return False
        return any(scope.executing and scope.key == call.key for scope in self.scopes.values())

    def cancelling(self) -> None:
        """See Seam."""
        if self.closed or (root := self.scopes.get("")) is None:
            return
        if (call := self.fold.keys.get(root.key)) is not None and call.cut:
            for branch in root.branches:
                branch.cancel(WITH_RUN)
        for scope in self.scopes.values():
            if scope.name and scope.cancelled:
                self._strike(scope)
        self.tell()
        self.watch_time()

    def tell(self) -> None:
        """Let the code of the root scope know that the run is cancelled: where it waits, or in the step that it is in.

        A call whose outcome is recorded gives that first; one that may have been sent reaches its record first.
        """
        root = self.scopes.get("")
        if root is None or self.closed or root.task is None or root.task.done() or not self.leaving(root):
            return
        if root.task is asyncio.current_task():
            return  # it looks for itself
        call = self.fold.keys.get(root.key) if root.key else None
        if not root.asked:
            root.told = root.struck = True
            root.task.cancel()
        elif (call is None or not call.done or call.cut) and not self._strike(root) and not root.shielded:
            root.struck = True
            root.task.cancel()

    def _strike(self, scope: Scope) -> bool:
        """What is parked is parked no longer, whatever it waits for."""
        if scope.parked is None or scope.waiter is None or scope.waiter.done():
            return False
        scope.parked = None
        scope.waiter.set_exception(asyncio.CancelledError())
        return True

    def _told(self, root: Scope) -> None:
        """The code of the root scope is about to be told, in the call that it is in."""
        root.told = True
        if root.struck and root.task is not None:
            root.struck = False
            root.task.uncancel()
        if root.key and root.key not in self.fold.keys:
            root.cursor.give_back()

    def watch_time(self) -> None:
        """Have the deadline, or the end of grace, noticed while calls are in flight."""
        if self.kit.wake_in_place:
            for at, then in ((self.deadline, self.expire), (self.grace_until, self._over)):
                if at is not None:
                    task = asyncio.ensure_future(self._at(at, then))
                    self.alarms.add(task)
                    task.add_done_callback(self.alarms.discard)

    async def _at(self, at: int, then: Callable[[], Awaitable[None]]) -> None:
        while (left := at - self.kit.time.now()) > 0:
            await self.kit.clock.sleep(left / 1000)
        try:
            await then()
        except Unwind:
            pass

    async def _over(self) -> None:
        self.halt(Stop("over"))

    # ---- stopping

    def halt(self, stop: Stop) -> None:
        """Take no new work. The first reason counts, but the end of grace beats it, and a lost lease them all."""
        if self.stop is None or stop.kind == "lost" or (stop.kind == "over" and self.stop.kind != "lost"):
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
        return bool(waiting) and all(scope.rests for scope in waiting)
