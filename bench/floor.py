"""The floor: what one durable step costs with the driver alone, one INSERT of the same bytes and one COMMIT.

The table has the shape of a log: keyed by tenant, run and seq. The driver does what it does by default. Nothing but
the driver is loaded: a process that is started again has to be a floor too.
"""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bench.places import Place
    from outlive.log.entry import Entry

_COLUMNS = (
    "tenant text not null, run_id text not null, seq bigint not null, epoch bigint not null, kind text not null,"
    " version bigint not null, at bigint not null, scope text not null, key text not null, body text not null,"
    " payload text, digest {bytes} not null, primary key (tenant, run_id, seq)"
)
_LAST = "select max(seq) from {}entry where tenant = 'default' and run_id = {}"


class Floor(Protocol):
    """A table and a connection to it."""

    def insert(self, count: int) -> float:
        """So many rows, each committed. Seconds for one."""
        ...

    def resume(self) -> int:
        """Go on after the last row that is there; how many there are."""
        ...

    def close(self) -> None: ...


class _Rows:
    """Rows with the bytes of an entry, numbered."""

    def __init__(self, entry: Entry, run: str) -> None:
        self.run, self._entry, self.seq = run, entry, 0

    def next(self) -> tuple[object, ...]:
        self.seq += 1
        one = self._entry
        return (
            "default", self.run, self.seq, one.epoch, one.kind, one.version, one.at, one.scope,
            one.key, one.body, one.payload, one.digest,
        )  # fmt: skip


class SQLiteFloor:
    """A file with the journal and the syncing that the store has."""

    def __init__(self, path: str, entry: Entry, run: str = "run") -> None:
        self._rows = _Rows(entry, run)
        self._database = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = full")
        columns = _COLUMNS.replace("bigint", "integer").format(bytes="blob")
        self._database.execute(f"create table if not exists entry ({columns}) strict, without rowid")

    def insert(self, count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            # Outside of a transaction of its own, each statement is one and is committed.
            self._database.execute("insert into entry values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._rows.next())
        return (time.perf_counter() - began) / count

    def resume(self) -> int:
        found = self._database.execute(_LAST.format("", "?"), (self._rows.run,)).fetchone()
        self._rows.seq = int(found[0] or 0)
        return self._rows.seq

    def close(self) -> None:
        self._database.close()


class PostgresFloor:
    """A schema beside the store's, over a synchronous connection in autocommit mode."""

    def __init__(self, conninfo: str, schema: str, entry: Entry, run: str = "run") -> None:
        import psycopg
        from psycopg import sql

        self._rows = _Rows(entry, run)
        self._connection = psycopg.connect(conninfo, autocommit=True)
        name = sql.Identifier(schema)
        self._connection.execute(sql.SQL("create schema if not exists {}").format(name))
        columns = sql.SQL(_COLUMNS.format(bytes="bytea"))
        self._connection.execute(sql.SQL("create table if not exists {}.entry ({})").format(name, columns))
        values = sql.SQL(", ").join([sql.Placeholder()] * 12)
        self._insert = sql.SQL("insert into {}.entry values ({})").format(name, values).as_bytes(self._connection)
        self._last = _LAST.format(f"{schema}.", "%s").encode()

    def insert(self, count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            self._connection.execute(self._insert, self._rows.next())
        return (time.perf_counter() - began) / count

    def resume(self) -> int:
        found = self._connection.execute(self._last, (self._rows.run,)).fetchone()
        self._rows.seq = int((found or (0,))[0] or 0)
        return self._rows.seq

    def close(self) -> None:
        self._connection.close()


def floor_at(place: Place, entry: Entry) -> Floor:
    """A new floor at this place for the bytes of this entry."""
    if place.sqlite:
        return SQLiteFloor(place.other(), entry)
    from outlive.store.postgres.connection import place_of

    return PostgresFloor(place_of(place.base).conninfo, place.other(), entry)
