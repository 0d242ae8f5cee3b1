"""The only place where the example reads the real clock or spends real time."""

import asyncio
import threading
import time


def epoch_ms() -> int:
    return time.time_ns() // 1_000_000


def pause(ms: int) -> None:
    threading.Event().wait(ms / 1000)


async def tick(seconds: float) -> None:
    """Let others go on for so long, between two looks at something that changes."""
    await asyncio.sleep(seconds)
