"""Watching the leases of others: when they may be taken over, and when the next look is due.

An expired lease is taken over only after this worker has itself watched it unrenewed for a whole renewal interval of
that lease, on its own monotonic clock; a gap in its own sight of the store starts the watch again. So a clock jump, a
restart of the database or a laptop's sleep moves no run, and a dead worker's runs move within a lease and a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from outlive.model.clock import Clock
from outlive.model.errors import StoreError
from outlive.model.ids import RunId, Tenant
from outlive.store.port import Claim, Look, Overdue, Store


@dataclass(slots=True)
class Watch:
    """Which leases this worker has seen unrenewed, and since when on its own clock.

    Looks are at most `between_s` apart. One that comes later than `gap_s` after the one before was late: meanwhile this
    worker, or its store, was asleep.
    """

    clock: Clock
    between_s: float = 5.0
    gap_s: float = 11.0
    ripe: frozenset[tuple[Tenant, RunId, int]] = frozenset()
    """The leases that may be taken over as far as our own watching goes, once they have expired."""
    lapsed: bool = False
    """Whether one of them has."""
    forsaken: list[tuple[Tenant, RunId]] = field(default_factory=list)
    """Runs whose lease has been seen unrenewed for so long that whoever could drive them would have taken them."""
    unserved: list[tuple[Tenant, RunId]] = field(default_factory=list)
    """Runs that are to end, and that no live worker could serve for two leases: one that was started anew had time."""
    _alone: dict[tuple[Tenant, RunId], float] = field(default_factory=dict)
    _since: dict[tuple[Tenant, RunId, int, int], float] = field(default_factory=dict)
    _looked: float | None = None
    _due: float = -math.inf

    async def look(self, store: Store, claim: Claim, *, sign: bool) -> Look:
        """Look once. Raises StoreError, which is a gap."""
        now = self.clock.boottime()
        try:
            look = await store.look(claim, sign=sign, now=self.clock.now())
        except StoreError:
            self._looked, self._due = None, -math.inf
            raise
        if self._looked is None or now - self._looked > self.gap_s:
            self._since.clear()
            self._alone.clear()
        self._looked = self.clock.boottime()
        seen = {(one.tenant, one.run, one.epoch, one.renewed_at): one for one in look.overdue}
        self._since = {key: self._since.get(key, now) for key in seen}
        ready = [one for key, one in seen.items() if now - self._since[key] >= one.lease_ms / 3000]
        self.ripe = frozenset((one.tenant, one.run, one.epoch) for one in ready)
        self.lapsed = any(one.expires_at <= look.now for one in ready)
        self.forsaken = [
            (one.tenant, one.run) for key, one in seen.items() if now - self._since[key] >= 2 * one.lease_ms / 1000
        ]
        alone = [(one.tenant, one.run) for one in look.attention if one.why == "unserved"]
        self._alone = {run: self._alone.get(run, now) for run in alone}
        self.unserved = [run for run, since in self._alone.items() if now - since >= 2 * claim.lease_ms / 1000]
        due = [self._left(one, now - self._since[key], look.now) for key, one in seen.items()]
        if look.due_ms is not None:
            due.append(look.due_ms / 1000)
        # Counted from the end of the look: the next one must not come a little too early, and find nothing due.
        self._due = self._looked + min([self.between_s, *(left for left in due if left > 0)])
        return look

    def left(self) -> float:
        """How long until the next look is due, by what the last one saw and by the longest time between two."""
        return self._due - self.clock.boottime()

    def hasten(self, seconds: float) -> None:
        """The next look is due in so many seconds at the latest."""
        self._due = min(self._due, self.clock.boottime() + seconds)

    def _left(self, one: Overdue, watched: float, now: int) -> float:
        """Seconds until a lease has been watched long enough and has expired."""
        return max(one.lease_ms / 3000 - watched, (one.expires_at - now) / 1000)
