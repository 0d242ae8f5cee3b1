"""Brings a database to this release's schema: numbered files, forward only, each applied once under the write lock.

A file that was applied is never edited: its digest is kept in the database and compared at every open.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from outlive.model.errors import NotAStore, SchemaTooNew, StoreUnavailable
from outlive.store.sqlite.connection import HERE, SETUP, connect_reader, translated
from outlive.store.sqlite.turnstile import Turnstile


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    name: str
    text: str
    sha256: str


def migrations(folder: Path = HERE / "migrations") -> list[Migration]:
    """All files of a folder, in order."""
    found = []
    for path in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql")):
        data = path.read_bytes()
        found.append(Migration(int(path.name[:4]), path.name, data.decode(), hashlib.sha256(data).hexdigest()))
    return found


# What every database file begins with, but for an empty one.
_MAGIC = b"SQLite format 3\0"

# Tables of the first release, by which a store is known.
_OURS = ("migration", "run", "entry", "operation")


def examine(path: Path, *, store: str, existing: bool, wait: float = 10.0) -> None:
    """See whose file this is, and change nothing: what is not ours must not be migrated, nor get lock files beside it.

    With `existing` it has to be a store that this release can read as it is; otherwise it may be missing or empty.
    Raises NotAStore, StoreUnavailable, StoreBusy, SchemaTooNew.
    """
    path = path.absolute()
    try:
        empty = not _begun(path)
    except FileNotFoundError:
        if existing:
            raise StoreUnavailable(store=store, why="there is no such database; the first start makes it") from None
        if not path.parent.is_dir():
            raise StoreUnavailable(store=store, why=f"there is no directory {path.parent}") from None
        if not _writable(path.parent):
            raise _closed_directory(path, store) from None
        return
    except OSError as error:
        raise StoreUnavailable(store=store, why=str(error.strerror)) from error
    try:
        empty = empty or _empty(path, store, existing=existing, wait=wait)
    except sqlite3.Error as error:
        if not _writable(path.parent):
            raise _closed_directory(path, store) from error
        raise translated(error, store) from error
    if empty and existing:
        raise StoreUnavailable(store=store, why=f"{_shown(path)} is empty: the first start makes it")
    if empty and not _writable(path.parent):
        raise _closed_directory(path, store)


def _begun(path: Path) -> bool:
    """Whether there is more than an empty file. Raises NotAStore for what is no database at all."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise NotAStore(store=_shown(path), why="it is no ordinary file")
    with path.open("rb") as file:
        head = file.read(len(_MAGIC))
    if head not in (b"", _MAGIC):
        raise NotAStore(store=_shown(path), why="it is no SQLite database")
    return head != b""


def _empty(path: Path, store: str, *, existing: bool, wait: float) -> bool:
    """Whether the database has no table. Raises NotAStore for one whose tables are not ours."""
    with closing(connect_reader(path, wait=wait)) as database:
        tables = [str(row[0]) for row in database.execute(SETUP["tables"])]
        if tables and not {*_OURS} <= {*tables}:
            more = f" and {len(tables) - 3} more" if len(tables) > 3 else ""
            named = f"table{'s' if len(tables) > 1 else ''} {', '.join(tables[:3])}{more}"
            raise NotAStore(store=_shown(path), why=f"it has {named}")
        if tables and existing and _missing(database, migrations(), store):
            why = "an older release made it; the next start, run or worker brings it up to date"
            raise StoreUnavailable(store=store, why=why)
    return not tables


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _writable(directory: Path) -> bool:
    return os.access(directory, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _closed_directory(path: Path, store: str) -> StoreUnavailable:
    return StoreUnavailable(store=store, why=f"it needs write access to {path.parent} for its lock files")


def migrate(database: sqlite3.Connection, turnstile: Turnstile, known: list[Migration], *, store: str) -> None:
    """Apply what is missing. A database that is up to date is only read: a long writer does not stop an open."""
    if not _missing(database, known, store):
        return
    with turnstile.held():
        database.execute(SETUP["begin"])
        try:
            # Another process may have been faster.
            for migration in _missing(database, known, store):
                for statement in statements(migration.text):
                    database.execute(statement)
                database.execute(
                    SETUP["record_migration"],
                    {"number": migration.number, "name": migration.name, "sha256": migration.sha256},
                )
            database.execute(SETUP["commit"])
        finally:
            if database.in_transaction:
                database.execute(SETUP["rollback"])


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


def _missing(database: sqlite3.Connection, known: list[Migration], store: str) -> list[Migration]:
    applied: dict[int, sqlite3.Row] = {}
    if database.execute(SETUP["has_migrations"]).fetchone():
        applied = {row["number"]: row for row in database.execute(SETUP["migrations"])}
    newest = max((migration.number for migration in known), default=0)
    if applied and max(applied) > newest:
        raise SchemaTooNew(store=store, found=max(applied), known=newest)
    for migration in known:
        row = applied.get(migration.number)
        if row is not None and row["sha256"] != migration.sha256:
            raise StoreUnavailable(
                store=store,
                why=f"migration {row['name']} was applied with another content than {migration.name} has now",
            )
    return [migration for migration in known if migration.number not in applied]
