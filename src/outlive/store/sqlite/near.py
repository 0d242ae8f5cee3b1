"""Commits on the thread of the event loop: a run that is alone with the database pays no hand-over between threads,
which costs as much as a fast disk's flush.

Nothing here waits for a lock: whatever is in the way is the writing thread's to wait for, and the loop goes on.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress

from outlive.model.errors import CommitUnknown
from outlive.model.run import Head
from outlive.store.sqlite.append import Prepared, execute
from outlive.store.sqlite.connection import QUERIES, SETUP, is_busy, translated
from outlive.store.sqlite.thread import commit_failure
from outlive.store.sqlite.turnstile import Turnstile

# Commits after which the journal is copied into the database by another thread. When that is done, the little that has
# been added meanwhile is copied here, because the journal begins anew only when all of it has been.
COPY_AFTER = 250


class Near:
    """A connection for appends of a run that is alone. Used by one thread alone."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        turnstile: Turnstile,
        *,
        store: str,
        copy: Callable[[], threading.Event],
    ) -> None:
        self._connect, self._turnstile, self._store, self._copy = connect, turnstile, store, copy
        self._database: sqlite3.Connection | None = None
        self._thread = threading.get_ident()
        self._commits = 0
        self._copied: threading.Event | None = None

    def append(self, prepared: Prepared, at: Callable[[int], int]) -> Head | None:
        """Store it, or None with nothing written where something is in the way. Raises as the port's `append`."""
        if threading.get_ident() != self._thread or not self._turnstile.taken():
            return None
        try:
            return self._commit(prepared, at)
        finally:
            self._turnstile.let_go()

    def close(self) -> None:
        """Close the connection, by the thread that uses it."""
        self._drop()
        self._turnstile.close()

    def _commit(self, prepared: Prepared, at: Callable[[int], int]) -> Head | None:
        try:
            database = self._database = self._database or self._connected()
            database.execute(SETUP["begin"])
        except sqlite3.Error as error:
            self._drop()
            if is_busy(error):
                return None
            raise translated(error, self._store) from error
        try:
            now = int(database.execute(QUERIES["clock"]).fetchone()[0])
            head = execute(database, prepared, at(now))
        except sqlite3.Error as error:
            self._undo(database)
            raise translated(error, self._store) from error
        except BaseException:
            self._undo(database)
            raise
        try:
            database.execute(SETUP["commit"])
        except sqlite3.Error as error:
            failure = commit_failure(database, error, self._store)
            self._undo(database)
            if isinstance(failure, CommitUnknown):
                self._drop()
            raise failure from error
        self._tidy(database)
        return head

    def _tidy(self, database: sqlite3.Connection) -> None:
        self._commits += 1
        if self._copied is not None and self._copied.is_set():
            self._commits, self._copied = 0, None
            # One that fails is made good by the next: the commit has happened.
            with suppress(sqlite3.Error):
                database.execute(SETUP["checkpoint"]).fetchall()
        elif self._copied is None and self._commits >= COPY_AFTER:
            self._copied = self._copy()

    def _connected(self) -> sqlite3.Connection:
        database = self._connect()
        database.execute(SETUP["use_no_checkpoints"])
        return database

    def _undo(self, database: sqlite3.Connection) -> None:
        try:
            if database.in_transaction:
                database.execute(SETUP["rollback"])
        except sqlite3.Error:
            # Closing it rolls back as well.
            self._drop()

    def _drop(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()
