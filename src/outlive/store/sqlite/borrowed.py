"""A connection of the caller's own, in whose transaction a run is started.

Of what fails in it nothing is left, and nothing else of the connection is changed. Its transaction is the caller's to
end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outlive.model.errors import Refused
from outlive.store.sqlite.connection import SETUP, file_identity, translated


@contextmanager
def borrowed(connection: object, path: Path, store: str) -> Iterator[sqlite3.Connection]:
    """The caller's connection, in its transaction, for several statements of which all count or none.

    Raises Refused for what is no connection to this file, or commits every statement by itself.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise Refused(what=f"a start in {connection!r}", why="the runs are in SQLite: it takes a sqlite3.Connection")
    try:
        with _as_ours(connection):
            _check(connection, path)
            if not connection.in_transaction:
                connection.execute(SETUP["begin"])
            connection.execute(SETUP["savepoint"])
            try:
                yield connection
            except BaseException:
                # Some errors, a full disk for one, have ended the whole transaction.
                if connection.in_transaction:
                    connection.execute(SETUP["undo_savepoint"])
                    connection.execute(SETUP["release_savepoint"])
                raise
            connection.execute(SETUP["release_savepoint"])
    except sqlite3.ProgrammingError as error:
        raise Refused(what="a start in this connection", why=str(error)) from error
    except sqlite3.Error as error:
        raise translated(error, store) from error


def _check(connection: sqlite3.Connection, path: Path) -> None:
    files = [str(row[2]) for row in connection.execute(SETUP["files"]) if row[1] == "main"]
    if not files[0] or file_identity(Path(files[0])) != file_identity(path):
        why = f"it is open on {files[0] or 'no file'}, the runs are in {path}"
        raise Refused(what="a start in this connection", why=why)
    if not connection.in_transaction and connection.isolation_level is None:
        raise Refused(what="a start in this connection", why="it has no open transaction; begin one")


@contextmanager
def _as_ours(connection: sqlite3.Connection) -> Iterator[None]:
    """Rows as our code reads them; whose connection it is has them afterwards as before."""
    row, text = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = sqlite3.Row, str
    try:
        yield
    finally:
        connection.row_factory, connection.text_factory = row, text
