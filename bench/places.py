"""Where is measured: a directory for SQLite files, or a PostgreSQL server with the durability that it has by default.

Each measure gets a store of its own, so that none inherits the tables of the one before.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg import sql

from outlive.store.postgres.connection import place_of as pg_place_of
from outlive.testing.postgres import make_cluster, own_folder, running, url_of


@dataclass(frozen=True, slots=True)
class Server:
    """A server of ours: its first process, and what it writes."""

    url: str
    postmaster: int
    log: Path


@dataclass(slots=True)
class Place:
    """One kind of store. `base` is the URL of the server, or empty; `folder` is on the measured disk."""

    store: str
    folder: Path
    base: str = ""
    server: Server | None = None
    _made: list[str] = field(default_factory=list)

    @property
    def sqlite(self) -> bool:
        return self.store == "sqlite"

    def fresh(self, *, direct: bool = True) -> str:
        """The URL of an empty store; for PostgreSQL with statements prepared, or as behind a pooler."""
        name = self.other()
        if self.sqlite:
            return f"sqlite:///{name}"
        mark = "&" if "?" in self.base else "?"
        return f"{self.base}{mark}schema={name}" + ("&direct=yes" if direct else "")

    def other(self) -> str:
        """A name that is not taken: of a file, or of a schema of the database. The floor lives there."""
        number = len(self._made) + 1
        self._made.append(str(self.folder / f"{number}.db") if self.sqlite else f"bench_{os.getpid()}_{number}")
        return self._made[-1]

    def clear(self) -> None:
        """Drop all schemas that were made here."""
        with psycopg.connect(pg_place_of(self.base).conninfo, autocommit=True) as connection:
            for name in self._made:
                connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))


# The tests' server is small; what it needs to be is what it is by default.
_DEFAULTS = {"shared_buffers": "128MB", "max_connections": "100"}


@contextmanager
def server(**changed: str) -> Iterator[Server]:
    """A server with every setting of speed and durability at its default."""
    with own_folder() as (folder, user):
        make_cluster(folder / "data", user)
        with running(folder / "data", folder, user, folder / "log", **(_DEFAULTS | changed)):
            pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
            yield Server(url_of(folder), pid, folder / "log")


@contextmanager
def place_of(store: str) -> Iterator[Place]:
    """`sqlite`, `postgres` (a server of our own), or the URL of a server that is there."""
    folder = Path(tempfile.mkdtemp(prefix="outlive-bench-"))
    try:
        if store == "sqlite":
            yield Place("sqlite", folder)
        elif store == "postgres":
            with server() as started:
                yield Place("postgres", folder, started.url, started)
        else:
            there = Place("postgres", folder, store)
            try:
                yield there
            finally:
                there.clear()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
