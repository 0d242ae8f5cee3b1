"""The log of a run: append, read, and transactions that an append can join."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from outlive.log.entry import Entry
from outlive.model.errors import UndecodableEntry
from outlive.model.ids import RunId, Tenant
from outlive.model.run import Head
from outlive.store.hints import worth_a_hint
from outlive.store.port import Append
from outlive.store.sqlite import rows
from outlive.store.sqlite.append import execute, prepare
from outlive.store.sqlite.base import Base
from outlive.store.sqlite.connection import QUERIES, connect_writer
from outlive.store.sqlite.transaction import OwnTransaction
from outlive.store.within import Transaction


class SQLiteLog(Base):
    """The port's `Log`; its contract is there."""

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        secret = self._keys.get(append.authority.tenant) or await self.key(append.authority.tenant)
        prepared, head = prepare(secret, append), None
        at = partial(self._at, now)
        near = self._near_by(append.authority.tenant, append.authority.run)
        if near is not None and (head := near.append(prepared, at)) is not None:
            await self._lone.end()
        if head is None:
            first = append.use is None and append.take is None
            head = await self._append(
                lambda database, clock: execute(database, prepared, at(clock)), decides_first=first
            )
        if worth_a_hint(append):
            self._hint()
        return head

    async def window(self, tenant: Tenant, run: RunId) -> list[Entry]:
        parameters: dict[str, str | int] = {"tenant": tenant, "run": run}
        return await self._read(lambda database: _entries(database, "window", parameters))

    async def entries(self, tenant: Tenant, run: RunId, *, after: int = -1, limit: int = 1000) -> list[Entry]:
        parameters: dict[str, str | int] = {"tenant": tenant, "run": run, "after": after, "limit": limit}
        return await self._read(lambda database: _entries(database, "entries", parameters))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        self._refuse_inside()
        self._connected()
        turnstile = self._turnstile()
        own = OwnTransaction(
            partial(connect_writer, self._path, turnstile, wait=self._wait, synchronous=self._synchronous),
            turnstile,
            key=self.key,
            at=self._at,
            store=self.name,
        )
        self._enter(own.is_open)
        try:
            await own.begin()
            yield own
        finally:
            await own.end()


def _entries(database: sqlite3.Connection, query: str, parameters: dict[str, str | int]) -> list[Entry]:
    cursor = database.execute(QUERIES[query], parameters)
    try:
        return [rows.entry(row) for row in cursor]
    except sqlite3.OperationalError as error:
        # A statement that is not done with would hold this connection at what it sees now.
        cursor.close()
        # The driver's own error, without a code: trying again would not help, only a person can.
        if "decode" in str(error):
            raise UndecodableEntry(where=f"the log of run {parameters['run']}", why=str(error)) from error
        raise
