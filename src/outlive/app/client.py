"""What the world outside holds of a run: `Handle`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar, cast

from outlive.engine.definition import AgentSpec
from outlive.log import kinds
from outlive.model.clock import Clock
from outlive.model.errors import RunExpired, RunFailed, TimedOut, UndecodableEntry, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunRow
from outlive.store.port import Store

R_co = TypeVar("R_co", covariant=True)

_PAUSE_LEAST, _PAUSE_MOST = 0.01, 0.25
_BACK = 100


class Handle(Generic[R_co]):
    """A run, as the world outside sees it."""

    def __init__(self, store: Callable[[], Store], clock: Clock, agent: AgentSpec, tenant: Tenant, run: RunId) -> None:
        self.id: str = run
        self._store, self._clock, self._agent, self._tenant, self._run = store, clock, agent, tenant, run

    async def status(self) -> str:
        """One of ready, running, waiting, blocked, succeeded, failed, cancelled, expired. Raises UnknownRun."""
        return (await self._row()).status

    async def result(self, *, timeout: timedelta | None = None) -> R_co:
        """Wait for the end and give what the agent returned.

        Raises RunFailed or RunExpired for a run that ended otherwise, TimedOut when `timeout` is over
        (the run goes on), UnknownRun. A blocked run is waited for: a person will let it go on.
        """
        until = None if timeout is None else self._clock.boottime() + timeout.total_seconds()
        pause = _PAUSE_LEAST
        while True:
            row = await self._row()
            if row.ended:
                return await self._outcome(row)
            if until is not None and self._clock.boottime() >= until:
                raise TimedOut(run=self.id, status=row.status, detail=row.detail or row.reason)
            left = pause if until is None else min(pause, max(0.001, until - self._clock.boottime()))
            await self._clock.sleep(left)
            pause = min(pause * 1.5, _PAUSE_MOST)

    async def _row(self) -> RunRow:
        row = await self._store().run(self._tenant, self._run)
        if row is None:
            raise UnknownRun(run=self.id)
        return row

    async def _outcome(self, row: RunRow) -> R_co:
        ended, payload = await last_entry(self._store(), row)
        if ended.status == "succeeded":
            return cast(R_co, self._agent.result.decode(payload or "null", where=f"the result of run {self.id}"))
        if ended.status == "expired":
            raise RunExpired(run=self.id)
        error = ended.error or kinds.ErrorRecord(type=ended.status, message=ended.reason)
        raise RunFailed(run=self.id, type=error.type, message=error.message)


async def last_entry(store: Store, row: RunRow) -> tuple[kinds.Ended, str | None]:
    """The entry that ended a run, and its payload; what came after it are resolutions, evidence and audit."""
    before = row.head.seq
    while before > 0:
        after = max(before - _BACK, 0) - 1
        for entry in reversed(await store.entries(row.tenant, row.id, after=after, limit=_BACK)):
            fact = kinds.read(entry) if entry.kind == kinds.Ended.KIND else None
            if isinstance(fact, kinds.Ended):
                return fact, entry.payload
        before = after + 1
    raise UndecodableEntry(where=f"the log of run {row.id}", why=f"it is {row.status}, but no entry says so")
