"""Waiting for what a real process does."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.cli.conftest import ROOT
from tests.cli.waiting import PATIENCE

T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T | None]]) -> T:
    """What `ask` gives once that is something."""
    for _ in range(int(PATIENCE / 0.05)):
        found = await ask()
        if found is not None:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("what was waited for did not come")


class Desk:
    """The server of `tests.mcp.desk`: its directory, its URL if it listens, and what it has done."""

    def __init__(self, place: Path, *, http: bool = False) -> None:
        place.mkdir()
        self.place, self.url = place, ""
        self._process: subprocess.Popen[bytes] | None = None
        if http:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._port = free.getsockname()[1]
            self.url = f"http://127.0.0.1:{self._port}/mcp"
            self.listen()

    def listen(self) -> None:
        """Start it, or start it again where it was."""
        self.end()
        command = [sys.executable, "-m", "tests.mcp.desk", str(self.place), str(self._port)]
        self._process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(int(PATIENCE / 0.05)):
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
                return
            time.sleep(0.05)
        raise AssertionError("the server does not listen")

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _lines(self) -> list[dict[str, Any]]:
        path = self.place / "acts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def acts(self) -> list[str]:
        return [one["what"] for one in self._lines()]

    def keys(self) -> list[str]:
        return [one["key"] for one in self._lines()]

    def pids(self) -> list[int]:
        return [one["pid"] for one in self._lines()]

    def kill(self) -> None:
        """The process that acted last."""
        os.kill(self.pids()[-1], signal.SIGKILL)

    async def is_gone(self) -> bool | None:
        """Whether it is, and has been waited for by whoever started it."""
        if self._process is not None:
            self._process.poll()
        return None if os.path.exists(f"/proc/{self.pids()[-1]}") else True  # noqa: ASYNC240 - of no disk

    def is_dead(self) -> bool:
        """Whether its process does nothing any more, waited for or not."""
        with suppress(OSError):
            return Path(f"/proc/{self.pids()[-1]}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
        return True

    async def acted(self, times: int = 1) -> bool | None:
        return True if len(self._lines()) >= times else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("wait", "die", "cut"):
            (self.place / name).unlink(missing_ok=True)
        self.end()
