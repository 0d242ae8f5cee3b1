"""Schemas of a PostgreSQL database that a lab makes, uses for one world after another, and drops.

The store in them is the one of production; its connections are told not to wait for the disk. Tools find their own
tables in the schema first, then in *public*; what they have made in the schema is gone with the world.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.rows import TupleRow

from outlive.model.clock import Clock, SystemClock
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.port import Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import connect, place_of
from outlive.store.sql import load
from outlive.testing.clock import ManualClock

_WAIT_S = 10.0
# What was emptied is still in the way of what comes after: so often that it would be felt, a new schema is better.
_MOST_WORLDS = 300
_KEPT = {"migration", "tenant"}


class Schemas:
    """Those of one lab. `drop` when all its worlds are closed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = f"outlive_lab_{SystemClock().token()[:12]}"
        self._made: list[Schema] = []
        self._free: list[Schema] = []

    def take(self) -> Schema:
        """One with nothing in it that nobody else has."""
        if not self._free:
            name = f"{self._name}_{len(self._made)}"
            self._made.append(Schema(_at(self._url, name), name, self._free))
            return self._made[-1]
        return self._free.pop()

    async def drop(self) -> None:
        """All of them. Raises what the driver raises."""
        for one in self._made:
            await one.drop()


class Schema:
    """One schema, a `Ground`: closed it is free for the next world, emptied, or it is dropped.

    Its store stays open meanwhile: new connections would take longer than what is done with them.
    """

    def __init__(self, url: str, name: str, free: list[Schema]) -> None:
        self._place, self._name, self._free = place_of(url), name, free
        self._clock = _Clock()
        self._store = PostgresStore(self._place, clock=self._clock, unsafe_durability=True, wait=_WAIT_S)
        self._hand: psycopg.AsyncConnection[TupleRow] | None = None
        self._ours: frozenset[tuple[str, bool]] = frozenset()
        self._worlds = 0

    async def open(self, clock: Clock) -> Store:
        """See `Ground.open`. The schema is made if it is not there."""
        if self._hand is None:
            self._hand = await connect(self._place, wait=_WAIT_S)
            await self._hand.execute(_sql()["limits"].encode())
            await self._store.open()
            # Made here once, and not emptied, so that every world draws the same from its clock.
            await self._store.key(DEFAULT_TENANT)
            self._ours = await self._names()
        self._clock.of = clock
        self._worlds += 1
        return self._store

    async def stored(self) -> bytes:
        """See `Ground.stored`."""
        found = []
        for table in await self._tables():
            async with self._open().cursor().copy(self._said("everything", table)) as rows:
                found += [bytes(row) async for row in rows]
        return b"".join(found)

    async def close(self) -> None:
        """See `Ground.close`."""
        if self._hand is None:
            return
        found = await self._names()
        ours = {name for name, is_table in self._ours if is_table} - _KEPT
        theirs = [name for name, is_table in found - self._ours if is_table]
        emptied = [self._said("empty", one) for one in sorted(ours)] + [self._said("drop_table", one) for one in theirs]
        await self._hand.execute(b";".join(emptied))
        if self._worlds < _MOST_WORLDS and (not theirs or await self._names() == self._ours):
            self._free.append(self)
        else:
            await self.drop()

    async def drop(self) -> None:
        """The schema and the connections; does nothing if that was done before."""
        hand, self._hand = self._hand, None
        if hand is None:
            return
        try:
            await self._store.close()
            await hand.execute(self._said("drop"))
        finally:
            await hand.close()

    async def _names(self) -> frozenset[tuple[str, bool]]:
        found = await (await self._open().execute(_sql()["names"].encode(), {"schema": self._name})).fetchall()
        return frozenset((str(name), bool(is_table)) for name, is_table in found)

    async def _tables(self) -> list[str]:
        return [name for name, is_table in await self._names() if is_table]

    def _said(self, statement: str, table: str = "") -> bytes:
        quoted = '"' + table.replace('"', '""') + '"'
        return _sql()[statement].replace("{schema}", self._name).replace("{table}", quoted).encode()

    def _open(self) -> psycopg.AsyncConnection[TupleRow]:
        assert self._hand is not None, "the schema was dropped"
        return self._hand


class _Clock:
    """The clock of the world that a store is used by now."""

    def __init__(self) -> None:
        self.of: Clock = ManualClock()

    def boottime(self) -> float:
        return self.of.boottime()

    def now(self) -> int | None:
        return self.of.now()

    def wall(self) -> int:
        return self.of.wall()

    async def sleep(self, seconds: float) -> None:
        await self.of.sleep(seconds)

    def random(self) -> float:
        return self.of.random()

    def token(self) -> str:
        return self.of.token()


def _at(url: str, schema: str) -> str:
    """The URL with a schema in it, where tools find their tables too; commits do not wait for the disk."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    settings = f"-c search_path={schema},public -c synchronous_commit=off"
    given |= {"schema": schema, "options": f"{given.get('options', '')} {settings}".strip()}
    return urlunsplit(parts._replace(query=urlencode(given, quote_via=quote)))


@cache
def _sql() -> dict[str, str]:
    return load(Path(__file__).with_suffix(".sql"))
