"""What a worker does beside driving runs: in one task, never more, the duties that its looks have found due.

Whatever goes wrong there is logged and tried again; no run waits for it.
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
        self._task: asyncio.Task[None] | None = None

    def offer(self, due: Sequence[str]) -> None:
        """Begin to do what is due, unless something is being done. Never waits."""
        if (self._task is None or self._task.done()) and (due or not self._begun):
            self._task = asyncio.ensure_future(self._do(tuple(due)))

    async def end(self, patience: float) -> None:
        """Let what is being done end, for so many seconds at most; then it is cut short, and its lease lapses."""
        self._rota.stop()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=patience)
            self._task.cancel()
            await asyncio.wait([self._task])

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
