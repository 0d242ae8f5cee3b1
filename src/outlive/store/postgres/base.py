"""What the parts of the store share: the pool of connections, the clock, and the keys of tenants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import psycopg
from psycopg import AsyncRawCursor
from psycopg.rows import DictRow, Row, TupleRow, dict_row, tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from outlive.model.clock import Clock
from outlive.model.errors import Refused, StoreUnavailable
from outlive.model.ids import Tenant
from outlive.store.columns import Parameters, check_text
from outlive.store.postgres.append import Committer
from outlive.store.postgres.borrowed import Borrowed
from outlive.store.postgres.connection import (
    CROSSED,
    FORGOTTEN,
    MOST_ATTEMPTS,
    Place,
    Statements,
    is_lost,
    limited,
    no_connection,
    translated,
    usable,
)
from outlive.store.postgres.hints import Notify, Sender
from outlive.store.postgres.numbered import numbered
from outlive.store.postgres.renewal import Renewals
from outlive.store.postgres.tasks import Tasks
from outlive.store.skew import Skew

T = TypeVar("T")

Connection = psycopg.AsyncConnection[TupleRow]

# In the context of whoever began a transaction of their own: on which store, and whether it is still open.
_INSIDE: ContextVar[tuple[Base, Callable[[], bool]] | None] = ContextVar("inside", default=None)


@dataclass(frozen=True, slots=True)
class Connections:
    """What an open store holds: appends and renewals have connections of their own and wait for nobody else."""

    pool: AsyncConnectionPool[Connection]
    committer: Committer
    renewals: Renewals
    notify: Notify
    sender: Sender


class Base:
    """Reads, and writes of one statement, over a connection of the pool."""

    def __init__(self, place: Place, *, clock: Clock, unsafe_durability: bool, wait: float) -> None:
        self.name = place.name
        self._place, self._clock, self._wait, self._unsafe = place, clock, wait, unsafe_durability
        self._sql = Statements(place.schema, durable=not unsafe_durability)
        self._connections: Connections | None = None
        self._keys: dict[Tenant, bytes] = {}
        self._tasks = Tasks()
        self._skew = Skew(clock)

    async def key(self, tenant: Tenant, *, within: object = None) -> bytes:
        """See `Records.key`. It is made by a commit of its own: two transactions may need a new one at once."""
        if within is not None:
            key = await self.key(tenant)
            await self._check_key(Borrowed(within, self.name), tenant, key)
            return key
        if (known := self._keys.get(tenant)) is not None:
            return known
        parameters: Parameters = {"tenant": tenant, "now": self._at(None)}
        check_text(parameters, "a tenant")
        found = await self._read(self._sql["find_key"], parameters)
        if not found:
            parameters["key"] = bytes.fromhex(self._clock.token() + self._clock.token())
            await self._write(self._sql["add_key"], parameters)
            found = await self._read(self._sql["find_key"], parameters)
        if not found:
            raise StoreUnavailable(store=self.name, why=f"the key of tenant {tenant!r} has gone")
        self._keys[tenant] = key = bytes(found[0]["key"])
        return key

    async def _check_key(self, borrowed: Borrowed, tenant: Tenant, key: bytes) -> None:
        """Keys are drawn at random: whoever sees the same one is in the same database."""
        found = await borrowed.fetch(self._sql["find_key"], {"tenant": tenant})
        if [bytes(row["key"]) for row in found] != [key]:
            why = f"it does not see the key of tenant {tenant!r}: it is connected to another database, or its "
            why += "transaction sees the time before the tenant's first run"
            raise Refused(what="a start in this connection", why=why)

    def _at(self, given: int | None) -> int | None:
        """The time that a method goes by: given, else that of a manual clock; None leaves it to the database."""
        return self._clock.now() if given is None else given

    async def _read(self, statement: bytes, parameters: Parameters) -> list[DictRow]:
        async def read(connection: Connection) -> list[DictRow]:
            cursor = await self._sent(AsyncRawCursor(connection, row_factory=dict_row), statement, parameters)
            return await cursor.fetchall()

        return await self._on_connection(read, wrote=False)

    async def _read_tuples(self, statement: bytes, parameters: Parameters) -> list[TupleRow]:
        async def read(connection: Connection) -> list[TupleRow]:
            cursor = await self._sent(AsyncRawCursor(connection, row_factory=tuple_row), statement, parameters)
            return await cursor.fetchall()

        return await self._on_connection(read, wrote=False)

    async def _write(self, statement: bytes, parameters: Parameters) -> list[DictRow]:
        """One statement that commits by itself; returns its rows, if it has any."""
        self._refuse_inside()

        async def write(connection: Connection) -> list[DictRow]:
            cursor = await self._sent(AsyncRawCursor(connection, row_factory=dict_row), statement, parameters)
            return await cursor.fetchall() if cursor.description is not None else []

        return await self._on_connection(write, wrote=True)

    async def _sent(self, cursor: AsyncRawCursor[Row], statement: bytes, parameters: Parameters) -> AsyncRawCursor[Row]:
        sent = numbered(statement)
        values = [parameters[name] for name in sent.parameters]
        return await cursor.execute(sent.text, values, prepare=self._place.direct)

    async def _on_connection(self, work: Callable[[Connection], Awaitable[T]], *, wrote: bool) -> T:
        """Do the work on a connection: again if it met another statement crosswise, and a read also on another
        connection, once, if the first one goes meanwhile.
        """
        lost, pool = 0, self._connected().pool
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                async with self._borrowed(pool) as connection:
                    with limited(connection, wait=self._wait):
                        return await work(connection)
            except PoolTimeout as error:
                raise no_connection(self._place, self._wait) from error
            except psycopg.Error as error:
                lost += is_lost(error)
                again = error.sqlstate in (*CROSSED, *FORGOTTEN) or (is_lost(error) and not wrote and lost == 1)
                if again and attempt < MOST_ATTEMPTS:
                    continue
                raise translated(error, self.name, wrote=wrote) from error
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _borrowed(self, pool: AsyncConnectionPool[Connection]) -> AsyncIterator[Connection]:
        connection = await usable(pool)
        try:
            async with connection:
                yield connection
        except psycopg.Error as error:
            if error.sqlstate in FORGOTTEN:
                await connection.close()
            raise
        finally:
            await pool.putconn(connection)

    def _hint(self) -> None:
        """Something was committed that somebody else may claim, or has to look after."""
        if self._connections is not None:
            self._connections.sender.send()

    def _enter(self, is_open: Callable[[], bool]) -> None:
        _INSIDE.set((self, is_open))

    def _refuse_inside(self) -> None:
        inside = _INSIDE.get()
        if inside is not None and inside[0] is self and inside[1]():
            raise Refused(
                what="a write to the store inside its own transaction",
                why="it could wait for a lock that the transaction holds; leave the transaction first",
            )

    def _connected(self) -> Connections:
        if self._connections is None:
            raise StoreUnavailable(store=self.name, why="it is not open")
        return self._connections
