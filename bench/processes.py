"""Processes of the benchmark: started with a role, told `go` and `stop` by line, answering in lines of JSON.

`time.perf_counter` is one clock for all processes of a machine, so that their moments can be compared.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0


class Child:
    """A process that has said that it is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, word: str) -> None:
        """One line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, float]:
        """Its next line. Raises RuntimeError when it has ended instead, or says nothing for two minutes."""
        try:
            line = self._lines.get(timeout=PATIENCE)
        except queue.Empty:
            raise RuntimeError(f"a process of the benchmark says nothing for {PATIENCE:g} s") from None
        if not line:
            raise RuntimeError(f"a process of the benchmark ended with {self._process.wait()}")
        told: dict[str, float] = json.loads(line)
        return told

    def ask(self, word: str) -> dict[str, float]:
        """Say and hear."""
        self.say(word)
        return self.hear()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()


@contextmanager
def child(role: str, *words: str, environment: Mapping[str, str] | None = None) -> Iterator[Child]:
    """A process in this role, ready; killed at the end of the block if it is still there."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.child", role, *words],
        cwd=ROOT, env=clean() | dict(environment or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        made = Child(process)
        try:
            made.hear()
            yield made
        finally:
            made.kill()


def cpu_of_tree(pid: int) -> float:
    """Seconds of processor that a process and its descendants have used, ended ones that were waited for included."""
    used = [times for child_of, times in _processes() if pid in child_of]
    return sum(used) / os.sysconf("SC_CLK_TCK")


def memory_mb() -> float:
    """What this process holds in memory now, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def _processes() -> list[tuple[set[int], int]]:
    """Each process: itself and all those above it, and its ticks of processor."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split() if folder.name.isdigit() else []
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields:
            parents[int(folder.name)], ticks[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return [(_line_of(one, parents), used) for one, used in ticks.items()]


def _line_of(pid: int, parents: dict[int, int]) -> set[int]:
    line = set[int]()
    while pid in parents and pid not in line:
        line.add(pid)
        pid = parents[pid]
    return line


def clean() -> dict[str, str]:
    """The environment without what would set up our program, or Python, otherwise than by default."""
    changing = ("OUTLIVE_", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(changing)}
