"""The only module that reads time, randomness or identity from the system; everything else is handed a `Clock`.

Two kinds of time: `boottime` measures what we may still do (leases, send windows: it goes on while a laptop sleeps and
never jumps), `now` is what the database is told: None in production, so that the *database's* clock judges.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """Time, waiting, randomness and identity, as an argument."""

    def boottime(self) -> float:
        """Seconds on a clock that never jumps and goes on while the machine sleeps."""
        ...

    def now(self) -> int | None:
        """Milliseconds since 1970 to be used as database time, or None for the database's own clock."""
        ...

    def wall(self) -> int:
        """Milliseconds since 1970 by this machine's clock: to be compared with the database's, never used as it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on this clock."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def token(self) -> str:
        """32 hex digits that nobody can guess."""
        ...


_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The real thing."""

    def boottime(self) -> float:
        """CLOCK_BOOTTIME where the system has it, the monotonic clock elsewhere."""
        return time.clock_gettime(_BOOTTIME)

    def now(self) -> int | None:
        """None: the database's clock judges."""
        return None

    def wall(self) -> int:
        """What everybody who looks at this machine takes for the time; it may jump."""
        return machine_now()

    async def sleep(self, seconds: float) -> None:
        """Wait in real time."""
        await asyncio.sleep(seconds)

    def random(self) -> float:
        """From the system's generator; used for jitter only."""
        return random.random()

    def token(self) -> str:
        """From the system's secure source."""
        return secrets.token_hex(16)


def machine_now() -> int:
    """Milliseconds since 1970 by this machine's clock: to be compared with the database's, never used as it."""
    return time.time_ns() // 1_000_000


def apart(asked: int, there: int, answered: int) -> int:
    """Milliseconds by which another clock, which said `there`, is certainly ahead of this machine's; negative: behind.

    It was asked and had answered at these times of this machine's: what that took is not held against either clock.
    """
    return min(there - asked, 0) or max(there - answered, 0)


def block(seconds: float) -> None:
    """Stop the calling thread: for threads of our own that retry, never for the event loop."""
    time.sleep(seconds)
