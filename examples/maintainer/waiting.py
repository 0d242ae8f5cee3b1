"""The only place where the example spends real time."""

import asyncio


async def tick(seconds: float) -> None:
    """Let others go on for so long, between two looks at something that changes."""
    await asyncio.sleep(seconds)
