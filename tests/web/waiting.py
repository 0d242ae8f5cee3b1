"""A server process of its own, which has begun to listen when it is given back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


class Server:
    """`url` is where it listens."""

    def __init__(self, store: str, **environment: str) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
        env |= {"OUTLIVE_STORE": store, "PYTHONWARNINGS": "error", **environment}
        command = [sys.executable, "-m", "examples.web.server", "--port", "0"]
        self._process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, stderr=subprocess.PIPE)
        self.said: list[str] = []
        listening = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(listening,), daemon=True)
        self._reader.start()
        assert listening.wait(PATIENCE), self.said
        [self.url] = re.findall(r"running on (http://\S+)", "".join(self.said))

    def stop(self) -> None:
        """Tell it to stop, and wait until it has."""
        self._process.terminate()
        self._ended()

    def kill(self) -> None:
        self._process.kill()
        self._ended()

    def _ended(self) -> None:
        self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)

    def _read(self, listening: threading.Event) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self.said.append(line)
                if "running on" in line:
                    listening.set()
        # Also when it ends without: the caller then says what it said.
        listening.set()


def until(look: Callable[[], T | None], what: str) -> T:
    """What `look` finds, once it does."""
    end = time.monotonic() + PATIENCE
    while (found := look()) is None:
        assert time.monotonic() < end, f"{what}: in vain"
        time.sleep(0.02)
    return found


@contextmanager
def server(store: str, **environment: str) -> Iterator[Server]:
    """One that is gone after the block."""
    made = Server(store, **environment)
    try:
        yield made
    finally:
        made.kill()
