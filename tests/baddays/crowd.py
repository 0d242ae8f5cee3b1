"""Many workers in one process, all at once, until it is told to stop. `python -m tests.baddays.crowd 10`

Each has a store and connections of its own, as if it were a process: fifty of those are too heavy for a test.
"""

import asyncio
import logging
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import replace

from outlive import Outlive
from outlive.app import operate
from outlive.app.compose import worker_of
from outlive.app.settings import Settings
from outlive.model.clock import SystemClock
from tests.kills.agents import Deps, app, open_deps


async def serve(deps: Deps, settings: Settings, stop: asyncio.Event) -> None:
    one: Outlive[object] = Outlive()
    assert await operate.reached(one, settings, stop.is_set)
    worker = worker_of(app.registry, one.opened, settings, SystemClock(), deps)
    # Enough for one run each, so that all of them have something to do.
    worker.pace = replace(worker.pace, concurrency=1)
    async with worker.beside():
        await stop.wait()
    await one.close()


async def main(count: int) -> None:
    logging.basicConfig(level=logging.WARNING)
    stop, settings = asyncio.Event(), Settings.load()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncExitStack() as stack:
        deps = await stack.enter_async_context(open_deps())
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for _ in range(count):
            group.create_task(serve(deps, settings, stop))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
