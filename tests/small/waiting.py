"""The one place where these tests meet real time: bounded waits for other processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

PATIENCE_S = 120.0


def nap() -> None:
    """Between two looks at what another process does."""
    time.sleep(0.01)


async def until(look: Callable[[], Awaitable[bool]], what: str) -> None:
    """Return once it is so."""
    end = time.monotonic() + PATIENCE_S
    while not await look():
        assert time.monotonic() < end, f"not within {PATIENCE_S:g} s: {what}"
        await asyncio.sleep(0.01)
