"""A clock that stands still until it is told to go on: time, randomness and identity that are the same in every run."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
from datetime import timedelta

START = 1_750_000_000_000


class ManualClock:
    """A `Clock` for one event loop. Time may be read from any thread; `advance` and `sleep` belong to the loop."""

    def __init__(self, *, now: int = START, seed: str = "") -> None:
        self._start = self._now = now
        self._seed = seed
        self.wall_ahead = timedelta()
        self._tokens, self._numbers, self._order = itertools.count(1), itertools.count(1), itertools.count()
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []

    def boottime(self) -> float:
        """Seconds since the clock was made, and a day: long enough that nothing is before the start of the machine."""
        return 86_400 + (self._now - self._start) / 1000

    def now(self) -> int:
        """Milliseconds since 1970, as the stores are told."""
        return self._now

    def wall(self) -> int:
        """The same by this machine's own clock, which is ahead of it by `wall_ahead`."""
        return self.now() + round(self.wall_ahead / timedelta(milliseconds=1))

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has passed the time; a sleep of nothing lets other tasks have their turn."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if seconds <= 0:
            future.get_loop().call_soon(_wake, future)
        else:
            # Rounded up: whoever sleeps until a time must not find itself a fraction of a millisecond before it.
            due = self._now + max(1, -int(-seconds * 1000 // 1))
            heapq.heappush(self._sleepers, (due, next(self._order), future))
        await future

    def random(self) -> float:
        """The next of a fixed sequence of numbers in [0, 1)."""
        return int(self._digest("number", next(self._numbers))[:13], 16) / 16**13

    def token(self) -> str:
        """The next of a fixed sequence of tokens; two clocks of one seed give the same."""
        return self._digest("token", next(self._tokens))[:32]

    def advance(self, by: timedelta) -> None:
        """Let time pass at once, and wake who has slept enough, longest due first."""
        self._now += round(by / timedelta(milliseconds=1))
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _wake(heapq.heappop(self._sleepers)[2])

    def next_sleeper(self) -> timedelta | None:
        """How long until the next sleeper is due; None if nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return timedelta(milliseconds=self._sleepers[0][0] - self._now) if self._sleepers else None

    def _digest(self, kind: str, number: int) -> str:
        return hashlib.sha256(f"{self._seed}/{kind}/{number}".encode()).hexdigest()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
