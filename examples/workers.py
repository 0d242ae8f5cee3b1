"""Worker processes of an example, and how they die: by SIGKILL, as in a power failure. And how a demo ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console

from outlive.errors import OutliveError


class Worker:
    """One worker at a time; when it was killed, another one goes on."""

    def __init__(self, app: str, environment: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "outlive", "worker", "--app", app]
        self._environment = {**os.environ, "OUTLIVE_LEASE": "2s", "PYTHONUNBUFFERED": "1", **environment}
        self._process = self._started()

    def replace(self) -> None:
        """Kill it, and start another one."""
        self.kill()
        self._process = self._started()

    def kill(self) -> None:
        """Kill it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(self._command, env=self._environment, stdout=quiet, stderr=quiet)


@contextmanager
def worker(app: str, **environment: str) -> Iterator[Worker]:
    """One that is gone after the block."""
    one = Worker(app, environment)
    try:
        yield one
    finally:
        one.kill()


def played(demo: Coroutine[object, object, int], out: Console) -> int:
    """The exit code of a demo: its own, or 2 where its run has failed, after what it failed of."""
    try:
        return asyncio.run(demo)
    except OutliveError as error:
        out.print(str(error), markup=False)
        return 2
