"""The file beside the database with a number that goes up whenever something may have become claimable.

Whoever commits such a thing counts up afterwards. Where the kernel tells of writes to a file (inotify, Linux) a worker
waits for that, and elsewhere it reads the number again and again: neither needs a statement or a lock. It is only a
hint: a process that dies between its commit and the count, or a file that was deleted, costs time, not a run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path

from outlive.store.hints import never

# Waking up fifty times a second costs about 0.7 % of a core.
PEEK_S = 0.02
_IN_MODIFY = 0x2
_BYTES = 8


class HintFile:
    """One process's view of the number. Used from one thread at a time."""

    def __init__(self, database: Path) -> None:
        self._path = Path(f"{database}-hint")
        self._file: int | None = None

    def count_up(self) -> None:
        """Give a hint. Two who count at once may write the same number: it differs from what was there all the same."""
        with suppress(OSError):
            file = self._opened()
            os.pwrite(file, ((_number(file) + 1) % 2 ** (8 * _BYTES)).to_bytes(_BYTES), 0)

    async def changes(self) -> AsyncGenerator[bool]:
        """As the port's `hints`."""
        changed = asyncio.Event()
        try:
            self._opened()
        except OSError:
            async for hint in never():
                yield hint
        stop = _told_by_kernel(self._path, changed) or _peeking(self._number, changed)
        try:
            while True:
                await changed.wait()
                changed.clear()
                yield True
        finally:
            stop()

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _number(self) -> int | None:
        """The number; None where the file cannot be had."""
        try:
            return _number(self._opened())
        except OSError:
            return None

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._file


def _told_by_kernel(path: Path, changed: asyncio.Event) -> Callable[[], None] | None:
    """Set `changed` at each write to the file. Returns what ends that, None where the kernel does not do it."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    libc, loop = ctypes.CDLL(None), asyncio.get_running_loop()
    events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if events < 0:
        return None
    if libc.inotify_add_watch(events, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(events)
        return None

    def take() -> None:
        with suppress(BlockingIOError):
            os.read(events, 4096)
        changed.set()

    def stop() -> None:
        loop.remove_reader(events)
        os.close(events)

    loop.add_reader(events, take)
    return stop


def _peeking(number: Callable[[], int | None], changed: asyncio.Event) -> Callable[[], None]:
    """Set `changed` whenever another number is read. Returns what ends that."""
    loop, seen = asyncio.get_running_loop(), [number()]

    # A chain of timers: a coroutine that waits anew each time would cost several times as much.
    def peek() -> None:
        timers[0] = loop.call_later(PEEK_S, peek)
        if (found := number()) != seen[0]:
            seen[0] = found
            changed.set()

    timers = [loop.call_later(PEEK_S, peek)]

    def stop() -> None:
        timers[0].cancel()

    return stop


def _number(file: int) -> int:
    return int.from_bytes(os.pread(file, _BYTES, 0))
