"""Authority over runs, as far as this process can prove it, and the thread that keeps renewing it.

A run is lost only when the store says so. Past the safe deadline (CLOCK_BOOTTIME read before the last successful
renewal was sent + lease - margin) nothing is sent or appended; if a later renewal succeeds, the run goes on.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable

from outlive.model.clock import Clock
from outlive.model.errors import StoreError
from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.run import Authority
from outlive.model.signals import Unwind
from outlive.store.port import Renewed, Stalled, Work

log = logging.getLogger("outlive.worker")

STALLED_EXIT = 70


def margin_s(lease_s: float) -> float:
    """How long before its end a lease is no longer relied on: 2 s, less for short leases."""
    return min(2.0, lease_s / 5)


class DatabaseTime:
    """The database's clock, estimated from the last time it was read and our own clock since. Milliseconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._base = (0, 0.0)

    def learn(self, now: int) -> None:
        """The database has just said what time it is."""
        self._base = (now, self._clock.boottime())

    def now(self) -> int:
        """What the database would say now."""
        given = self._clock.now()
        if given is not None:
            return given
        now, at = self._base
        return now + int((self._clock.boottime() - at) * 1000)


class Grip:
    """Our hold on one run: the authority, until when it can be relied on, and whether it is lost."""

    def __init__(
        self, authority: Authority, safe_until: float, clock: Clock, loop: asyncio.AbstractEventLoop, *,
        kept: bool = True,
    ) -> None:  # fmt: skip
        self.authority = authority
        self._kept = kept
        self.safe_until = safe_until
        self.lost = False
        self.settling = False
        """Which authority is ours is being found out: a renewal that does not know this one takes nothing away."""
        self.on_lost: Callable[[], None] = lambda: None
        self.on_unread: Callable[[], None] = lambda: None
        self.has_unread = False
        """Something was in the run's inbox, whether or not anybody was told yet."""
        self._clock = clock
        self._loop = loop
        self._changed = asyncio.Event()

    def renewed(self, safe_until: float) -> None:
        """A renewal succeeded. From any thread."""
        self.safe_until = max(self.safe_until, safe_until)
        self._loop.call_soon_threadsafe(self._changed.set)

    def moved(self, authority: Authority, safe_until: float) -> None:
        """The run was claimed again from ourselves."""
        self.authority, self.safe_until = authority, safe_until

    def lose(self) -> None:
        """The store has said that the run is not ours. From any thread."""
        if not self.lost:
            self.lost = True
            self._loop.call_soon_threadsafe(self._told)

    def unread(self) -> None:
        """Something is in the run's inbox. From any thread."""
        self.has_unread = True
        self._loop.call_soon_threadsafe(self._news)

    def _news(self) -> None:
        self.on_unread()  # whoever is to be told when it is told, not who was as it came

    def _told(self) -> None:
        self._changed.set()
        self.on_lost()

    def remaining(self) -> float:
        """Seconds for which our authority can still be proven; negative when it cannot."""
        return self.safe_until - self._clock.boottime()

    def expect(self) -> None:
        """Raise Unwind when the run is lost, or has run out for somebody who does not renew it."""
        if not self._kept and self.remaining() < 0:
            self.lose()
        if self.lost:
            raise Unwind("lease lost")

    async def ensure(self, least: float = 0.0) -> None:
        """Return once at least `least` seconds of authority can be proven; raise Unwind when the run is lost."""
        while True:
            if self.lost:
                raise Unwind("lease lost")
            if self.remaining() >= least:
                return
            if not self._kept:
                self.lose()  # nobody renews it: what is over is over
                raise Unwind("lease lost")
            self._changed.clear()
            await self._changed.wait()


class Keeper:
    """Renews the leases of a worker from a thread of its own, and watches that the event loop still turns.

    When the loop has not turned for `stall_notice` all stacks are written and the store is told, with the run whose
    code is running; after `stall_limit` the process exits hard, so that its leases lapse: a worker that is alive but
    stuck must not keep its runs.
    """

    def __init__(
        self, store: Work, owner: Owner, lease_ms: int, clock: Clock, time: DatabaseTime, stall_limit: float = 300.0,
        stall_notice: float = 30.0,
    ) -> None:  # fmt: skip
        self._store, self._owner, self._lease_ms = store, owner, lease_ms
        self._clock, self._time, self._stall_limit = clock, time, stall_limit
        self._stall_notice = min(stall_notice, stall_limit / 2)
        self.on_moved: Callable[[], None] = lambda: None
        self.whose: Callable[[asyncio.Task[object] | None], str] = lambda task: ""
        """The run that a task belongs to; asked from the thread that renews."""
        self._database, self._moved_at = "", float("-inf")
        self._grips: dict[tuple[Tenant, RunId], Grip] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticked = clock.boottime()
        self._dumped = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def interval_s(self) -> float:
        """A third of the lease."""
        return self._lease_ms / 3000

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to renew and to watch `loop`."""
        self._loop = loop
        self._tick()
        self._thread = threading.Thread(target=self._keep, name="outlive-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is held lapses unless it was released."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def hold(self, grip: Grip) -> None:
        """Renew this one too. Whoever held the same run before has lost it."""
        key = (grip.authority.tenant, grip.authority.run)
        with self._lock:
            before, self._grips[key] = self._grips.get(key), grip
        if before is not None and before is not grip:
            before.lose()

    def drop(self, grip: Grip) -> None:
        """Stop renewing it: it was released, or is lost."""
        key = (grip.authority.tenant, grip.authority.run)
        with self._lock:
            if self._grips.get(key) is grip:
                del self._grips[key]

    def heard(self, database: str) -> None:
        """Which database has answered. Another one than before may not have all that was acknowledged."""
        with self._lock:
            before = self._database
            self._database = database or before
            if not before or self._database == before:
                return
            self._moved_at = self._clock.boottime()
        self.on_moved()

    def settling_s(self) -> float:
        """Seconds for which nothing that is claimed should act, once another database answers: other workers may be
        about to say what it has lost. A lease is as long as it takes to tell one that lives from one that does not.
        """
        return self._moved_at + self._lease_ms / 1000 + 1.0 - self._clock.boottime()

    def safe_until(self, asked_at: float) -> float:
        """The safe deadline of a lease that was asked for at boottime `asked_at`."""
        return asked_at + self._lease_ms / 1000 - margin_s(self._lease_ms / 1000)

    def renew_once(self) -> None:
        """One renewal of all that is held, if anything is. A store that cannot answer takes nothing away."""
        with self._lock:
            held = {grip.authority: grip for grip in self._grips.values()}
        stalled = self._stalled()
        if not held and stalled is None:
            return  # the sign of life of a worker that drives nothing goes with its looks
        asked_at = self._clock.boottime()
        answer = self._store.renew(self._owner, list(held), self._lease_ms, stalled=stalled, now=self._clock.now())
        self._tell(held, answer, asked_at)

    def _tell(self, held: dict[Authority, Grip], answer: Renewed, asked_at: float) -> None:
        self._time.learn(answer.now)
        self.heard(answer.database)
        for authority, grip in held.items():
            if grip.authority != authority:
                continue  # claimed again or released meanwhile: the answer is about the past
            if authority in answer.kept:
                grip.renewed(self.safe_until(asked_at))
            elif self._grips.get((authority.tenant, authority.run)) is grip and not grip.settling:
                grip.lose()
            if (authority.tenant, authority.run) in answer.unread:
                grip.unread()

    def _keep(self) -> None:
        pause, before = self.interval_s, self._clock.boottime()
        while not self._stop.wait(pause):
            now = self._clock.boottime()
            if now - before > pause + 1.0:
                self._ticked = now  # this whole process was stopped or asleep: that says nothing about the loop
            self._watch_loop()
            try:
                self.renew_once()
                pause = self.interval_s
            except StoreError as error:
                log.warning("leases could not be renewed, trying again: %s", error)
                pause = min(self.interval_s, 0.2)
            except Exception:
                # Whatever it is, a thread that renews no more would cost every run of this worker.
                log.exception("leases could not be renewed, trying again")
                pause = min(self.interval_s, 1.0)
            before = self._clock.boottime()

    def _watch_loop(self) -> None:
        silent = self._silent_s()
        if silent > self._stall_notice and not self._dumped:
            self._dumped = True
            blocks = f"run {self._culprit()} blocks it" if self._culprit() else "a call blocks it"
            log.error("the event loop has not turned for %.0f s: %s; all stacks follow", silent, blocks)
            faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr, all_threads=True)
        if silent > self._stall_limit:
            log.error("the event loop has not turned for %.0f s: this worker exits, its runs move", silent)
            os._exit(STALLED_EXIT)

    def _silent_s(self) -> float:
        return self._clock.boottime() - self._ticked

    def _stalled(self) -> Stalled | None:
        """What the store is told of a loop that has been silent for so long that all stacks were written."""
        return Stalled(int(self._silent_s() * 1000), self._culprit()) if self._dumped else None

    def _culprit(self) -> str:
        return "" if self._loop is None else self.whose(asyncio.current_task(self._loop))

    def _tick(self) -> None:
        self._ticked, self._dumped = self._clock.boottime(), False
        if self._loop is not None and not self._stop.is_set():
            self._loop.call_later(min(1.0, self._stall_notice / 5), self._tick)
