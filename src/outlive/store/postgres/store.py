"""The store as one object: connects, migrates, checks durability, and disconnects."""

from __future__ import annotations

import asyncio
from functools import partial

import psycopg
from psycopg_pool import AsyncConnectionPool

from outlive.model.clock import Clock
from outlive.model.errors import UnsafeDurability
from outlive.store.postgres.append import Committer
from outlive.store.postgres.base import Connection, Connections
from outlive.store.postgres.connection import (
    OLDEST,
    Place,
    arguments,
    connect,
    connect_blocking,
    place_of,
    translated,
    unavailable,
)
from outlive.store.postgres.log import PostgresLog
from outlive.store.postgres.migrate import migrate, migrations, unsafe_settings
from outlive.store.postgres.records import PostgresRecords
from outlive.store.postgres.renewal import Renewals
from outlive.store.postgres.work import PostgresWork


class PostgresStore(PostgresLog, PostgresWork, PostgresRecords):
    """A schema of a PostgreSQL database; see the port for its contract. It belongs to the event loop that opens it.

    `wait` is how many seconds a call waits for a connection or a lock. `most` is how many connections the pool may
    have; two more are for appends and renewals.
    """

    def __init__(
        self, place: Place, *, clock: Clock, unsafe_durability: bool = False, wait: float = 10.0, most: int = 6
    ) -> None:
        super().__init__(place, clock=clock, unsafe_durability=unsafe_durability, wait=wait)
        self._most = most

    async def open(self) -> None:
        """See the port. The schema is made if it is missing."""
        if self._connections is not None:
            return
        await self._set_up()
        pool = AsyncConnectionPool[Connection](
            self._place.conninfo,
            kwargs=arguments(self._place, wait=self._wait),
            min_size=1,
            max_size=self._most,
            timeout=self._wait,
            open=False,
            name="outlive",
        )
        await pool.open()
        self._connections = Connections(
            pool,
            Committer(partial(connect, self._place, wait=self._wait), self._sql, self._tasks, store=self.name),
            Renewals(partial(connect_blocking, self._place, wait=self._wait), self._sql, store=self.name),
        )

    async def close(self) -> None:
        """See the port. A store that is not open stays so."""
        if self._connections is None:
            return
        connections, self._connections = self._connections, None
        await connections.committer.close()
        await asyncio.to_thread(connections.renewals.close)
        await connections.pool.close()

    async def _set_up(self) -> None:
        connection = await connect(self._place, wait=self._wait)
        try:
            settings: dict[str, str] = dict(await (await connection.execute(self._sql["settings"])).fetchall())
            if int(settings["server_version_num"]) < OLDEST:
                raise unavailable(self._place, f"the server is older than PostgreSQL {OLDEST // 10_000}")
            found = unsafe_settings(settings)
            if found and not self._unsafe:
                raise UnsafeDurability(store=self.name, setting=", ".join(found))
            await migrate(connection, self._place, self._sql, migrations())
        except psycopg.Error as error:
            raise translated(error, self.name) from error
        finally:
            await connection.close()


async def open_postgres(url: str, *, clock: Clock, unsafe_durability: bool = False) -> PostgresStore:
    """Open `postgresql://user@host/database`; options are those of `place_of`.

    Raises SettingInvalid for another URL, and what `open` raises.
    """
    store = PostgresStore(place_of(url), clock=clock, unsafe_durability=unsafe_durability)
    await store.open()
    return store
