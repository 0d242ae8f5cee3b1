"""The only place where the benchmark spends real time on purpose."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def pause(seconds: float) -> None:
    time.sleep(seconds)


async def tick(seconds: float) -> None:
    """Let others go on for so long."""
    await asyncio.sleep(seconds)


def until(true: Callable[[], bool], *, patience: float = 60.0, every: float = 0.005) -> None:
    """Return when it is true. Raises TimeoutError when patience is over."""
    end = time.monotonic() + patience
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not come")
        time.sleep(every)


def today() -> str:
    return time.strftime("%Y-%m-%d")
