"""The worker processes: started by the command that anyone would use, killed by the signal that nobody hears."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
CONCURRENCY = 4


def program() -> str:
    """How one calls the command from a shell that stands where this process does."""
    beside = Path(sys.executable).with_name("outlive")
    here = Path.cwd()
    return shlex.quote(str(beside.relative_to(here) if beside.is_relative_to(here) else beside))


class Fleet:
    """Keeps `size` workers alive. As a context manager it leaves no process behind."""

    def __init__(self, directory: Path, size: int, environment: dict[str, str]) -> None:
        self.started = 0
        self._size = size
        self._environment = environment
        self._output = (directory / "workers.log").open("ab")
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> list[int]:
        return list(self._workers)

    def fill(self) -> list[int]:
        """Start workers until there are enough of them; returns the pids of the new ones."""
        fresh = [self._start() for _ in range(self._size - len(self._workers))]
        return [worker.pid for worker in fresh]

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait until it is gone."""
        worker = self._workers.pop(pid)
        worker.kill()
        worker.wait()

    def fallen(self) -> list[int]:
        """Those that have died by somebody else's hand since the last look."""
        dead = [pid for pid, worker in self._workers.items() if worker.poll() is not None]
        for pid in dead:
            del self._workers[pid]
        return dead

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "outlive", "worker", "--concurrency", str(CONCURRENCY)]
        # Apart from the terminal's process group: Ctrl-C reaches the demo alone, which then cleans up.
        worker = subprocess.Popen(
            command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stdout=self._output,
            stderr=subprocess.STDOUT, process_group=0,
        )  # fmt: skip
        self._workers[worker.pid] = worker
        self.started += 1
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers.values():
            worker.terminate()
        for worker in self._workers.values():
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.send_signal(signal.SIGKILL)
                worker.wait()
        self._output.close()
