"""The one place where these tests meet real time: a bounded wait for a condition."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def epoch_ms() -> int:
    return time.time_ns() // 1_000_000


def now() -> float:
    return time.monotonic()


async def rest(seconds: float) -> None:
    """What others have to do goes on meanwhile; nothing is concluded from it."""
    await asyncio.sleep(seconds)


async def until(look: Callable[[], Awaitable[T | None]], what: str, *, within: float = 90.0) -> T:
    """What `look` gives once it gives something; AssertionError when it has given nothing for so many seconds."""
    end = time.monotonic() + within
    while True:
        found = await look()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        await asyncio.sleep(0.02)


def nap() -> None:
    """Let another thread or process come forward, in code that must not give up its place on the event loop."""
    time.sleep(0.001)


async def wait_on_the_event_loop(seconds: float) -> None:
    """What an async step must never do: nothing else of its process goes on meanwhile."""
    time.sleep(seconds)  # noqa: ASYNC251 - the misuse under test
