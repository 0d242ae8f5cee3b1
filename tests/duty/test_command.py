"""Commands that are told of notifications: what is left of one that had to be ended."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings

from outlive.duty.command import run_command

SLEEPER = (sys.executable, "-c", "import os, signal; os.fork(); signal.pause()")


def left_open() -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        gc.collect()
    return [str(one.message) for one in seen if one.category is ResourceWarning]


def test_nothing_is_left_of_a_command_past_its_time() -> None:
    gc.collect()
    answer = asyncio.run(run_command(SLEEPER, b"{}", within_s=0.3))
    assert not answer.delivered
    assert left_open() == []


def test_nothing_is_left_of_a_command_whose_worker_ends() -> None:
    async def interrupted() -> None:
        telling = asyncio.ensure_future(run_command(SLEEPER, b"{}", within_s=60))
        await asyncio.wait([telling], timeout=0.3)
        telling.cancel()
        await asyncio.wait([telling])

    gc.collect()
    asyncio.run(interrupted())
    assert left_open() == []
