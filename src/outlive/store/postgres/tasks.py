"""Tasks that go on when their caller does not (a commit on its way, a rollback); a store that closes waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class Tasks:
    """Started outside of any group, because no caller owns them; `join` answers for their end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Begin; whoever wants to know how it went is told by the work itself."""
        self._start(work)

    async def certainly(self, work: Coroutine[object, object, None]) -> None:
        """See the work through, also when the caller is cancelled meanwhile."""
        await asyncio.shield(self._start(work))

    async def join(self) -> None:
        """Wait until all have ended."""
        while self._running:
            await asyncio.wait(self._running)

    def _start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task
