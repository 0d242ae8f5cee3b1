"""What the three parts of the store share: the threads, the clock, and the keys of tenants."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from outlive.model.clock import Clock
from outlive.model.errors import Refused, StoreUnavailable
from outlive.model.ids import RunId, Tenant
from outlive.store.certain import Certain, outcome
from outlive.store.lone import Lone
from outlive.store.skew import Skew
from outlive.store.sqlite.borrowed import borrowed
from outlive.store.sqlite.connection import QUERIES, Synchronous, file_identity, find_key
from outlive.store.sqlite.hints import HintFile
from outlive.store.sqlite.near import Near
from outlive.store.sqlite.thread import Awaited, Connections, Work, Writer
from outlive.store.sqlite.turnstile import Turnstile

T = TypeVar("T")

# In the context of whoever began a transaction of their own: on which store, and whether it is still open.
_INSIDE: ContextVar[tuple[Base, Callable[[], bool]] | None] = ContextVar("inside", default=None)


class Base:
    """Reads go to the readers, writes to the one writer."""

    def __init__(
        self, path: Path, *, name: str, clock: Clock, unsafe_durability: bool, synchronous: Synchronous, wait: float
    ) -> None:
        self.name = name
        self._path, self._clock, self._wait = path.absolute(), clock, wait
        self._unsafe, self._synchronous = unsafe_durability, synchronous
        self._threads: tuple[Writer, Connections] | None = None
        self._keys: dict[Tenant, bytes] = {}
        self._file: tuple[int, int] | None = None
        self._hints: HintFile | None = None
        self._near: Near | None = None
        self._lone = Lone(clock)
        self._skew = Skew(clock)

    async def key(self, tenant: Tenant, *, within: object = None) -> bytes:
        """See `Records.key`."""
        if within is not None:
            with borrowed(within, self._path, self.name) as database:
                return self._key_within(database, tenant)
        if (known := self._keys.get(tenant)) is not None:
            return known
        key = await self._read(lambda database: find_key(database, tenant))
        if key is None:
            fresh = self._fresh_key()

            def add(database: sqlite3.Connection, now: int) -> bytes | None:
                database.execute(QUERIES["add_key"], {"tenant": tenant, "key": fresh, "now": self._at(None, now)})
                return find_key(database, tenant)

            key = await self._write(add)
        if key is None:
            raise StoreUnavailable(store=self.name, why=f"the key of tenant {tenant!r} has gone")
        self._keys[tenant] = key
        return key

    def _key_within(self, database: sqlite3.Connection, tenant: Tenant) -> bytes:
        """As this transaction sees it. One that is made here is there when that commits, so it is not kept yet."""
        if (key := find_key(database, tenant)) is None:
            key, now = self._fresh_key(), self._at(None, clock(database))
            database.execute(QUERIES["add_key"], {"tenant": tenant, "key": key, "now": now})
        return key

    def _fresh_key(self) -> bytes:
        return bytes.fromhex(self._clock.token() + self._clock.token())

    def _at(self, given: int | None, clock: int) -> int:
        """The time that a method goes by: given, else that of a manual clock, else the database's."""
        if given is not None:
            return given
        manual = self._clock.now()
        return clock if manual is None else manual

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        request = Awaited(lambda database, _: work(database))
        self._connected()[1].put(request)
        return await request.future

    async def _write(self, work: Work[T], *, bare: bool = False) -> T:
        self._refuse_inside()
        request = Awaited(work, bare=bare)
        self._writer().put(request)
        return await request.future

    async def _append(self, work: Work[T], *, decides_first: bool = True) -> T:
        """A cancellation of the caller is held back until the outcome is known. One that `decides_first` writes nothing
        before it knows that it is not refused: others may share its commit.
        """
        self._refuse_inside()
        future: Certain[T] = Certain()
        self._writer().put(Awaited(work, decides_first=decides_first, future=future))
        return await outcome(future)

    def _near_by(self, tenant: Tenant, run: RunId) -> Near | None:
        """Where to write an append without the thread, if nobody else is writing."""
        if not self._lone.begin(tenant, run) or not self._writer().idle:
            return None
        self._refuse_inside()
        return self._near

    async def _write_alone(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One statement that commits by itself, when its turn has come: no begin, no commit, nothing beside it."""
        turnstile = self._turnstile()

        def alone(database: sqlite3.Connection, _: int) -> T:
            try:
                with turnstile.held():
                    return work(database)
            finally:
                turnstile.close()

        return await self._write(alone, bare=True)

    def _hint(self) -> None:
        """Something was committed that somebody else may claim, or has to look after."""
        if self._hints is not None:
            self._hints.count_up()

    def _enter(self, is_open: Callable[[], bool]) -> None:
        _INSIDE.set((self, is_open))

    def _refuse_inside(self) -> None:
        inside = _INSIDE.get()
        if inside is not None and inside[0] is self and inside[1]():
            raise Refused(
                what="a write to the store inside its own transaction",
                why="it would wait for the lock that the transaction holds; leave the transaction first",
            )

    def _writer(self) -> Writer:
        """The writing thread. What is written to a file that nobody can open any more would be lost without a word."""
        writer, _ = self._connected()
        if self._file is not None and file_identity(self._path) != self._file:
            why = "its file was deleted or replaced while it was open; restore it and start the worker again"
            raise StoreUnavailable(store=self.name, why=why)
        return writer

    def _connected(self) -> tuple[Writer, Connections]:
        if self._threads is None:
            raise StoreUnavailable(store=self.name, why="it is not open")
        return self._threads

    def _turnstile(self) -> Turnstile:
        return Turnstile(self._path.resolve(), store=self.name, wait=self._wait)


def clock(database: sqlite3.Connection) -> int:
    """Milliseconds by the database's clock."""
    return int(database.execute(QUERIES["clock"]).fetchone()[0])
