"""A worker in this process for the command line: served in the background of a block, drained at its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NoReturn, cast

from outlive.app import inspect
from outlive.app.compose import attend_duties, attend_streams, worker_of
from outlive.app.operate import opened
from outlive.app.outlive import Outlive
from outlive.app.settings import Settings
from outlive.engine.replaced import Replaced
from outlive.engine.worker import Worker, exit_hard
from outlive.model.clock import SystemClock
from outlive.model.errors import StoreError, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunRow
from outlive.store.port import Claimed, Store
from outlive.store.survey import Surveyed

log = logging.getLogger("outlive.worker")
_PAUSE_LEAST, _PAUSE_MOST = 0.02, 0.25


@dataclass(slots=True)
class Serving:
    """The worker of this process. `over` is done when it has drained, or with the error that ended it."""

    store: Store
    worker: Worker
    over: asyncio.Task[None]
    _group: asyncio.TaskGroup

    @property
    def owner(self) -> str:
        """The name that this worker's leases carry."""
        return self.worker.owner

    def stop(self) -> None:
        """Claim no more; let the calls in flight reach their record. From the event loop's thread."""
        self.worker.stop()

    def warn_of_ends(self) -> None:
        """From here on one WARNING is logged for each run that fails or blocks here."""
        self.worker.on_verdict = self._ended

    def _ended(self, claimed: Claimed, verdict: str) -> None:
        if verdict in ("ended", "blocked"):
            self._group.create_task(self._warn(claimed.row))

    async def _warn(self, row: RunRow) -> None:
        try:
            found = await self.store.run(row.tenant, row.id)
        except StoreError:
            return
        if found is not None and found.status == "failed":
            log.warning("run %s failed: %s", found.id, found.detail)
        elif found is not None and found.status == "blocked":
            log.warning("run %s is blocked: %s: %s", found.id, found.reason, found.detail)

    async def seek(self, tenant: str, run: str) -> None:
        """Look for this run now, also where it waits in another queue than those that are served."""
        row = await self.store.run(Tenant(tenant), RunId(run))
        if row is not None and row.queue not in self.worker.pace.queues:
            self.worker.pace = replace(self.worker.pace, queues=(*self.worker.pace.queues, row.queue))
        version = self.worker.agents[row.agent].version if row is not None and row.agent in self.worker.agents else ""
        if row is not None and row.pin not in (None, version):
            why = f"is pinned to version {row.pin} of {row.agent}, of which this application has version {version}"
            log.warning("run %s %s: it waits for another worker", row.id, why)
        self.worker.hint()

    def left(self) -> bool:
        """Whether something is still running after the drain, which only the end of the process can stop."""
        return bool(self.worker.running()) or len(asyncio.all_tasks()) > 1

    async def watch(self, tenant: str, run: str, seen: Callable[[inspect.Line], None]) -> RunRow:
        """Show a run's log as it grows; returns when the run has ended, stands blocked, or this worker is stopped."""
        after, pause = -1, _PAUSE_LEAST
        while True:
            row = await self.store.run(Tenant(tenant), RunId(run))
            if row is None:
                raise UnknownRun(run=run)
            before = after
            async for line in inspect.lines(self.store, row.tenant, run, after=after):
                seen(line)
                after = line.seq
            if row.ended or await self._stands(row):
                return row
            if self.over.done():
                self.over.result()
                return row
            pause = _PAUSE_LEAST if after > before else min(pause * 1.5, _PAUSE_MOST)
            await asyncio.wait([self.over], timeout=pause)

    async def _stands(self, row: RunRow) -> bool:
        """Whether a run is blocked and nothing on its way lets this worker go on with it."""
        if row.status != "blocked" or await self.store.unread(row.tenant, row.id):
            return False
        tried = {one.code for one in await self.store.divergences(row.tenant, row.id)}
        return row.reason != "diverged" or self.worker.kit.code in tried


@asynccontextmanager
async def serving(
    app: Outlive[object], settings: Settings, *, queues: tuple[str, ...], tenants: tuple[str, ...] | None,
    until_replaced: bool = False,
) -> AsyncIterator[Serving]:  # fmt: skip
    """Open the store and what the application depends on, serve while the block runs, then drain and close.

    With `until_replaced` it stops by itself when newer workers can drive all that is left. Raises what opening them
    raises. After it, `left()` says whether the process has to be left hard.
    """
    try:
        async with opened(app, settings) as store, app.deps() as deps, asyncio.TaskGroup() as group:
            worker = worker_of(
                app.registry, store, settings, SystemClock(), deps, secrets=app.secrets, roles=app.roles
            )  # fmt: skip
            attend_duties(worker, store, settings, SystemClock())
            attend_streams(worker, store, SystemClock())
            whose = None if tenants is None else tuple(Tenant(one) for one in tenants)
            worker.pace = replace(worker.pace, queues=queues, tenants=whose)
            if until_replaced:
                surveyed = cast(Surveyed, store)
                worker.replaced = Replaced(surveyed, SystemClock(), worker.owner, settings.lease.total_seconds())
            here = Serving(store, worker, group.create_task(worker.run()), group)
            try:
                yield here
            finally:
                here.stop()
                await here.over
    except BaseExceptionGroup as several:
        # A group of tasks wraps what its block raises; whoever asked wants to see the error itself.
        raise several.exceptions[0] from None


def leave(code: int) -> NoReturn:
    """End this process at once, with what has been printed: calls in threads end with it, and their leases lapse."""
    exit_hard(code)
    raise AssertionError
