"""Real processes of the command line: started, waited for by what they print, and ended with the test."""

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Store

PATIENCE = 60.0


class Process:
    """An `outlive` process. `line` waits for a line on either stream that contains a text."""

    def __init__(self, *arguments: str, env: dict[str, str], cwd: Path) -> None:
        command = [sys.executable, "-m", "outlive", *arguments]
        self.seen: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.pid = self._process.pid
        streams = (self._process.stdout, self._process.stderr)
        self._readers = [threading.Thread(target=self._read, args=(one,), daemon=True) for one in streams if one]
        self._open = len(self._readers)
        for reader in self._readers:
            reader.start()

    def line(self, text: str) -> str:
        """The next line that contains the text; fails when both streams have ended without it."""
        while self._open:
            try:
                line = self._lines.get(timeout=PATIENCE)
            except queue.Empty:
                break
            if line is None:
                self._open -= 1
            elif text in line:
                return line
        raise AssertionError(f"{text!r} was not printed; there was: {self.seen}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def code(self) -> int:
        """The exit code, once the process has ended and all that it printed has been read."""
        code = self._process.wait(timeout=PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return code

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.code()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.seen.append(line.rstrip("\n"))
                self._lines.put(line)
        self._lines.put(None)


class Place:
    """A directory with a database, a gate, and the processes that use them."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        os.mkfifo(path / "gate")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
        self.env |= {
            "AGENTS_APP_DIR": str(path), "OUTLIVE_APP": "tests.cli.agents_app:app", "PYTHONPATH": str(root),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }  # fmt: skip
        self._processes: list[Process] = []

    def outlive(self, *arguments: str) -> Process:
        """A process that runs beside the test."""
        process = Process(*arguments, env=self.env, cwd=self.path)
        self._processes.append(process)
        return process

    def done(self, *arguments: str) -> tuple[int, list[str]]:
        """A process that has ended: its code and what it printed."""
        process = self.outlive(*arguments)
        return process.code(), process.seen

    def open_gate(self) -> None:
        """Let one process through that stands at the gate, or comes to it."""
        os.close(os.open(self.path / "gate", os.O_WRONLY))

    def close(self) -> None:
        for process in self._processes:
            process.end()


async def reaches(store: Store, run: str, *statuses: str) -> None:
    """Return when the run has one of these statuses."""
    status = ""
    for _ in range(int(PATIENCE / 0.02)):
        found = await store.run(DEFAULT_TENANT, RunId(run))
        status = found.status if found is not None else ""
        if status in statuses:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"run {run} is {status}, not {' or '.join(statuses)}")
