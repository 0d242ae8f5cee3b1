"""Adapters as the kit sees them: a manifest, a control process that answers requests, and a worker's command line."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from conformance.service import Kind

HERE = Path(__file__).parent
ADAPTERS = HERE / "adapters"
ENVS = HERE / ".envs"
SERVICE_MATTERS = ("crashes", "database", "workers")


class Refused(Exception):
    """The engine, or its adapter, has answered a request with an error."""


class NotOffered(Exception):
    """The engine has no such thing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One engine, used in one way, before one kind of service."""

    name: str
    adapter: str
    engine: str
    driven: str
    about: str
    store: str
    mode: str
    service: Kind
    control: list[str]
    worker: list[str]
    server: list[str]
    not_offered: Mapping[str, str]
    limit: float
    same_as: str = ""
    differs: Sequence[str] = SERVICE_MATTERS
    """In which groups of scenarios it is not the same as `same_as`."""

    def environment(self) -> dict[str, str]:
        """What every process of the engine gets, beside what the scenario tells it."""
        paths = [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        # Hundreds of processes are started: without compiled files each would compile everything anew.
        ours = ("OUTLIVE_", "DBOS_", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return inherited | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def rows(folder: Path = ADAPTERS) -> Iterator[Row]:
    """All rows of the adapters in a folder, in the order of their names."""
    for manifest in sorted(folder.glob("*/adapter.json")):
        yield from _rows(manifest)


def equipped(row: Row) -> bool:
    """Whether the environment that the adapter wants has been made."""
    return not (ADAPTERS / row.adapter / "requirements.txt").exists() or (ENVS / row.adapter / "bin/python").exists()


def _rows(manifest: Path) -> Iterator[Row]:
    said = json.loads(manifest.read_text("utf-8"))
    name, python = manifest.parent.name, ENVS / manifest.parent.name / "bin" / "python"
    words = {"python": str(python) if python.exists() else sys.executable, "env": str(ENVS / name)}
    for store in said["store"].split():

        def named(mode: str, store: str = store) -> str:
            return f"{name}-{store}-{mode}" if " " in said["store"] else f"{name}-{mode}"

        for mode, how in said["modes"].items():
            yield Row(
                name=named(mode),
                adapter=name,
                engine=said["engine"],
                driven=said["about"],
                about=how["about"],
                store=store,
                mode=mode,
                service=how["service"],
                control=_filled(said["control"], words),
                worker=_filled(said["worker"], words),
                server=_filled(said.get("server", []), words),
                not_offered=said.get("not_offered", {}) | how.get("not_offered", {}),
                limit=float(said.get("limit", 60)),
                same_as=named(how["same_as"]) if "same_as" in how else "",
                differs=how["differs"].split() if "differs" in how else SERVICE_MATTERS,
            )


def _filled(command: list[str], words: Mapping[str, str]) -> list[str]:
    for name, value in words.items():
        command = [part.replace("{" + name + "}", value) for part in command]
    return command


class Control:
    """The control process of one scenario; requests may come from several threads."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=log.parent,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._next = 0
        self._waiting: dict[int, queue.Queue[Mapping[str, object]]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, do: str, said: Mapping[str, object], limit: float = 180.0) -> Mapping[str, object]:
        """The answer to a request. Raises Refused, NotOffered."""
        answered: queue.Queue[Mapping[str, object]] = queue.Queue(1)
        with self._lock:
            self._next += 1
            number = self._next
            self._waiting[number] = answered
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps({"id": number, "do": do, **said}).encode() + b"\n")
                self._process.stdin.flush()
            except OSError as error:
                raise Refused(f"control has ended: {error}") from error
        try:
            answer = answered.get(timeout=limit)
        except queue.Empty:
            raise Refused(f"no answer to {do} within {limit:g} s") from None
        if "not_offered" in answer:
            raise NotOffered(str(answer["not_offered"]))
        if "error" in answer:
            raise Refused(str(answer["error"]))
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for end in (self._process.stdin, self._process.stdout, self._log):
            with suppress(OSError):
                if end is not None:
                    end.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                answer = cast(Mapping[str, object], json.loads(line))
                number = int(str(answer["id"]))
            except (ValueError, KeyError, TypeError):
                self._log.write(line)
                continue
            if number in self._waiting:
                self._waiting.pop(number).put(answer)
        for one in list(self._waiting.values()):
            one.put({"error": "control has ended"})


def without_worker(row: Row) -> Row:
    """A row whose workers end at once: for trying the kit itself."""
    return replace(row, worker=[sys.executable, "-c", ""])
