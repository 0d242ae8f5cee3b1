"""A worker: claims runs that it serves, drives many at once, and gives them back in good order when it is told to stop.

It looks at the store: soon after something was found, then less and less often, and when what it saw last becomes due.
A hint only makes it look, or claim, sooner (waking.py); which leases it may take over, it learns by watching them
(watch.py).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from outlive.engine.aside import Aside
from outlive.engine.attempt import Kit
from outlive.engine.authority import Keeper
from outlive.engine.control import Control
from outlive.engine.definition import AgentSpec
from outlive.engine.drive import Drive, Harness, Verdict
from outlive.engine.losses import Losses
from outlive.engine.replaced import Replaced
from outlive.engine.rollback import RollbackSpec
from outlive.engine.waking import Waking
from outlive.engine.watch import Watch
from outlive.model.clock import Clock
from outlive.model.errors import OutliveError, StoreError
from outlive.model.ids import Owner, RunId, Tenant
from outlive.store.port import Claim, Claimed, Look, Store, WorkerRow

log = logging.getLogger("outlive.worker")


# Runs that one claim takes.
MOST_AT_ONCE = 20
# How soon a store that did not answer is asked again.
RETRY_S = 0.5
# Between two looks of a worker without room, however many hints come.
FULL_S = 0.05
# A worker is taken to be alive for two leases, and for a minute by people.
SIGN_MOST_S = 20.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How a worker behaves in time (seconds, but for `lease_ms`), and whose runs of which queues it claims.

    An idle one looks every `poll_most` s, or every `poll_deaf` s while the store's hints do not arrive; at least once
    in a third of a lease, so that the runs of a dead worker move in time whether or not anything wakes it.
    """

    lease_ms: int = 30_000
    concurrency: int = 100
    poll_least: float = 0.02
    poll_most: float = 6.0
    poll_deaf: float = 1.0
    drain: float = 30.0
    stall_limit: float = 300.0
    stall_notice: float = 30.0
    max_lapses: int = 10
    queues: tuple[str, ...] = ("default",)
    tenants: tuple[Tenant, ...] | None = None

    def between_looks(self, *, hinted: bool = True) -> float:
        """The longest time between two looks."""
        return min(self.poll_most if hinted else self.poll_deaf, self.poll_most, self.lease_ms / 3000)


class Worker:
    """One process's worth of driving runs. `run` serves until `stop`; `once` claims and drives what is there now."""

    def __init__(
        self, store: Store, kit: Kit, agents: Mapping[str, AgentSpec], harness: Harness, pace: Pace, owner: Owner,
    ) -> None:  # fmt: skip
        self.store, self.kit, self.agents, self.pace, self.owner = store, kit, agents, pace, owner
        self.on_verdict: Callable[[Claimed, Verdict], None] | None = None
        self.aside: Aside | None = None
        self.replaced: Replaced | None = None
        """Set where it serves only until others have replaced it; then it stops by itself."""
        self._harness = harness
        self._keeper = Keeper(
            store, owner, pace.lease_ms, kit.clock, kit.time, pace.stall_limit, pace.stall_notice
        )  # fmt: skip
        self._keeper.whose = self._whose
        between = pace.between_looks()
        self._watch = Watch(kit.clock, between, between + max(2.0, pace.lease_ms / 5000))
        self._control = Control(store, kit.clock, owner)
        self._losses = Losses(store, kit.clock, owner)
        self._waking = Waking(kit.clock, least=pace.poll_least)
        self._signed = kit.clock.boottime()
        self._more, self._told, self._turn = False, 0, 0
        self._drives: dict[asyncio.Task[None], Drive] = {}
        self._stopping = False
        self._lingering: set[asyncio.Task[None]] = set()

    def hint(self) -> None:
        """Something was just started here, or may be claimed at once for another reason."""
        self._waking.told()

    def stop(self) -> None:
        """Stop claiming, drain what is running, return from `run`. From the event loop's thread."""
        self._stopping = True
        self._waking.wake()
        for drive in self._drives.values():
            drive.drain()

    async def run(self) -> None:
        """Serve until `stop`. A store that cannot be reached is waited for."""
        await self._patiently_announce()
        loop = asyncio.get_running_loop()
        self._keeper.on_moved = partial(_call_soon, loop, self._losses.compare_soon)
        self._keeper.start(loop)
        listening = asyncio.ensure_future(self._listen())
        try:
            await self._serve()
            await self._drain()
        finally:
            listening.cancel()
            await asyncio.wait([listening])
            if self._drives:
                # What is still in flight keeps its lease until it has its record, or this process is gone.
                lingering = asyncio.ensure_future(self._linger())
                self._lingering.add(lingering)
                lingering.add_done_callback(self._lingering.discard)
            else:
                await asyncio.to_thread(self._keeper.stop)

    async def _serve(self) -> None:
        pause = self.pace.poll_least
        while not self._stopping:
            told, self._told = self._waking.take(), 0
            try:
                found = await (self._hinted() if told or self._more else self.claim())
                self._waking.led_to(found, self._told)
                longest = self.pace.between_looks(hinted=self._waking.hinted)
                pause = self.pace.poll_least if found else min(pause * 1.5, longest)
                wait = min(pause, self._watch.left())
            except StoreError as error:
                log.warning("the store does not answer, trying again: %s", error)
                wait = RETRY_S * (0.5 + self.kit.clock.random())
            await self._waking.wait(0.0 if self._more and self._free() > 0 else max(wait, 0.001))

    async def _listen(self) -> None:
        """Be woken by the hints of the store. Without any, and whatever goes wrong, polling finds the same."""
        try:
            async with aclosing(self.store.hints()) as hints:
                async for hinted in hints:
                    self._waking.heard(hinted=hinted)
        except Exception:
            log.exception("hints are not listened to any more: this worker looks every %g s", self.pace.poll_deaf)
        self._waking.heard(hinted=False)

    async def _linger(self) -> None:
        await self.idle()
        await asyncio.to_thread(self._keeper.stop)

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Serve while the block runs; then drain. If serving fails, the block is cancelled and the error raised."""
        serving, owner = asyncio.ensure_future(self.run()), asyncio.current_task()

        def failed(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None and owner is not None:
                owner.cancel()

        serving.add_done_callback(failed)
        try:
            yield
        except asyncio.CancelledError:
            if serving.done() and not serving.cancelled() and serving.exception() is not None and owner is not None:
                owner.uncancel()  # it was ours: the error of serving says why
            else:
                raise
        finally:
            self.stop()
            await serving

    async def claim(self) -> int:
        """Look; look after runs that need no agent code; begin to drive what can be claimed now."""
        if self.replaced is not None and await self.replaced.look(self._wish()):
            self.stop()
            return 0
        now = self.kit.clock.boottime()
        sign = not self._drives and now - self._signed >= min(SIGN_MOST_S, self.pace.lease_ms * 2 / 3000)
        look = await self._watch.look(self.store, self._wish(), sign=sign)
        self.kit.time.learn(look.now)
        self._keeper.heard(look.database)
        if sign:
            self._signed = now
        self.pass_on(look)
        await self._attend(look)
        if self.aside is not None and not self._stopping:
            self.aside.offer(look.duties)
        return await self._take() if look.claimable or self._watch.lapsed else 0

    def pass_on(self, look: Look) -> None:
        """The runs that are driven here and were sent something look into their inbox now, not at the next renewal."""
        for drive in self._drives.values() if look.unread else ():
            if (drive.claimed.row.tenant, drive.claimed.row.id) in look.unread:
                drive.grip.unread()
                self._told += 1

    async def _hinted(self) -> int:
        """As `claim`, without a look before it unless one is due; a hint that finds nothing to claim makes one due."""
        if self._watch.left() > 0:
            if self._free() <= 0:
                self._watch.hasten(
                    FULL_S
                )  # there is nothing to claim for, but to a run that is here something may have come
                return 0
            # Where there is room for more than one claim takes, nothing that is more urgent is kept waiting by this.
            if found := await self._take(quick=self._free() > MOST_AT_ONCE):
                self._watch.hasten(self.pace.poll_least)  # the hint may have been about something else as well
                return found
        return await self.claim()

    async def _take(self, *, quick: bool = False) -> int:
        if self._free() <= 0:
            return 0
        self._turn += 1
        claim, asked_at, self._more = self._wish(quick=quick), self.kit.clock.boottime(), False
        claimed = await self.store.claim(claim, now=self.kit.clock.now())
        for one in claimed:
            self.kit.time.learn(one.now)
            self._keeper.heard(one.database)
            self._begin(one, asked_at)
        self._more = len(claimed) == claim.limit
        return len(claimed)

    def _free(self) -> int:
        return self.pace.concurrency - len(self._drives)

    def _wish(self, *, quick: bool = False) -> Claim:
        return Claim(
            self.owner, {name: self.kit.code for name in self.agents}, min(max(self._free(), 1), MOST_AT_ONCE),
            self.pace.lease_ms, self._watch.ripe, self.pace.queues, self.pace.tenants, quick, self._versions(),
            int(self.kit.grace_s * 1000),
            self._turn, self.replaced.others if self.replaced is not None else frozenset(),
        )  # fmt: skip

    def _versions(self) -> dict[str, str]:
        return {name: agent.version for name, agent in self.agents.items()}

    async def idle(self) -> None:
        """Return when nothing that was claimed is running any more."""
        while self._drives:
            await asyncio.wait(self._drives)

    def running(self) -> list[RunId]:
        """The runs that this worker is driving now."""
        return [drive.claimed.row.id for drive in self._drives.values()]

    def _whose(self, task: asyncio.Task[object] | None) -> str:
        """The run whose code runs in a task, if it is one of ours. Asked from another thread while the loop stands."""
        for driving, drive in list(self._drives.items()):
            attempt = drive.attempt
            scopes = [] if attempt is None else list(attempt.scopes.values())
            if task is driving or any(task in (scope.task, scope.sending) for scope in scopes):
                return drive.claimed.row.id if task is not None else ""
        return ""

    def _begin(self, claimed: Claimed, asked_at: float) -> None:
        agent = self.agents[claimed.row.agent]
        if claimed.row.rolls_back is not None:
            agent = RollbackSpec(agent)
        drive = Drive(
            self.kit, self._keeper, self.owner, self._harness, agent, claimed, asked_at, self.pace.max_lapses
        )  # fmt: skip
        drive.losses = self._losses
        if claimed.why == "takeover":
            log.info("run %s: taken over at epoch %d", claimed.row.id, claimed.authority.epoch)
        task = asyncio.ensure_future(self._drive(drive))
        self._drives[task] = drive
        task.add_done_callback(self._ended)

    async def _drive(self, drive: Drive) -> None:
        try:
            verdict = await drive.run()
        except Exception:
            # A defect of ours: the lease lapses, another worker tries, and repeated lapses are poison.
            log.exception("run %s: driving it failed; its lease will lapse", drive.claimed.row.id)
            return
        log.debug("run %s: %s", drive.claimed.row.id, verdict)
        if self.on_verdict is not None:
            self.on_verdict(drive.claimed, verdict)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._drives.pop(task, None)
        self._waking.wake()

    async def _attend(self, look: Look) -> None:
        control = self._control
        for one in look.attention:
            if one.why == "deadline":
                await _guarded(control.expire, one.tenant, one.run)
            elif one.why == "stranded":
                await _guarded(control.strand, one.tenant, one.run)
            elif one.why == "late":
                await _guarded(control.look_after, one.tenant, one.run)
        for tenant, run in self._watch.unserved:
            await _guarded(control.stand_in, tenant, run)
        for tenant, run in self._watch.forsaken:
            await _guarded(control.free, tenant, run)

    async def _patiently_announce(self) -> None:
        serves = {name: self.kit.code for name in self.agents}
        row = WorkerRow(self.owner, os.getpid(), serves, 0, 0, self._versions())
        while not self._stopping:
            try:
                await self.store.announce(row, now=self.kit.clock.now())
                return
            except StoreError as error:
                log.warning("the store does not answer, trying again: %s", error)
                await self.kit.clock.sleep(RETRY_S * (0.5 + self.kit.clock.random()))

    async def _drain(self) -> None:
        """Calls in flight reach their record, bounded; one that does not keeps its lease until this process is gone."""
        for drive in self._drives.values():
            drive.drain()
        if self.aside is not None:
            await self.aside.end(self.pace.drain)
        if self._drives:
            await asyncio.wait(list(self._drives), timeout=self.pace.drain)
        if self._drives:
            kept = ", ".join(self.running())
            log.error("still in flight after %g s: %s; kept until they end or this process does", self.pace.drain, kept)
        if self.kit.streams is not None:
            await self.kit.streams.end()
        try:
            await self.store.leave(self.owner)
        except StoreError as error:
            log.warning("could not take leave: %s", error)


async def _guarded(act: Callable[[Tenant, RunId], Awaitable[None]], tenant: Tenant, run: RunId) -> None:
    """Act on a run that is not driven here. Whatever goes wrong is tried again after the next look."""
    try:
        await act(tenant, run)
    except OutliveError as error:
        log.warning("run %s: %s", run, error)
    except Exception:
        log.exception("run %s could not be looked after", run)


def _call_soon(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(what)


def owner_name(clock: Clock) -> Owner:
    """A name for this start of this process that nobody can guess or reuse."""
    return Owner(f"w-{clock.token()[:20]}")


def exit_hard(code: int) -> None:
    """Leave at once: calls in threads cannot be stopped, and their leases must lapse with the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
