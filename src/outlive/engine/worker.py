"""A worker: claims runs that it serves, drives many at once, and gives them back in good order when it is told to stop.

It takes over an expired lease only after it has itself watched it unrenewed for a whole renewal interval of that lease,
on its own monotonic clock; a gap in its own sight of the store starts the watch again. So a clock jump, a restart of
the database or a laptop's sleep moves no run, and a dead worker's runs move within a lease and a second.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from outlive.engine.attempt import Kit
from outlive.engine.authority import Keeper
from outlive.engine.control import Control
from outlive.engine.definition import AgentSpec
from outlive.engine.drive import Drive, Harness, Verdict
from outlive.model.clock import Clock
from outlive.model.errors import OutliveError, StoreError
from outlive.model.ids import Owner, RunId, Tenant
from outlive.store.port import Claim, Claimed, Store, WorkerRow

log = logging.getLogger("outlive.worker")


@dataclass(frozen=True, slots=True)
class Pace:
    """How a worker behaves in time (seconds, but for `lease_ms`), and whose runs of which queues it claims."""

    lease_ms: int = 30_000
    concurrency: int = 100
    poll_least: float = 0.02
    poll_most: float = 0.5
    drain: float = 30.0
    stall_limit: float = 300.0
    max_lapses: int = 10
    queues: tuple[str, ...] = ("default",)
    tenants: tuple[Tenant, ...] | None = None


@dataclass(slots=True)
class Watch:
    """Which leases this worker has seen unrenewed, and since when on its own clock."""

    clock: Clock
    gap_s: float = 2.0
    forsaken: list[tuple[Tenant, RunId]] = field(default_factory=list)
    """Runs whose lease has been seen unrenewed for so long that whoever could drive them would have taken them."""
    _since: dict[tuple[Tenant, RunId, int, int], float] = field(default_factory=dict)
    _looked: float | None = None

    async def look(self, store: Store) -> frozenset[tuple[Tenant, RunId, int]]:
        """Look once; the leases that may be taken over as far as our own watching goes."""
        now = self.clock.boottime()
        overdue = await store.overdue(now=self.clock.now())
        if self._looked is None or now - self._looked > self.gap_s:
            self._since.clear()
        self._looked = self.clock.boottime()
        seen = {(one.tenant, one.run, one.epoch, one.renewed_at): one for one in overdue}
        self._since = {key: self._since.get(key, now) for key in seen}
        ready = [one for key, one in seen.items() if now - self._since[key] >= one.lease_ms / 3000]
        self.forsaken = [
            (one.tenant, one.run) for key, one in seen.items() if now - self._since[key] >= 2 * one.lease_ms / 1000
        ]
        return frozenset((one.tenant, one.run, one.epoch) for one in ready)


class Worker:
    """One process's worth of driving runs. `run` serves until `stop`; `once` claims and drives what is there now."""

    def __init__(
        self, store: Store, kit: Kit, agents: Mapping[str, AgentSpec], harness: Harness, pace: Pace, owner: Owner,
    ) -> None:  # fmt: skip
        self.store, self.kit, self.agents, self.pace, self.owner = store, kit, agents, pace, owner
        self.hint = asyncio.Event()
        self.on_verdict: Callable[[Claimed, Verdict], None] | None = None
        self._harness = harness
        self._keeper = Keeper(store, owner, pace.lease_ms, kit.clock, kit.time, pace.stall_limit)
        self._watch = Watch(kit.clock, gap_s=max(2.0, pace.lease_ms / 3000))
        self._control = Control(store, kit.clock, owner)
        self._drives: dict[asyncio.Task[None], Drive] = {}
        self._stopping = False
        self._lingering: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Stop claiming, drain what is running, return from `run`. From the event loop's thread."""
        self._stopping = True
        self.hint.set()
        for drive in self._drives.values():
            drive.drain()

    async def run(self) -> None:
        """Serve until `stop`. A store that cannot be reached is waited for."""
        await self._patiently_announce()
        self._keeper.start(asyncio.get_running_loop())
        pause = self.pace.poll_least
        try:
            while not self._stopping:
                self.hint.clear()
                try:
                    found = await self.claim()
                    pause = self.pace.poll_least if found else min(pause * 1.5, self.pace.poll_most)
                    wake = await self.store.next_wake(now=self.kit.clock.now())
                    # A timer that is due and still there is one that we do not serve: it must not make us spin.
                    wait = min(pause, wake / 1000) if wake else pause
                except StoreError as error:
                    log.warning("the store does not answer, trying again: %s", error)
                    wait = self.pace.poll_most * (0.5 + self.kit.clock.random())
                await self._wait(max(wait, 0.001))
            await self._drain()
        finally:
            if self._drives:
                # What is still in flight keeps its lease until it has its record, or this process is gone.
                lingering = asyncio.ensure_future(self._linger())
                self._lingering.add(lingering)
                lingering.add_done_callback(self._lingering.discard)
            else:
                await asyncio.to_thread(self._keeper.stop)

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
        """Claim what can be claimed now and begin to drive it; look after runs that need no agent code."""
        watched = await self._watch.look(self.store)
        await self._attend()
        free = self.pace.concurrency - len(self._drives)
        if free <= 0:
            return 0
        claim = Claim(
            self.owner, {name: self.kit.code for name in self.agents}, min(free, 20), self.pace.lease_ms, watched,
            self.pace.queues, self.pace.tenants,
        )  # fmt: skip
        asked_at = self.kit.clock.boottime()
        claimed = await self.store.claim(claim, now=self.kit.clock.now())
        for one in claimed:
            self.kit.time.learn(one.now)
            self._begin(one, asked_at)
        return len(claimed)

    async def idle(self) -> None:
        """Return when nothing that was claimed is running any more."""
        while self._drives:
            await asyncio.wait(self._drives)

    def running(self) -> list[RunId]:
        """The runs that this worker is driving now."""
        return [drive.claimed.row.id for drive in self._drives.values()]

    def _begin(self, claimed: Claimed, asked_at: float) -> None:
        agent = self.agents[claimed.row.agent]
        drive = Drive(
            self.kit, self._keeper, self.owner, self._harness, agent, claimed, asked_at, self.pace.max_lapses
        )  # fmt: skip
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
        self.hint.set()

    async def _attend(self) -> None:
        for one in await self.store.attention(now=self.kit.clock.now()):
            try:
                if one.why == "deadline":
                    await self._control.expire(one.tenant, one.run)
                else:
                    await self._control.take_in(one.tenant, one.run)
            except OutliveError as error:
                log.warning("run %s: %s", one.run, error)
            except Exception:
                log.exception("run %s could not be looked after", one.run)
        for tenant, run in self._watch.forsaken:
            try:
                await self._control.free(tenant, run)
            except OutliveError as error:
                log.warning("run %s: %s", run, error)
            except Exception:
                log.exception("run %s could not be given back", run)

    async def _wait(self, seconds: float) -> None:
        waiting = [asyncio.ensure_future(self.hint.wait()), asyncio.ensure_future(self.kit.clock.sleep(seconds))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def _patiently_announce(self) -> None:
        row = WorkerRow(self.owner, os.getpid(), {name: self.kit.code for name in self.agents}, 0, 0)
        while not self._stopping:
            try:
                await self.store.announce(row, now=self.kit.clock.now())
                return
            except StoreError as error:
                log.warning("the store does not answer, trying again: %s", error)
                await self.kit.clock.sleep(self.pace.poll_most)

    async def _drain(self) -> None:
        """Calls in flight reach their record, bounded; one that does not keeps its lease until this process is gone."""
        for drive in self._drives.values():
            drive.drain()
        if self._drives:
            await asyncio.wait(list(self._drives), timeout=self.pace.drain)
        if self._drives:
            log.error("still in flight after %g s: %s; their leases lapse", self.pace.drain, ", ".join(self.running()))
        try:
            await self.store.leave(self.owner)
        except StoreError as error:
            log.warning("could not take leave: %s", error)


def owner_name(clock: Clock) -> Owner:
    """A name for this start of this process that nobody can guess or reuse."""
    return Owner(f"w-{clock.token()[:20]}")


def exit_hard(code: int) -> None:
    """Leave at once: calls in threads cannot be stopped, and their leases must lapse with the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
