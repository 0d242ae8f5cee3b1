"""The store as one object: opens the file, migrates it, checks its durability, and closes it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from outlive.model.clock import Clock
from outlive.model.errors import SettingInvalid, StoreUnavailable, UnsafeDurability
from outlive.secret.urls import without_password
from outlive.store.sqlite.approvals import SQLiteApprovals
from outlive.store.sqlite.bundle import SQLiteBundles
from outlive.store.sqlite.connection import (
    OLDEST,
    SETUP,
    Synchronous,
    connect_reader,
    connect_writer,
    file_identity,
    unsafe_settings,
)
from outlive.store.sqlite.graphs import SQLiteGraphs
from outlive.store.sqlite.hints import HintFile
from outlive.store.sqlite.items import SQLiteItems
from outlive.store.sqlite.keeping import SQLiteKeeping
from outlive.store.sqlite.keyed import SQLiteKeys
from outlive.store.sqlite.log import SQLiteLog
from outlive.store.sqlite.migrate import examine, migrate, migrations
from outlive.store.sqlite.near import Near
from outlive.store.sqlite.records import SQLiteRecords
from outlive.store.sqlite.streaming import SQLiteStreaming
from outlive.store.sqlite.survey import SQLiteSurvey
from outlive.store.sqlite.telling import SQLiteTelling
from outlive.store.sqlite.thread import Awaited, Connections, Request, Writer
from outlive.store.sqlite.transcripts import SQLiteTranscripts
from outlive.store.sqlite.turnstile import Turnstile
from outlive.store.sqlite.work import SQLiteWork
from outlive.store.upkeep import Migration


class SQLiteStore(
    SQLiteLog,
    SQLiteWork,
    SQLiteRecords,
    SQLiteApprovals,
    SQLiteKeys,
    SQLiteSurvey,
    SQLiteKeeping,
    SQLiteBundles,
    SQLiteTelling,
    SQLiteStreaming,
    SQLiteGraphs,
    SQLiteItems,
    SQLiteTranscripts,
):
    """A file on a local disk, shared by any number of processes of the machine; see the port for its contract.

    `wait` is how many seconds a write waits for other processes before StoreBusy. With `synchronous="off"`, which needs
    `unsafe_durability`, commits are fast and may be lost with the machine: for tests. `known` are the migrations to go
    by, this release's if not given. With `existing` an open makes nothing and migrates nothing.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str,
        clock: Clock,
        unsafe_durability: bool = False,
        synchronous: Synchronous = "full",
        wait: float = 10.0,
        known: Sequence[Migration] | None = None,
        existing: bool = False,
    ) -> None:
        if str(path) in ("", ":memory:") or str(path).startswith("file:"):
            raise StoreUnavailable(
                store=name, why="a database in memory is gone with the process, and cannot be shared; name a file"
            )
        super().__init__(
            Path(path), name=name, clock=clock, unsafe_durability=unsafe_durability, synchronous=synchronous, wait=wait
        )
        self._known, self._existing = known or migrations(), existing

    async def open(self) -> None:
        """See the port. A directory that is missing is not made; a file of another program is NotAStore."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreUnavailable(store=self.name, why=f"SQLite {sqlite3.sqlite_version} is older than 3.37")
        if self._threads is not None:
            return
        await asyncio.to_thread(
            examine, self._path, store=self.name, existing=self._existing, wait=self._wait, known=self._known
        )
        turnstile = self._turnstile()
        write = partial(
            connect_writer, self._path, turnstile, wait=self._wait, synchronous=self._synchronous,
            create=not self._existing,
        )  # fmt: skip
        writer = Writer(write, turnstile, store=self.name)
        readers = Connections(partial(connect_reader, self._path, wait=self._wait), store=self.name)
        self._threads = writer, readers
        self._hints = HintFile(self._path.resolve())
        try:
            prepare = Awaited(lambda database, _: self._set_up(database, turnstile), bare=True)
            writer.put(prepare)
            await prepare.future
            self._file = file_identity(self._path)
            at_once = partial(connect_writer, self._path, turnstile, wait=0.0, synchronous=self._synchronous)
            self._near = Near(at_once, self._turnstile(), store=self.name, copy=partial(_copy, readers))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """See the port. A store that is not open stays so."""
        if self._threads is None:
            return
        threads, self._threads = self._threads, None
        if self._near is not None:
            self._near.close()
            self._near = None
        for lane in threads:
            lane.close()
        for lane in threads:
            await asyncio.to_thread(lane.join)
        if self._hints is not None:
            self._hints.close()

    def _set_up(self, database: sqlite3.Connection, turnstile: Turnstile) -> None:
        found = unsafe_settings(database, self._path)
        if found and not self._unsafe:
            raise UnsafeDurability(store=self.name, setting=", ".join(found))
        if not self._existing:
            migrate(database, turnstile, self._known, store=self.name)


class _Checkpoint(Request):
    """Copies the journal into the database; one that fails is made good by the next."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def perform(self, database: sqlite3.Connection, now: int) -> None:
        database.execute(SETUP["checkpoint"]).fetchall()

    def answer(self, error: BaseException | None) -> None:
        self.ended.set()


def _copy(readers: Connections) -> threading.Event:
    request = _Checkpoint()
    readers.put(request)
    return request.ended


async def open_sqlite(
    url: str, *, clock: Clock, unsafe_durability: bool = False, existing: bool = False
) -> SQLiteStore:
    """Open `sqlite:///relative.db` or `sqlite:////absolute.db`; `?synchronous=off` and `existing` as in SQLiteStore.

    Raises SettingInvalid for another URL, and what `open` raises.
    """
    path, synchronous = place_of(url)
    store = SQLiteStore(
        path, name=url, clock=clock, unsafe_durability=unsafe_durability, synchronous=synchronous, existing=existing
    )
    await store.open()
    return store


def place_of(url: str) -> tuple[str, Synchronous]:
    """Read `sqlite:///relative.db?synchronous=off`. Raises SettingInvalid."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or not parts.path.startswith("/"):
        raise SettingInvalid(
            name="store",
            value=without_password(url),
            source="its URL",
            why="say sqlite:///relative.db or sqlite:////absolute.db",
        )
    options = parse_qs(parts.query, strict_parsing=bool(parts.query))
    synchronous = options.pop("synchronous", ["full"])[-1]
    if options or synchronous not in ("full", "off"):
        raise SettingInvalid(
            name="store",
            value=without_password(url),
            source="its URL",
            why="the only option is synchronous=full or off",
        )
    return unquote(parts.path[1:]), "full" if synchronous == "full" else "off"
