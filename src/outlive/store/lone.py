"""Whether a run is alone with its store: then its append is waited for where it is made, for a moment at most, instead
of going round the event loop or through another thread, which costs as much as a fast disk's flush.

Only while commits are quick; and the loop still gets its turn, every few such appends and whenever another run appends.
"""

from __future__ import annotations

from outlive.model.clock import Clock
from outlive.model.ids import RunId, Tenant
from outlive.store.certain import turn

# The loop gets its turn after so many appends that were waited for in place.
UNTURNED = 8
# After so many in a row that took longer than this, which is a slow disk or a server far away, the next ones are waited
# for as those of many runs are.
QUICK_S = 0.005
MOST_SLOW = 3
LEFT_ALONE = 100


class Lone:
    """What the appends of one store say about who else is there, and how long they take."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[Tenant, RunId] | None = None
        self._began, self._unturned, self._slow, self._skip = 0.0, 0, 0, 0

    def begin(self, tenant: Tenant, run: RunId) -> bool:
        """Note an append; whether it may be waited for in place: the one before was of the same run."""
        before, self._last = self._last, (tenant, run)
        self._skip = max(0, self._skip - 1)
        if self._skip or before != self._last:
            return False
        self._began = self._clock.boottime()
        return True

    async def end(self) -> None:
        """After an append that was waited for in place. A cancellation of the caller is held back."""
        self._slow = self._slow + 1 if self._clock.boottime() - self._began > QUICK_S else 0
        if self._slow == MOST_SLOW:
            self._slow, self._skip = 0, LEFT_ALONE
        self._unturned += 1
        if self._unturned == UNTURNED:
            self._unturned = 0
            await turn()
