"""The care of a file: looks or migrates without an open store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from outlive.model.errors import NotAStore, OutliveError, StoreUnavailable, UnsafeDurability
from outlive.store import upkeep
from outlive.store.port import WorkerRow
from outlive.store.sqlite.connection import (
    OLDEST,
    SETUP,
    Synchronous,
    connect_reader,
    connect_writer,
    translated,
    unsafe_settings,
)
from outlive.store.sqlite.migrate import applied, examine, migrate, migrations
from outlive.store.sqlite.store import place_of
from outlive.store.sqlite.turnstile import Turnstile
from outlive.store.upkeep import Applied, Condition, Migration, Told


class SQLiteUpkeep:
    """See `Upkeep` for its contract. There are no stages: `finish` changes nothing, and no worker is waited for.

    `known` are the migrations to go by, this release's if not given.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str,
        synchronous: Synchronous = "full",
        unsafe_durability: bool = False,
        wait: float = 10.0,
        known: Sequence[Migration] | None = None,
    ) -> None:
        self.name = name
        self.known = tuple(known or migrations())
        self._path, self._synchronous, self._unsafe, self._wait = Path(path), synchronous, unsafe_durability, wait

    async def look(self) -> Condition:
        """See `Upkeep`."""
        return await asyncio.to_thread(self._look)

    async def migrate(self, *, finish: bool = False, told: Told = upkeep.silent) -> list[WorkerRow]:
        """See `Upkeep`. `told` is called in another thread."""
        await asyncio.to_thread(self._migrate, told)
        return []

    def _look(self) -> Condition:
        found: tuple[tuple[Applied, ...] | None, list[str]] = None, []
        wrong: OutliveError | None = None
        if sqlite3.sqlite_version_info < OLDEST:
            wrong = _too_old(self.name)
        try:
            examine(self._path, store=self.name, existing=False, wait=self._wait)
            if self._path.exists():
                found = self._read()
        except NotAStore as error:
            wrong = error
        except sqlite3.Error as error:
            raise translated(error, self.name) from error
        return Condition(
            server=f"SQLite {sqlite3.sqlite_version}", applied=found[0], known=self.known, unsafe=tuple(found[1]),
            wrong=wrong,
        )  # fmt: skip

    def _read(self) -> tuple[tuple[Applied, ...] | None, list[str]]:
        with closing(connect_reader(self._path, wait=self._wait)) as database:
            database.execute(SETUP[f"use_synchronous_{self._synchronous}"])
            there = tuple(applied(database))
            return (there, unsafe_settings(database, self._path)) if there else (None, [])

    def _migrate(self, told: Told) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise _too_old(self.name)
        examine(self._path, store=self.name, existing=False, wait=self._wait)
        turnstile = Turnstile(self._path, store=self.name, wait=self._wait)
        try:
            with closing(
                connect_writer(self._path, turnstile, wait=self._wait, synchronous=self._synchronous, create=True)
            ) as database:
                found = unsafe_settings(database, self._path)
                if found and not self._unsafe:
                    raise UnsafeDurability(store=self.name, setting=", ".join(found))
                migrate(database, turnstile, self.known, store=self.name, told=told)
        except sqlite3.Error as error:
            raise translated(error, self.name) from error
        finally:
            turnstile.close()


def _too_old(store: str) -> StoreUnavailable:
    oldest = ".".join(map(str, OLDEST[:2]))
    return StoreUnavailable(store=store, why=f"SQLite {sqlite3.sqlite_version} is older than {oldest}")


def upkeep_of(url: str, *, unsafe_durability: bool = False) -> SQLiteUpkeep:
    """The care of the file that a URL names. Raises SettingInvalid."""
    path, synchronous = place_of(url)
    return SQLiteUpkeep(path, name=url, synchronous=synchronous, unsafe_durability=unsafe_durability)
