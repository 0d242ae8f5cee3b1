"""Waiting that a cancellation does not cut short: for a commit on its way, whose outcome its caller must learn.

It costs no task and no turn of the event loop: the future refuses to be cancelled, so that the task that awaits it is
woken by the outcome and not before.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


class Certain(asyncio.Future[T]):
    """A future that nobody can cancel. Await it through `outcome`."""

    def cancel(self, msg: object | None = None) -> bool:
        """Refuse: whoever wanted to cancel the task that awaits this waits for the outcome as well."""
        return False


async def outcome(future: Certain[T]) -> T:
    """The result. A cancellation of the caller meanwhile is held back and delivered where the caller waits next."""
    try:
        return await future
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or not future.done():
            raise
        # The same cancellation once more: it is counted once, and comes with the next wait.
        task.uncancel()
        task.cancel()
        return future.result()


async def turn() -> None:
    """Let everything else that is ready have its turn."""
    future: Certain[None] = Certain()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await outcome(future)
