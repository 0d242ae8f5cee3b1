"""What ends a worker's wait before its time: news of its own, and the hints of the store.

A hint is never needed and never believed: it makes a worker look sooner. While hints lead to nothing (they may be about
runs that others serve, or that others were faster to take) they are heeded less and less often.
"""

from __future__ import annotations

import asyncio

from outlive.model.clock import Clock

QUIET_MOST_S = 0.25
# After so long without one, the next hint is heeded at once.
CALM_S = 1.0


class Waking:
    """Belongs to one worker and its event loop. `hinted` says whether the store's hints arrive."""

    def __init__(self, clock: Clock, *, least: float) -> None:
        self.hinted = True
        self._clock, self._least = clock, least
        self._woken = self._told = self._heard = self._by_hint = False
        self._quiet, self._quiet_until = 0.0, 0.0
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Something here has changed: a run has ended, or the worker is to stop."""
        self._woken = True
        self._changed.set()

    def told(self) -> None:
        """Somebody in this process knows that there is something to claim."""
        self._told = True
        self._changed.set()

    def heard(self, *, hinted: bool) -> None:
        """A hint of the store, and whether more of them can be relied on."""
        self.hinted = hinted
        if not self._heard:
            self._heard = True
            self._changed.set()

    def take(self) -> bool:
        """Whether there may be something to claim. All that has come so far is thereby taken in."""
        now = self._clock.boottime()
        self._by_hint = self._heard and now >= self._quiet_until
        if self._by_hint and now - self._quiet_until > CALM_S:
            self._quiet = 0.0
        told = self._told or self._by_hint
        self._woken = self._told = self._heard = False
        return told

    def led_to(self, found: int, told: int = 0) -> None:
        """What came of it: how many runs were claimed, and how many that are driven here were told of a message.

        However many messages come, they are looked for once in `least`.
        """
        if found:
            self._quiet = 0.0
        elif told:
            self._quiet, self._quiet_until = 0.0, self._clock.boottime() + self._least
        elif self._by_hint:
            self._quiet = min(max(2 * self._quiet, self._least), QUIET_MOST_S)
            self._quiet_until = self._clock.boottime() + self._quiet

    async def wait(self, seconds: float) -> None:
        """Return after so many seconds, or when something has come that cannot wait so long."""
        until = self._clock.boottime() + seconds
        while True:
            now = self._clock.boottime()
            left = min(until, self._quiet_until if self._heard else until) - now
            if self._woken or self._told or left <= 0:
                return
            self._changed.clear()
            waiting = [asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(self._clock.sleep(left))]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waiting:
                    one.cancel()
