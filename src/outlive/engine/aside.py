"""What a worker does beside driving runs: the duties that its looks have found due, each in a task of its own.

A duty that takes long holds up no other. Whatever goes wrong is logged and tried again; no run waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from outlive.model.errors import StoreError

log = logging.getLogger("outlive.worker")


class Rota(Protocol):
    """The duties that a worker offers to do."""

    async def begin(self) -> None:
        """Make them known to the store, once for each start of a worker."""
        ...

    async def serve(self, due: Sequence[str]) -> None:
        """Do those of these that nobody else is faster to take, one after the other."""
        ...

    def stop(self) -> None:
        """Let what is being done come to a good end soon, and begin nothing more."""
        ...


class Aside:
    """Belongs to one worker and its event loop."""

    def __init__(self, rota: Rota) -> None:
        self._rota, self._begun = rota, False
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def offer(self, due: Sequence[str]) -> None:
        """Begin to do each that is due, unless it is being done. Never waits."""
        for name in due if self._begun else ("",):
            task = self._tasks.get(name)
            if task is None or task.done():
                self._tasks[name] = asyncio.ensure_future(self._do(tuple(due) if name == "" else (name,)))

    async def end(self, patience: float) -> None:
        """Let what is being done end, for so many seconds at most; then it is cut short, and its lease lapses."""
        self._rota.stop()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _do(self, due: tuple[str, ...]) -> None:
        try:
            if not self._begun:
                await self._rota.begin()
                self._begun = True
            await self._rota.serve(due)
        except StoreError as error:
            log.warning("a duty could not be done, it is tried again: %s", error)
        except Exception:
            log.exception("a duty could not be done, it is tried again")
