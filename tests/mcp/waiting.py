"""Waiting for what a real process does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.cli.waiting import PATIENCE

T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T | None]]) -> T:
    """What `ask` gives once that is something."""
    for _ in range(int(PATIENCE / 0.05)):
        found = await ask()
        if found is not None:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("what was waited for did not come")
