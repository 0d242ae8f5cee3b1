"""A transaction of the user's own: a connection and a thread for itself, that hold the write lock while it is open.

It ends exactly once: by the commit of the append that joins it, or by a rollback, which a cancelled caller cannot skip.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from outlive.model.business import KeyMark, KeyRow
from outlive.model.errors import Refused
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import Head
from outlive.store.certain import Certain, outcome
from outlive.store.columns import check_text, key_parameters, operation_row
from outlive.store.port import Append
from outlive.store.sqlite.append import Prepared, execute, prepare, take_key
from outlive.store.sqlite.base import clock
from outlive.store.sqlite.connection import QUERIES, SETUP, translated
from outlive.store.sqlite.thread import Awaited, Connections, commit_failure
from outlive.store.sqlite.turnstile import Turnstile

T = TypeVar("T")

_OURS = frozenset(
    (
        "run", "entry", "blob", "operation", "inbox", "worker", "duty", "divergence", "notification", "delivery",
        "delta", "tenant", "migration", "approval", "vote", "business_key", "graph_thread", "graph_checkpoint",
        "graph_value", "graph_write", "graph_piece", "graph_chain", "graph_link", "graph_item", "transcript",
        "transcript_line",
    )
)  # fmt: skip
_CONTROL = frozenset((sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA))
# What changes a table, with the place of the table's name among the two arguments.
_CHANGES = {
    sqlite3.SQLITE_INSERT: 0,
    sqlite3.SQLITE_UPDATE: 0,
    sqlite3.SQLITE_DELETE: 0,
    sqlite3.SQLITE_DROP_TABLE: 0,
    sqlite3.SQLITE_ALTER_TABLE: 1,
    sqlite3.SQLITE_CREATE_TRIGGER: 1,
    # What is temporary comes before what is stored, where a statement of ours names a table.
    sqlite3.SQLITE_CREATE_TEMP_TABLE: 0,
    sqlite3.SQLITE_CREATE_TEMP_VIEW: 0,
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER: 1,
}


class OwnTransaction:
    """The port's `Transaction`; its contract is there. The user's SQL may not end it, nor write our tables."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        turnstile: Turnstile,
        *,
        key: Callable[[Tenant], Awaitable[bytes]],
        at: Callable[[int | None, int], int],
        store: str,
    ) -> None:
        self._key, self._at, self._store, self._turnstile = key, at, store, turnstile
        self._lane = Connections(connect, store=store, name="transaction", threads=1)
        self._held = ExitStack()
        self._open = True
        self._rolled_back: Exception | None = None

    def is_open(self) -> bool:
        """Whether the write lock is, or is about to be, held."""
        return self._open

    async def begin(self) -> None:
        """Wait for the turn and the lock. Raises StoreBusy."""
        await self._run(self._begin)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        self._refuse_ended()

        def run(database: sqlite3.Connection) -> list[tuple[object, ...]] | sqlite3.Error:
            self._refuse_outside(database)
            try:
                return [tuple(row) for row in database.execute(sql, tuple(parameters))]
            except sqlite3.Error as error:
                if not database.in_transaction:
                    self._rolled_back = error
                return error

        answer = await self._run(run)
        if isinstance(answer, sqlite3.Error):
            raise answer
        return answer

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        """The write lock that it has from its beginning is what others wait for."""
        self._refuse_ended()
        parameters = {"tenant": tenant, "origin": origin, "tool": tool, "digest": digest, "key": key}

        def find(database: sqlite3.Connection) -> list[OperationRow] | sqlite3.Error:
            try:
                return [operation_row(row) for row in database.execute(QUERIES["find_alike"], parameters)]
            except sqlite3.Error as error:
                return error

        answer = await self._run(find)
        if isinstance(answer, sqlite3.Error):
            raise translated(answer, self._store) from answer
        return answer

    async def take_key(self, tenant: Tenant, mark: KeyMark, *, now: int | None = None) -> KeyRow | None:
        self._refuse_ended()
        parameters = {**key_parameters(mark), "tenant": tenant}
        check_text(parameters, f"a business key of {mark.tool}")

        def take(database: sqlite3.Connection) -> KeyRow | sqlite3.Error | None:
            self._refuse_outside(database)
            database.set_authorizer(None)
            try:
                return take_key(database, parameters, self._at(now, clock(database)))
            except sqlite3.Error as error:
                return error
            finally:
                database.set_authorizer(_authorise)

        answer = await self._run(take)
        if isinstance(answer, sqlite3.Error):
            raise translated(answer, self._store) from answer
        return answer

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        self._refuse_ended()
        prepared = prepare(await self._key(append.authority.tenant), append)
        try:
            return await self._run(lambda database: self._commit(database, prepared, now))
        finally:
            self._open = False

    async def end(self) -> None:
        """Roll back what is not committed and let the lock go. It happens even if the caller does not wait for it."""
        self._open = False
        future: Certain[None] = Certain()
        self._lane.put(Awaited(lambda database, _: self._finish(database), future=future))
        self._lane.close()
        await outcome(future)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        request = Awaited(lambda database, _: work(database))
        self._lane.put(request)
        return await request.future

    def _begin(self, database: sqlite3.Connection) -> None:
        self._held.enter_context(self._turnstile.held())
        database.execute(SETUP["begin"])
        database.set_authorizer(_authorise)

    def _commit(self, database: sqlite3.Connection, prepared: Prepared, now: int | None) -> Head:
        database.set_authorizer(None)
        try:
            # Outside of the transaction each statement of the append would be a commit of its own.
            self._refuse_outside(database)
            head = execute(database, prepared, self._at(now, clock(database)))
            self._refuse_outside(database)
        except sqlite3.Error as error:
            self._release(database)
            raise translated(error, self._store) from error
        except BaseException:
            self._release(database)
            raise
        try:
            database.execute(SETUP["commit"])
        except sqlite3.IntegrityError as error:
            raise Refused(
                what="the transaction", why=f"a deferred constraint of its own does not hold: {error}"
            ) from error
        except sqlite3.Error as error:
            raise commit_failure(database, error, self._store) from error
        finally:
            self._release(database)
        return head

    def _release(self, database: sqlite3.Connection) -> None:
        try:
            database.set_authorizer(None)
            if database.in_transaction:
                database.execute(SETUP["rollback"])
        finally:
            # If the rollback failed, the lane closes the connection next, which rolls back as well.
            self._held.close()

    def _finish(self, database: sqlite3.Connection) -> None:
        try:
            self._release(database)
        finally:
            self._turnstile.close()

    def _refuse_outside(self, database: sqlite3.Connection) -> None:
        """On the lane, where it is known what the call before this one has done: it may have ended the transaction."""
        if not database.in_transaction:
            raise self._has_ended()

    def _refuse_ended(self) -> None:
        if not self._open:
            raise self._has_ended()

    def _has_ended(self) -> Refused:
        why = "an append ends it"
        if self._rolled_back is not None:
            # Some errors do (`or rollback`, `raise(rollback)`, a full disk), and their caller may go on.
            why = f"a statement rolled it back ({self._rolled_back}), so nothing can be committed with what it wrote"
        return Refused(what="a call in a transaction that has ended", why=f"{why}; begin another one")


def _authorise(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action in _CONTROL:
        return sqlite3.SQLITE_DENY
    place = _CHANGES.get(action)
    if place is not None and (first, second)[place] in _OURS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
