"""Brings a database to this release's schema: numbered files, forward only, each applied once under the write lock.

A file that was applied is never edited: its digest is kept in the database and compared at every open.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from outlive.model.errors import NotAStore, OutliveError, StoreUnavailable
from outlive.store import upkeep
from outlive.store.sqlite.connection import HERE, SETUP, connect_reader, translated
from outlive.store.sqlite.turnstile import Turnstile
from outlive.store.upkeep import Applied, Migration, Told


def migrations(folder: Path = HERE / "migrations") -> list[Migration]:
    """The files of this release, or those of a folder, in order."""
    return upkeep.migrations(folder)


# Tables of the first release, by which a store is known.
_OURS = ("migration", "run", "entry", "operation")

_MAKES = "the first start makes it, or `outlive db init`"


def examine(
    path: Path, *, store: str, existing: bool, wait: float = 10.0, known: Sequence[Migration] | None = None
) -> None:
    """See whose file this is, and change nothing: what is not ours must not be migrated, nor get lock files beside it.

    With `existing` it has to be a store that this release can read as it is; otherwise it may be missing or empty.
    Raises NotAStore, StoreUnavailable, StoreBusy, SchemaTooNew.
    """
    path = path.absolute()
    try:
        empty = not _begun(path)
    except FileNotFoundError:
        if existing:
            raise StoreUnavailable(store=store, why=f"there is no such database; {_MAKES}") from None
        if not path.parent.is_dir():
            raise StoreUnavailable(store=store, why=f"there is no directory {path.parent}") from None
        if not _writable(path.parent):
            raise _closed_directory(path, store) from None
        return
    except OSError as error:
        raise StoreUnavailable(store=store, why=str(error.strerror)) from error
    try:
        empty = empty or _empty(path, store, wait=wait)
        if not empty and existing:
            with closing(connect_reader(path, wait=wait)) as database:
                if upkeep.missing(known or migrations(), applied(database), store=store):
                    raise upkeep.outdated(store)
    except sqlite3.Error as error:
        raise _unreadable(error, path, store) from error
    if empty and existing:
        raise StoreUnavailable(store=store, why=f"{_shown(path)} is empty: {_MAKES}")
    if empty and not _writable(path.parent):
        raise _closed_directory(path, store)


def _begun(path: Path) -> bool:
    """Whether there is more than an empty file. Raises NotAStore for what is no file.

    It is not opened here: closing it would take away the locks that other connections of this process have on it.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise NotAStore(store=_shown(path), why="it is no ordinary file")
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return found.st_size > 0


def _empty(path: Path, store: str, *, wait: float) -> bool:
    """Whether the database has no table. Raises NotAStore for one whose tables are not ours."""
    with closing(connect_reader(path, wait=wait)) as database:
        tables = [str(row[0]) for row in database.execute(SETUP["tables"])]
    if tables and not {*_OURS} <= {*tables}:
        raise NotAStore(store=_shown(path), why=f"it has {upkeep.tables(tables)}")
    return not tables


def _unreadable(error: sqlite3.Error, path: Path, store: str) -> OutliveError:
    if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
        return NotAStore(store=_shown(path), why="it is no SQLite database")
    return translated(error, store) if _writable(path.parent) else _closed_directory(path, store)


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _writable(directory: Path) -> bool:
    return os.access(directory, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _closed_directory(path: Path, store: str) -> StoreUnavailable:
    return StoreUnavailable(store=store, why=f"it needs write access to {path.parent} for its lock files")


def migrate(
    database: sqlite3.Connection,
    turnstile: Turnstile,
    known: Sequence[Migration],
    *,
    store: str,
    told: Told = upkeep.silent,
) -> None:
    """Apply what is missing, each file in full or not at all.

    A database that is up to date is only read: a long writer does not stop an open. Raises SchemaTooNew,
    StoreUnavailable, StoreBusy, and what the driver raises.
    """
    while left := upkeep.missing(known, applied(database), store=store):
        with turnstile.held():
            _apply(database, known, left[0], store=store, told=told)


def _apply(
    database: sqlite3.Connection, known: Sequence[Migration], next_one: Migration, *, store: str, told: Told
) -> None:
    database.execute(SETUP["begin"])
    try:
        # Another process may have been faster.
        if next_one not in upkeep.missing(known, applied(database), store=store):
            return
        told(next_one.name, "applying")
        for statement in statements(next_one.text):
            database.execute(statement)
        database.execute(
            SETUP["record_migration"], {"number": next_one.number, "name": next_one.name, "sha256": next_one.sha256}
        )
        database.execute(SETUP["commit"])
    finally:
        if database.in_transaction:
            database.execute(SETUP["rollback"])
    told(next_one.name, "applied")


def applied(database: sqlite3.Connection) -> list[Applied]:
    """What was applied, in order."""
    if database.execute(SETUP["has_migrations"]).fetchone() is None:
        return []
    rows = database.execute(SETUP["migrations"])
    return [Applied(row["number"], "whole", row["name"], row["sha256"]) for row in rows]


def statements(text: str) -> Iterator[str]:
    """The statements of a file one by one: `executescript` would end the transaction around them."""
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def schema(database: sqlite3.Connection) -> str:
    """All tables, indexes and views as text."""
    return "".join(f"{row[0]};\n\n" for row in database.execute(SETUP["schema"]))
