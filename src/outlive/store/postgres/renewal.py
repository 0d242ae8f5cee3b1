"""Renewals: over a blocking connection of their own, because they come from a thread that goes on when the event loop
does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import psycopg
from psycopg.rows import TupleRow

from outlive.model.errors import StoreUnavailable
from outlive.model.ids import Owner
from outlive.model.run import Authority
from outlive.store.columns import Parameters, check_text, to_json
from outlive.store.port import Renewed
from outlive.store.postgres.connection import (
    CROSSED,
    MOST_ATTEMPTS,
    Statements,
    has_gone,
    is_lost,
    limited_in_thread,
    translated,
)


class Renewals:
    """One statement at a time; a connection that has gone is made anew at the next one."""

    def __init__(
        self, connect: Callable[[], psycopg.Connection[TupleRow]], sql: Statements, *, store: str, wait: float
    ) -> None:
        self._connect, self._statement, self._store, self._wait = connect, sql.renewal(), store, wait
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._lock, self._open = threading.Lock(), True

    def renew(
        self, owner: Owner, held: Sequence[Authority], lease_ms: int, sign: Parameters, now: int | None
    ) -> Renewed:
        """As the port's `renew`; `sign` is what `sign_parameters` makes."""
        given = [
            {"place": place, "tenant": one.tenant, "run": one.run, "epoch": one.epoch, "token": one.token}
            for place, one in enumerate(held)
        ]
        parameters: Parameters = {
            "held": to_json(given), "owner": owner, "lease_ms": lease_ms, "now": now, **sign,
        }  # fmt: skip
        for one in (parameters, *given):
            check_text(one, "a renewal")
        with self._lock:
            found = self._execute(parameters)
        kept = {held[row[1]]: bool(row[2]) for row in found if row[1] is not None}
        unread = frozenset((one.tenant, one.run) for one, has_unread in kept.items() if has_unread)
        return Renewed(int(found[0][0]), frozenset(kept), unread, found[0][3] or "")

    def ready(self) -> None:
        """Connect, if nothing is connected. Raises StoreUnavailable."""
        with self._lock:
            self._connected()

    def close(self) -> None:
        """Wait for a renewal on its way, then disconnect."""
        with self._lock:
            self._open = False
            self._drop()

    def _execute(self, parameters: Parameters) -> list[TupleRow]:
        lost = 0
        for attempt in range(1, MOST_ATTEMPTS + 1):
            connection = self._connected()
            try:
                with limited_in_thread(connection, wait=self._wait):
                    return connection.execute(self._statement, parameters).fetchall()
            except psycopg.Error as error:
                if is_lost(error):
                    lost += 1
                    self._drop()
                # A renewal may be sent twice: the second one does what the first one did.
                again = error.sqlstate in CROSSED or (is_lost(error) and lost == 1)
                if again and attempt < MOST_ATTEMPTS:
                    continue
                raise translated(error, self._store, wrote=True) from error
        raise AssertionError("unreachable")

    def _connected(self) -> psycopg.Connection[TupleRow]:
        if not self._open:
            raise StoreUnavailable(store=self._store, why="it is closed")
        if self._connection is not None and has_gone(self._connection):
            self._drop()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
