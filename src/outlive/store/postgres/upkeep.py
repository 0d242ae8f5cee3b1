"""The care of a schema: connects, judges the server, and looks or migrates; an open store begins with it too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import psycopg

from outlive.model.errors import NotAStore, OutliveError, UnsafeDurability
from outlive.store import upkeep
from outlive.store.port import WorkerRow
from outlive.store.postgres.connection import (
    OLDEST,
    Place,
    Statements,
    connect,
    place_of,
    translated,
    unavailable,
)
from outlive.store.postgres.identity import unsafe_failover
from outlive.store.postgres.migrate import (
    Connection,
    examine,
    expect,
    migrate,
    migrations,
    older_workers,
    unsafe_settings,
)
from outlive.store.upkeep import Condition, Migration, Told


class PostgresUpkeep:
    """See `Upkeep` for its contract. `known` are the migrations to go by, this release's if not given."""

    def __init__(
        self,
        place: Place,
        *,
        unsafe_durability: bool = False,
        wait: float = 10.0,
        known: Sequence[Migration] | None = None,
    ) -> None:
        self.name = place.name
        self.known = tuple(known or migrations())
        self._place, self._unsafe, self._wait = place, unsafe_durability, wait
        self._sql = Statements(place.schema)

    async def look(self) -> Condition:
        """See `Upkeep`. All of it is seen in one transaction that cannot write."""
        async with self._connected() as connection:
            await connection.set_read_only(True)
            async with connection.transaction():
                settings = await self._settings(connection)
                [(replicas,)] = await (await connection.execute(self._sql["replicas"])).fetchall()
                applied, older, wrong = None, list[WorkerRow](), self._too_old(settings)
                try:
                    applied = await examine(connection, self._place, self._sql)
                except NotAStore as error:
                    wrong = wrong or error
                if applied is not None:
                    older = await older_workers(connection, self._sql, upkeep.newest(self.known))
        return Condition(
            server=f"PostgreSQL {settings['server_version']}", applied=applied, known=self.known,
            unsafe=tuple(unsafe_settings(settings)), warnings=tuple(unsafe_failover(settings, int(replicas))),
            older=tuple(older), wrong=wrong,
        )  # fmt: skip

    async def migrate(self, *, finish: bool = False, told: Told = upkeep.silent) -> list[WorkerRow]:
        """See `Upkeep`."""
        async with self._usable() as connection:
            return await migrate(
                connection, self._place, self._sql, self.known, finish=finish, wait=self._wait, told=told
            )

    async def expect(self) -> None:
        """See that this release can work on the schema as it is.

        Raises StoreUnavailable, NotAStore, SchemaTooNew, UnsafeDurability.
        """
        async with self._usable() as connection:
            await expect(connection, self._place, self._sql, self.known)

    @asynccontextmanager
    async def _usable(self) -> AsyncIterator[Connection]:
        """A connection to a server that is new enough and durable."""
        async with self._connected() as connection:
            settings = await self._settings(connection)
            if (too_old := self._too_old(settings)) is not None:
                raise too_old
            if (encoding := settings["server_encoding"]) != "UTF8":
                raise unavailable(self._place, f"its encoding is {encoding}, which cannot hold all text; make it UTF8")
            found = unsafe_settings(settings)
            if found and not self._unsafe:
                raise UnsafeDurability(store=self.name, setting=", ".join(found))
            yield connection

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        connection = await connect(self._place, wait=self._wait)
        try:
            yield connection
        except psycopg.Error as error:
            raise translated(error, self.name) from error
        finally:
            await connection.close()

    async def _settings(self, connection: Connection) -> Mapping[str, str]:
        return dict(await (await connection.execute(self._sql["settings"])).fetchall())

    def _too_old(self, settings: Mapping[str, str]) -> OutliveError | None:
        if int(settings["server_version_num"]) < OLDEST:
            return unavailable(self._place, f"the server is older than PostgreSQL {OLDEST // 10_000}")
        return None


def upkeep_of(url: str, *, unsafe_durability: bool = False) -> PostgresUpkeep:
    """The care of the schema that a URL names; see `place_of`. Raises SettingInvalid."""
    return PostgresUpkeep(place_of(url), unsafe_durability=unsafe_durability)
