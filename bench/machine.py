"""What was measured on: the facts without which a figure means nothing."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import psycopg
from psycopg import pq

from bench.figures import short
from bench.processes import cpu_of_tree
from bench.waiting import today
from outlive.store.postgres.connection import place_of


def facts() -> dict[str, str]:
    """Date, machine and versions."""
    return {
        "date": today(),
        "machine": f"{os.cpu_count()} cores ({_processor()}), {_memory()} GB, {platform.system()} {platform.release()}",
        "disk": f"{_filesystem(tempfile.gettempdir())}; one write of 4 KB and its sync: {short(sync_ms())} ms",
        "Python": platform.python_version(),
        "outlive": version("outlive"),
        "SQLite": sqlite3.sqlite_version,
        "psycopg": f"{version('psycopg')} ({pq.__impl__})",
        "pydantic": version("pydantic"),
    }


class Bystanders:
    """What other processes use of the processor while we measure. Their load makes a sync slow, and a slow sync hides
    what the engine adds; how busy the machine was before says nothing of what came later.
    """

    def __init__(self) -> None:
        self._before, self._ours_before = _ticks(), cpu_of_tree(os.getpid())

    def share(self) -> float:
        """Per cent of all processors, since this was made."""
        busy, every = (now - before for now, before in zip(_ticks(), self._before, strict=True))
        ours = (cpu_of_tree(os.getpid()) - self._ours_before) * os.sysconf("SC_CLK_TCK")
        return max(0.0, busy - ours) * 100 / every if every else 0.0


def _ticks() -> tuple[float, float]:
    """Ticks in which the processors of this machine did something, and all of them."""
    spent = [int(value) for value in _lines("/proc/stat")[0].split()[1:9]]
    return sum(spent) - spent[3] - spent[4], sum(spent)


def server_version(url: str) -> str:
    """What the server says that it is."""
    with psycopg.connect(place_of(url).conninfo) as connection:
        return str(connection.info.parameter_status("server_version"))


def sync_ms() -> float:
    """The median milliseconds for one write to be on the disk that is measured."""
    took = []
    with tempfile.TemporaryFile() as file:
        for _ in range(100):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def _processor() -> str:
    found = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return found[0].partition(":")[2].strip() if found else platform.machine()


def _memory() -> str:
    found = [line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return f"{int(found[0]) / 2**20:.0f}" if found else "?"


def _filesystem(folder: str) -> str:
    """The kind of the mount that a folder is on."""
    mounts = [line.split()[1:3] for line in _lines("/proc/mounts")]
    above = [(len(where), kind) for where, kind in mounts if Path(folder).is_relative_to(where)]
    return max(above)[1] if above else "?"


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines() if Path(path).exists() else []
