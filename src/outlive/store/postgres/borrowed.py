"""A connection of the caller's own, in whose transaction a run is started. That is the caller's to end."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row

from outlive.model.errors import Refused
from outlive.store.columns import Parameters
from outlive.store.postgres.connection import translated


class Borrowed:
    """Statements in the caller's transaction. Raises Refused for what has no transaction that could commit."""

    def __init__(self, connection: object, store: str) -> None:
        if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            why = "the runs are in PostgreSQL: it takes an AsyncConnection or a Connection of psycopg"
            raise Refused(what=f"a start in {connection!r}", why=why)
        self._connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any] = connection
        self._store = store
        status = connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            why = "a statement of its transaction failed, so that PostgreSQL will not commit it"
            raise Refused(what="a start in this connection", why=why)
        if status == TransactionStatus.IDLE and connection.autocommit:
            raise Refused(what="a start in this connection", why="it has no open transaction; begin one")

    async def fetch(self, statement: bytes, parameters: Parameters) -> list[DictRow]:
        """The rows of one statement. Its failure is that of the caller's transaction too."""
        connection = self._connection
        try:
            if isinstance(connection, psycopg.AsyncConnection):
                # Not the connection's own kind of cursor, which may be one that reads by and by.
                cursor = psycopg.AsyncCursor(connection, row_factory=dict_row)
                async with cursor:
                    await cursor.execute(statement, parameters, prepare=False)
                    return await cursor.fetchall()
            return await asyncio.to_thread(_fetch, connection, statement, parameters)
        except psycopg.Error as error:
            raise translated(error, self._store) from error


def _fetch(connection: psycopg.Connection[Any], statement: bytes, parameters: Parameters) -> list[DictRow]:
    with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
        return cursor.execute(statement, parameters, prepare=False).fetchall()
