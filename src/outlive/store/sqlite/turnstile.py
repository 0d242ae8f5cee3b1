"""The turnstile before the write lock: two lock files, so that each process gets its turn.

A process takes `queue`, then `turn`, then lets `queue` go; `turn` is held until after the commit. Whoever holds
`queue` is the only one who waits for `turn`, so the process that has just committed cannot take it again before it.
The kernel frees both when a process dies.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlive.model.errors import StoreBusy, StoreUnavailable


class Turnstile:
    """One process's place in the queue of writers. Used by one thread at a time."""

    def __init__(self, database: Path, *, store: str, wait: float) -> None:
        self._queue_path, self._turn_path = Path(f"{database}-queue"), Path(f"{database}-turn")
        self._database, self._store, self._wait = database, store, wait
        self._files: tuple[int, int] | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the turn. Raises StoreBusy, naming the process in front if it is known, after the longest wait."""
        queue, turn = self._opened()
        if not _try(queue):
            self._wait_for(queue, turn)
        elif _try(turn):
            fcntl.flock(queue, fcntl.LOCK_UN)
        else:
            self._wait_for(queue, turn)
        try:
            yield
        finally:
            fcntl.flock(turn, fcntl.LOCK_UN)

    def taken(self) -> bool:
        """Have the turn if nobody is there, without waiting; until `let_go`."""
        queue, turn = self._opened()
        if not _try(queue):
            return False
        taken = _try(turn)
        fcntl.flock(queue, fcntl.LOCK_UN)
        return taken

    def let_go(self) -> None:
        """Give back what `taken` gave."""
        fcntl.flock(self._opened()[1], fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files; anything held is let go."""
        files, self._files = self._files, None
        for file in files or ():
            os.close(file)

    def busy(self) -> StoreBusy:
        """The error of someone who has waited too long."""
        pid = holder(self._turn_path, self._database)
        who = f"process {pid} holds it" if pid else "another process holds it"
        return StoreBusy(store=self._store, why=f"{who} for more than {self._wait:g} s")

    def _opened(self) -> tuple[int, int]:
        if self._files is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            try:
                self._files = os.open(self._queue_path, flags, 0o666), os.open(self._turn_path, flags, 0o666)
            except OSError as error:
                raise StoreUnavailable(store=self._store, why=f"its lock file: {error}") from error
        return self._files

    def _wait_for(self, queue: int, turn: int) -> None:
        # A blocking flock cannot be given a time limit, and asking again and again starves. So a thread waits. When it
        # is given up, it keeps the files that it waits with, and closes them (which frees the locks) when it is done.
        wait = _Wait(queue, turn)
        if not wait.join(self._wait):
            self._files = None
            raise self.busy()


class _Wait:
    def __init__(self, queue: int, turn: int) -> None:
        self._queue, self._turn = queue, turn
        self._decided = threading.Lock()
        self._got, self._given_up = threading.Event(), False
        threading.Thread(target=self._run, name="outlive-turnstile", daemon=True).start()

    def join(self, seconds: float) -> bool:
        if self._got.wait(seconds):
            return True
        with self._decided:
            self._given_up = not self._got.is_set()
        return not self._given_up

    def _run(self) -> None:
        fcntl.flock(self._queue, fcntl.LOCK_EX)
        if not self._given_up:
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            fcntl.flock(self._queue, fcntl.LOCK_UN)
        with self._decided:
            if not self._given_up:
                self._got.set()
                return
        os.close(self._queue)
        os.close(self._turn)


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holder(turn: Path, database: Path) -> int | None:
    """The process that keeps others from writing, as far as the kernel tells: by the turnstile, or past it."""
    try:
        locks = Path("/proc/locks").read_text("utf-8").splitlines()
        places = [(f":{turn.stat().st_ino}", "FLOCK"), (f":{Path(f'{database}-shm').stat().st_ino}", "POSIX")]
    except OSError:
        return None
    for place, kind in places:
        for line in locks:
            fields = line.split()
            # SQLite's write lock in WAL mode is byte 120 of the shared memory file.
            if len(fields) == 8 and fields[1] == kind and fields[3] == "WRITE" and fields[5].endswith(place):
                if kind == "FLOCK" or int(fields[6]) <= 120 <= _end(fields[7]):
                    return int(fields[4]) or None
    return None


def _end(text: str) -> float:
    return float("inf") if text == "EOF" else int(text)
