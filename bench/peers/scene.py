"""Where one engine is measured in one round: an empty store, its own server if it brings one, and its processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.peers.roster import LEASE_S, SLOTS, Engine
from bench.processes import ROOT, Child, clean

ENVIRONMENTS = ROOT / "conformance" / ".envs"
_SIZE = (
    "select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_class c join pg_namespace n on n.oid ="
    " c.relnamespace where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')"
)


class Failed(Exception):
    """A program of an engine did not do what it was asked."""


class Player:
    """A process of an engine, which does what it is told by verb."""

    def __init__(self, child: Child, log: Path) -> None:
        self._child, self._log, self.pid = child, log, child.pid

    def ask(self, verb: str, **words: object) -> dict[str, Any]:
        """Raises Failed with what the program said."""
        told = self._heard(json.dumps({"do": verb, **words}))
        if "error" in told:
            raise Failed(f"{verb}: {told['error']}")
        return told

    def hear(self) -> dict[str, Any]:
        """What it says next, unasked."""
        return self._heard("")

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()

    def _heard(self, line: str) -> dict[str, Any]:
        try:
            if line:
                self._child.say(line)
            return dict(self._child.hear())
        except (RuntimeError, BrokenPipeError) as error:
            raise Failed(f"{error}\n{self._log.read_text('utf-8', 'replace')[-2000:]}") from error


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass(slots=True)
class Scene:
    """An engine with its store, or a floor when there is no engine. `server` is the process of a server of its own."""

    engine: Engine | None
    store: str
    url: str
    folder: Path
    given: dict[str, object] = field(default_factory=dict)
    server: int = 0
    _files: int = 0

    def file(self) -> Path:
        """A name that nothing has, for the lines of steps."""
        self._files += 1
        return self.folder / f"lines-{self._files}"

    @contextmanager
    def player(self, role: str, **given: object) -> Iterator[Player]:
        """A process in this role, ready; killed at the end of the block."""
        words = {"store": self.url, "lease": LEASE_S, "slots": SLOTS, "worker": "one", **self.given, **given}
        program, variables = "floor", dict[str, str]()
        if self.engine is not None:
            program, variables = self.engine.program, dict(self.engine.variables)
            words = {**self.engine.given, **words}
        self._files += 1
        log = self.folder / f"{role}-{self._files}.log"
        with log.open("wb") as output, subprocess.Popen(
            [self.interpreter(), "-m", f"bench.peers.engines.{program}", role, json.dumps(words)],
            cwd=ROOT, env=clean() | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            made = Player(Child(process), log)
            try:
                made.hear()
                yield made
            finally:
                made.kill()
                with suppress(BrokenPipeError):  # what it was told last, and did not read
                    process.stdin.close()

    def interpreter(self) -> str:
        """The Python that has the engine."""
        if self.engine is None or not self.engine.environment:
            return sys.executable
        return str(ENVIRONMENTS / self.engine.environment / "bin" / "python")

    def bytes(self) -> int:
        """What the store takes: tables with their indexes; a file without its journal; files of a server of its own."""
        if self.store == "postgres":
            with psycopg.connect(self.url.partition("?")[0]) as connection:
                return int((connection.execute(_SIZE.encode()).fetchone() or (0,))[0])
        for file in self.folder.rglob("*.db"):
            with closing(sqlite3.connect(file, timeout=30)) as database:
                database.execute("pragma wal_checkpoint(truncate)")
        if self.store == "sqlite" or (self.engine and self.engine.own == "temporal"):
            return sum(file.stat().st_size for file in self.folder.rglob("*.db"))
        # What is in the files: room that was asked for in advance is not counted.
        return sum(file.stat().st_size for file in (self.folder / "own").rglob("*") if file.is_file())

    def server_mb(self) -> float:
        """Megabytes of the server that the engine brings; 0 for one that brings none."""
        if not self.server:
            return 0.0
        pages = int(Path(f"/proc/{self.server}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 2**20


@contextmanager
def scene_of(engine: Engine | None, store: str, base: str, folder: Path) -> Iterator[Scene]:
    """An empty store. `base` is the PostgreSQL server, as a URL that ends with a slash; the folder is made and goes."""
    folder.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if engine is not None and engine.own:
            yield stack.enter_context(_on_own_server(engine, folder))
        elif store == "sqlite":
            yield Scene(engine, store, f"sqlite:///{folder}/store.db", folder)
        else:
            name = f"peers_{folder.name.replace('-', '_')}"
            _at(base, f"create database {name}")
            stack.callback(_at, base, f"drop database if exists {name} with (force)")
            query = f"?{engine.query}" if engine is not None and engine.query else ""
            yield Scene(engine, store, f"{base}{name}{query}", folder)


def _at(base: str, statement: str) -> None:
    with psycopg.connect(f"{base}postgres", autocommit=True) as connection:
        connection.execute(statement.encode())


@contextmanager
def _on_own_server(engine: Engine, folder: Path) -> Iterator[Scene]:
    """The server that an engine brings, with its defaults; it listens on this machine only."""
    place = ENVIRONMENTS / engine.environment
    ports = {name: free_port() for name in ("port", "ingress", "admin", "endpoint", "fabric")}
    if engine.own == "temporal":
        command = [str(place / "bin" / "temporal"), "server", "start-dev", "--headless", "--ip", "127.0.0.1",
                   "--port", str(ports["port"]), "--db-filename", str(folder / "temporal.db"),
                   "--log-level", "error"]  # fmt: skip
        variables = dict[str, str]()
    else:
        command = [str(place / "node_modules" / "@restatedev" / "restate-server-linux-x64" / "bin" / "restate-server"),
                   "--no-logo"]  # fmt: skip
        variables = {
            "RESTATE_BASE_DIR": str(folder / "own"), "RESTATE_LISTEN_MODE": "tcp", "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ports['ingress']}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{ports['admin']}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{ports['fabric']}",
        }  # fmt: skip
    with (folder / "server.log").open("wb") as log, subprocess.Popen(
        command, cwd=folder, env=clean() | variables, stdout=log, stderr=log, start_new_session=True
    ) as process:  # fmt: skip
        try:
            yield Scene(engine, "own", "", folder, dict[str, object](ports), process.pid)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
