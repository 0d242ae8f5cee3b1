"""The SQLite store without its threads: the same statements on the same file, done where they are asked for.

In a lab one process has the file for itself, and handing each statement to a thread would cost more than the statement;
it also makes the order of calls the same in every run. While a transaction of the user's is open, writes wait for it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from outlive.model.clock import Clock
from outlive.model.errors import StoreUnavailable
from outlive.model.ids import RunId, Tenant
from outlive.store.certain import turn
from outlive.store.sqlite import SQLiteStore
from outlive.store.sqlite.base import clock as database_clock
from outlive.store.sqlite.connection import SETUP, connect_writer, translated
from outlive.store.sqlite.migrate import migrate, migrations
from outlive.store.sqlite.near import Near
from outlive.store.sqlite.thread import Work
from outlive.store.sqlite.transaction import OwnTransaction
from outlive.store.sqlite.turnstile import Turnstile
from outlive.store.within import Transaction

T = TypeVar("T")


class DirectStore(SQLiteStore):
    """A file that only this process uses, from one event loop, without durability. Leases in it are not renewed."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        super().__init__(path, name=path.name, clock=clock, unsafe_durability=True, synchronous="off")
        self._database: sqlite3.Connection | None = None
        self._transactions: list[OwnTransaction] = []

    async def open(self) -> None:
        """Put an empty, migrated database there if there is none, and open it."""
        if not self._path.exists():
            self._path.write_bytes(_migrated())
        self._database = _connect(self._path)

    async def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
        self._database = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """See the port."""
        self._refuse_inside()
        own = OwnTransaction(
            partial(_connect, self._path), self._turnstile(), key=self.key, at=self._at, store=self.name
        )
        self._enter(own.is_open)
        self._transactions.append(own)
        try:
            await own.begin()
            yield own
        finally:
            await own.end()
            self._transactions.remove(own)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._done(work, _turn)

    async def _write(self, work: Work[T], *, bare: bool = False) -> T:
        return await self._committed(work, _turn)

    async def _append(self, work: Work[T], *, decides_first: bool = True) -> T:
        return await self._committed(work, turn)

    def _near_by(self, tenant: Tenant, run: RunId) -> Near | None:
        """Everything is near here, and no other thread could be asked whether it is idle."""
        return None

    async def _committed(self, work: Work[T], pause: Callable[[], Awaitable[None]]) -> T:
        self._refuse_inside()
        while any(own.is_open() for own in self._transactions):
            await pause()

        def committed(database: sqlite3.Connection) -> T:
            database.execute(SETUP["begin"])
            try:
                result = work(database, database_clock(database))
            except BaseException:
                database.execute(SETUP["rollback"])
                raise
            database.execute(SETUP["commit"])
            return result

        return await self._done(committed, pause)

    async def _done(self, work: Callable[[sqlite3.Connection], T], pause: Callable[[], Awaitable[None]]) -> T:
        # As with threads, other tasks have their turn before the answer is there, and a caller can be cancelled then.
        await pause()
        if self._database is None:
            raise StoreUnavailable(store=self.name, why="it is not open")
        try:
            result = work(self._database)
        except sqlite3.Error as error:
            raise translated(error, self.name) from error
        await pause()
        return result


async def _turn() -> None:
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(lambda: None if turn.done() else turn.set_result(None))
    await turn


@cache
def _migrated() -> bytes:
    """An empty database of this release's schema, made once for each process."""
    with TemporaryDirectory(prefix="outlive-lab-") as directory:
        path = Path(directory) / "empty.db"
        turnstile = Turnstile(path, store="an empty database", wait=1.0)
        database = _connect(path)
        try:
            migrate(database, turnstile, migrations(), store="an empty database")
        finally:
            database.close()
            turnstile.close()
        return path.read_bytes()


def _connect(path: Path) -> sqlite3.Connection:
    return connect_writer(path, Turnstile(path, store=path.name, wait=1.0), wait=1.0, synchronous="off", create=True)
