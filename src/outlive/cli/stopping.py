"""SIGTERM and SIGINT: the first lets work reach its record, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class Asked:
    """Whether a signal has asked this process to stop, and what is done then."""

    number: int = 0
    _stop: Callable[[], None] | None = None

    @property
    def code(self) -> int:
        """The exit code of a process that a signal stopped before it was done."""
        return 128 + self.number

    def then(self, stop: Callable[[], None]) -> None:
        """Call `stop` at the first signal; at once, if it has come already."""
        self._stop = stop
        if self.number:
            stop()

    def come(self, number: int) -> None:
        """The first signal came. On the event loop."""
        self.number = number
        if self._stop is not None:
            self._stop()


@contextmanager
def on_signal() -> Iterator[Asked]:
    """While the block runs, the first signal is passed on and a second one exits with 128 + its number.

    The handlers do not need the event loop to turn, so a second signal ends a process whose code is stuck.
    """
    loop, asked, came = asyncio.get_running_loop(), Asked(), False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal came
        if came:
            os._exit(128 + number)
        came = True
        loop.call_soon_threadsafe(asked.come, number)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
