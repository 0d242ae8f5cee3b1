"""Brings a database to this release's schema: numbered files, forward only, each applied once under the write lock.

A file that was applied is never edited: its digest is kept in the database and compared at every open.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlive.model.errors import SchemaTooNew, StoreUnavailable
from outlive.store.sqlite.connection import HERE, SETUP
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
