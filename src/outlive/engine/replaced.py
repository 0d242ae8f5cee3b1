"""A worker that serves until others have replaced it: which runs it leaves to them, and when no run needs it any more.

Versions have no order, so what is newer is told by when workers have begun: those with another build that began after
this one count, and only for runs which that build has not diverged from. So no two leave a run to each other.
"""

from __future__ import annotations

from outlive.model.clock import Clock
from outlive.model.ids import Owner
from outlive.store.others import Other, left_to
from outlive.store.port import Claim, WorkerRow
from outlive.store.survey import Seen, Surveyed, open_pages


class Replaced:
    """Looks every third of a lease."""

    def __init__(self, store: Surveyed, clock: Clock, owner: Owner, lease_s: float) -> None:
        self._store, self._clock, self._owner, self._lease_s = store, clock, owner, lease_s
        self._due = clock.boottime()
        self.others: frozenset[Other] = frozenset()
        """Whom runs are left to, since the last look."""

    async def look(self, claim: Claim) -> bool:
        """Whether others are there and no open run needs this worker, which claims so. Raises StoreError."""
        if self._clock.boottime() < self._due:
            return False
        alive = await self._store.workers(within_ms=int(self._lease_s * 2000), now=self._clock.now())
        self.others = newer(alive, self._owner, claim)
        self._due = self._clock.boottime() + self._lease_s / 3
        return bool(self.others) and not await self._needed(claim)

    async def _needed(self, claim: Claim) -> bool:
        async for page in open_pages(self._store):
            if any(needs(seen, claim, self.others) for seen in page):
                return True
        return False


def newer(alive: list[WorkerRow], owner: Owner, claim: Claim) -> frozenset[Other]:
    """What workers that began after this one serve of its agents, with another build. Pure."""
    began = next((one.started_at for one in alive if one.owner == owner), None)
    return frozenset(
        Other(agent, one.versions.get(agent, ""), build)
        for one in alive
        if began is not None and one.started_at > began
        for agent, build in one.serves.items()
        if agent in claim.serves and build != claim.serves[agent]
    )


def needs(seen: Seen, claim: Claim, others: frozenset[Other]) -> bool:
    """Whether the worker that claims so could drive an open run, and none of the others could. Pure."""
    row = seen.row
    if row.agent not in claim.serves or row.queue not in claim.queues:
        return False
    ours = Other(row.agent, claim.versions.get(row.agent, ""), claim.serves[row.agent])
    if not ours.fits(row) or ours.build in seen.diverged or row.tenant not in (claim.tenants or (row.tenant,)):
        return False
    return not left_to(others, row, seen.diverged)
