"""A transaction of the user's own, on a connection for itself.

It ends exactly once: by the commit of the append that joins it, or by a rollback, which a cancelled caller cannot skip.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from outlive.model.business import KeyMark, KeyRow
from outlive.model.errors import Refused
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import Head
from outlive.store.columns import check_text, key_parameters, key_row, operation_row
from outlive.store.port import Append
from outlive.store.postgres.append import prepare, refusals, statement
from outlive.store.postgres.connection import (
    FULL,
    Place,
    Statements,
    is_lost,
    limited,
    no_connection,
    translated,
    usable,
)

# A worker that is stopped inside would keep others waiting for what it has locked.
IDLE_MS = 10_000
_IDLE = ("25P03", "25P04")

_OURS = [
    "run", "entry", "blob", "operation", "inbox", "worker", "duty", "divergence", "notification", "delivery", "delta",
    "tenant", "migration", "approval", "vote", "business_key", "graph_thread", "graph_checkpoint", "graph_value",
    "graph_write", "graph_piece", "graph_chain", "graph_link", "graph_item", "transcript", "transcript_line",
]  # fmt: skip
_LEADING = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.S)
_CONTROL = re.compile(
    r"(?:abort|begin|commit|end|start|prepare\s+transaction|rollback(?!\s+(?:(?:work|transaction)\s+)?to\b)"
    r"|set(?!\s+local\b|\s+constraints\b)|reset|discard|listen|deallocate)\b",
    re.I,
)


class OwnTransaction:
    """The port's `Transaction`; its contract is there. The user's SQL may not end it, nor write our tables."""

    def __init__(
        self,
        pool: AsyncConnectionPool[psycopg.AsyncConnection[TupleRow]],
        place: Place,
        sql: Statements,
        *,
        key: Callable[[Tenant], Awaitable[bytes]],
        at: Callable[[int | None], int | None],
        wait: float,
    ) -> None:
        self._pool, self._place, self._sql, self._key, self._at, self._wait = pool, place, sql, key, at, wait
        self._connection: psycopg.AsyncConnection[TupleRow] | None = None
        self._before: dict[str, int] = {}
        self._open = True

    def is_open(self) -> bool:
        """Whether it has begun, or is about to, and has not ended."""
        return self._open

    async def begin(self) -> None:
        """Take a connection of the pool. Raises StoreUnavailable."""
        try:
            self._connection = connection = await usable(self._pool)
            with limited(connection, wait=self._wait):
                await begin(connection, self._sql, wait=self._wait, idle_ms=IDLE_MS)
                self._before = await self._written(connection)
        except PoolTimeout as error:
            raise no_connection(self._place, self._wait) from error
        except psycopg.Error as error:
            raise translated(error, self._place.name) from error

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        connection = self._usable()
        if _CONTROL.match(_LEADING.sub("", sql, count=1)):
            raise Refused(what=f"{sql.strip().split(maxsplit=1)[0]!r} in a transaction", why="its append ends it")
        try:
            # In a pipeline a string is one statement: a second one, which might end the transaction, is an error.
            async with connection.pipeline() as pipeline:
                cursor = await connection.execute(sql.encode(), tuple(parameters) or None)
                await pipeline.sync()
                rows = list(await cursor.fetchall()) if cursor.description is not None else []
            # The driver may end a pipeline with a flush, after which the server does not time how long we are idle.
            await connection.execute(b"")
            return rows
        except psycopg.Error as error:
            if (is_lost(error) and error.sqlstate not in _IDLE) or error.sqlstate == FULL:
                raise translated(error, self._place.name) from error
            raise

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        connection = self._usable()
        parameters = {"tenant": tenant, "origin": origin, "tool": tool, "digest": digest, "key": key}
        try:
            with limited(connection, wait=self._wait):
                # Two statements: the second sees what was committed while the first one waited.
                await connection.execute(self._sql["lock_origin"], parameters)
                cursor = connection.cursor(row_factory=dict_row)
                found = await (await cursor.execute(self._sql["find_alike"], parameters)).fetchall()
        except psycopg.Error as error:
            raise translated(error, self._place.name) from error
        return [operation_row(row) for row in found]

    async def take_key(self, tenant: Tenant, mark: KeyMark, *, now: int | None = None) -> KeyRow | None:
        connection = self._usable()
        parameters = {**key_parameters(mark), "tenant": tenant, "now": self._at(now)}
        check_text(parameters, f"a business key of {mark.tool}")
        try:
            with limited(connection, wait=self._wait):
                await self._refuse_foreign_writes(connection)
                if await (await connection.execute(self._sql["take_key"], parameters)).fetchall():
                    self._before = await self._written(connection)
                    return None
                # A statement of its own: it sees what was committed while the first one waited.
                cursor = connection.cursor(row_factory=dict_row)
                [found] = await (await cursor.execute(self._sql["find_business_key"], parameters)).fetchall()
        except psycopg.Error as error:
            raise translated(error, self._place.name) from error
        return key_row(found)

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        connection = self._usable()
        prepared = prepare(await self._key(append.authority.tenant), append, self._at(now))
        try:
            if connection.info.transaction_status == TransactionStatus.INERROR:
                raise Refused(
                    what="an append", why="a statement of its transaction failed, so that PostgreSQL will not commit it"
                )
            with limited(connection, wait=self._wait):
                await self._refuse_foreign_writes(connection)
                query, parameters = statement(self._sql, [prepared])
                [refusal] = refusals([prepared], await (await connection.execute(query, parameters)).fetchall())
            if refusal is not None:
                raise refusal
        except psycopg.Error as error:
            if error.sqlstate in _IDLE:
                idle = f"it did nothing in its transaction for {IDLE_MS // 1000} s, and the server has ended that"
                raise Refused(what="an append", why=idle) from error
            raise translated(error, self._place.name) from error
        else:
            await self._commit(connection)
            return prepared.head
        finally:
            self._open = False
            # Refused, it must not hold the run's row until its block ends.
            await self._roll_back(connection)

    async def end(self) -> None:
        """Roll back what is not committed and give the connection back."""
        self._open = False
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            await self._roll_back(connection)
        finally:
            await self._pool.putconn(connection)

    async def _roll_back(self, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        try:
            if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                with limited(connection, wait=self._wait):
                    await connection.execute(self._sql["rollback"])
        except psycopg.Error:
            # Closed, it is rolled back as well.
            await connection.close()

    async def _refuse_foreign_writes(self, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        for table, number in (await self._written(connection)).items():
            if number != self._before.get(table, 0):
                raise Refused(what=f"a write to the store's table {table!r}", why="only the store writes there")

    async def _written(self, connection: psycopg.AsyncConnection[TupleRow]) -> dict[str, int]:
        parameters = {"schema": self._place.schema, "tables": _OURS}
        return dict(await (await connection.execute(self._sql["written"], parameters)).fetchall())

    async def _commit(self, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        try:
            with limited(connection, wait=self._wait):
                await connection.execute(self._sql["commit"])
        except psycopg.IntegrityError as error:
            raise Refused(
                what="the transaction", why=f"a deferred constraint of its own does not hold: {error}"
            ) from error
        except psycopg.Error as error:
            raise translated(error, self._place.name, wrote=True) from error

    def _usable(self) -> psycopg.AsyncConnection[TupleRow]:
        if not self._open or self._connection is None:
            raise Refused(what="a call in a transaction that has ended", why="an append ends it; begin another one")
        return self._connection


async def begin(connection: psycopg.AsyncConnection[TupleRow], sql: Statements, *, wait: float, idle_ms: int) -> None:
    """Begin a transaction of more than one statement, in one round trip. Raises what the driver raises."""
    limits = {"wait_ms": str(round(wait * 1000)), "idle_ms": str(idle_ms)}
    async with connection.pipeline():
        await connection.execute(sql["begin"])
        await connection.execute(sql["set_up"], limits)
