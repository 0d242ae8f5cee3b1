"""What the tests of the PostgreSQL store share: a scene on it, and a second connection that holds and watches locks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psycopg
from psycopg.rows import TupleRow

from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import Scene


@asynccontextmanager
async def scene_on(url: str, *, wait: float = 10.0) -> AsyncIterator[Scene]:
    """An open store on an empty schema."""

    async def open_store(clock: ManualClock) -> PostgresStore:
        store = PostgresStore(place_of(url), clock=clock, wait=wait)
        await store.open()
        return store

    scene = await Scene.set(open_store)
    try:
        yield scene
    finally:
        await scene.close()


class Hand:
    """Somebody else's connection: `do` is part of one open transaction until `commit` or `rollback`."""

    def __init__(self, holding: psycopg.Connection[TupleRow], watching: psycopg.AsyncConnection[TupleRow]) -> None:
        self._holding, self._watching = holding, watching

    def do(self, sql: str, *parameters: object) -> list[TupleRow]:
        """One statement of the open transaction; must not have to wait."""
        cursor = self._holding.execute(sql.encode(), parameters or None)
        return cursor.fetchall() if cursor.description is not None else []

    def commit(self) -> None:
        """End the transaction."""
        self._holding.commit()

    def rollback(self) -> None:
        """End the transaction with nothing done."""
        self._holding.rollback()

    async def see(self, sql: str) -> list[TupleRow]:
        """What is committed."""
        return await (await self._watching.execute(sql.encode())).fetchall()

    async def until_waiting(self, statement: str, *, count: int = 1) -> None:
        """Return when so many statements with these words wait for a lock."""
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
        while True:
            cursor = await self._watching.execute(waiting, (f"%{statement}%",))
            row = await cursor.fetchone()
            if row is not None and row[0] >= count:
                return


@asynccontextmanager
async def hand_on(url: str) -> AsyncIterator[Hand]:
    """Two connections outside of any store."""
    conninfo = place_of(url).conninfo
    with psycopg.connect(conninfo) as holding:
        holding.rollback()
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as watching:
            try:
                yield Hand(holding, watching)
            finally:
                holding.rollback()


@contextmanager
def raw(url: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """A connection that commits each statement."""
    with psycopg.connect(place_of(url).conninfo, autocommit=True) as connection:
        yield connection
