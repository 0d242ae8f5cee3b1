"""A caller with a connection and a table of its own, beside the runs: one for each kind of connection."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Literal

import psycopg

from outlive.store.postgres.connection import place_of

Kind = Literal["sqlite3", "psycopg", "psycopg async"]
Connection = sqlite3.Connection | psycopg.Connection[Any] | psycopg.AsyncConnection[Any]


class Caller:
    """`do` is part of one transaction until `commit` or `rollback`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def do(self, sql: str) -> list[Any]:
        if isinstance(self.connection, sqlite3.Connection):
            return self.connection.execute(sql).fetchall()
        if isinstance(self.connection, psycopg.Connection):
            done = self.connection.execute(sql.encode())
            return done.fetchall() if done.description is not None else []
        cursor = await self.connection.execute(sql.encode())
        return await cursor.fetchall() if cursor.description is not None else []

    async def commit(self) -> None:
        if isinstance(self.connection, psycopg.AsyncConnection):
            await self.connection.commit()
        else:
            self.connection.commit()

    async def rollback(self) -> None:
        if isinstance(self.connection, psycopg.AsyncConnection):
            await self.connection.rollback()
        else:
            self.connection.rollback()

    async def drop(self) -> None:
        """Close the connection, with its transaction open."""
        if isinstance(self.connection, psycopg.AsyncConnection):
            await self.connection.close()
        else:
            self.connection.close()


@asynccontextmanager
async def caller_on(kind: Kind, place: str, *, autocommit: bool = False) -> AsyncIterator[Caller]:
    """A connection to a file, or to the server and schema of a URL."""
    if kind == "sqlite3":
        with closing(sqlite3.connect(Path(place), isolation_level=None if autocommit else "DEFERRED")) as database:
            yield Caller(database)
    elif kind == "psycopg":
        with psycopg.connect(place_of(place).conninfo, autocommit=autocommit) as connection:
            yield Caller(connection)
    else:
        async with await psycopg.AsyncConnection.connect(place_of(place).conninfo, autocommit=autocommit) as waiting:
            yield Caller(waiting)
