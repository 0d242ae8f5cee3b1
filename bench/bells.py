"""The floor of a hint: one side rings, the other claims. Nothing but the driver is loaded.

On PostgreSQL it is LISTEN in one process, one INSERT with its NOTIFY in the other, one claiming UPDATE. A file tells
nobody of a write: on SQLite the floor looks every 5 ms.
"""

from __future__ import annotations

import sqlite3
from typing import Protocol

from bench.waiting import pause

LOOK_EVERY = 0.005


class Bell(Protocol):
    """One side of the floor rings, the other claims."""

    def ring(self) -> None: ...

    def claim(self) -> bool: ...

    def wait(self) -> None: ...


class SQLiteBell:
    """A table in a file, and a process that looks at it."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = full")
        self._database.execute("create table if not exists task (id integer primary key, owner text) strict")
        self._database.execute("create index if not exists task_free on task (id) where owner is null")

    def ring(self) -> None:
        self._database.execute("insert into task default values")

    def claim(self) -> bool:
        found = self._database.execute("select min(id) from task where owner is null").fetchone()[0]
        if found is None:
            return False
        changed = self._database.execute("update task set owner = 'me' where id = ? and owner is null", (found,))
        return changed.rowcount == 1

    def wait(self) -> None:
        pause(LOOK_EVERY)


class PostgresBell:
    """A table, and a process that listens."""

    def __init__(self, conninfo: str, schema: str) -> None:
        import psycopg

        self._schema = schema.encode()
        self._acting = psycopg.connect(conninfo, autocommit=True)
        self._listening = psycopg.connect(conninfo, autocommit=True)
        self._acting.execute(b"create schema if not exists " + self._schema)
        self._acting.execute(
            b"create table if not exists " + self._schema + b".task (id bigserial primary key, owner text)"
        )
        self._listening.execute(b"listen " + self._schema)

    def ring(self) -> None:
        self._acting.execute(
            b"with added as (insert into " + self._schema + b".task default values returning id)"
            b" select pg_notify('" + self._schema + b"', '') from added"
        )

    def claim(self) -> bool:
        cursor = self._acting.execute(
            b"update " + self._schema + b".task set owner = 'me' where id ="
            b" (select id from " + self._schema + b".task where owner is null limit 1 for update skip locked)"
        )
        return cursor.rowcount == 1

    def wait(self) -> None:
        for _ in self._listening.notifies(timeout=1, stop_after=1):
            return
