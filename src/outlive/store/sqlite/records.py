"""What people and other processes read and write beside the log."""

from __future__ import annotations

import sqlite3

from outlive.model.errors import UnknownRun
from outlive.model.ids import OperationId, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import RunFilter, RunRow
from outlive.store import columns
from outlive.store.port import Divergence, Message
from outlive.store.sqlite import rows
from outlive.store.sqlite.base import Base, clock
from outlive.store.sqlite.connection import QUERIES, unsafe_settings


class SQLiteRecords(Base):
    """The port's `Records`; its contract is there."""

    async def now(self) -> int:
        return await self._read(lambda database: self._at(None, clock(database)))

    async def run(self, tenant: Tenant, run: RunId) -> RunRow | None:
        return await self._read(lambda database: find_run(database, tenant, run))

    async def runs(self, tenant: Tenant, which: RunFilter) -> list[RunRow]:
        parameters = {
            "tenant": tenant,
            "statuses": columns.to_json(list(which.statuses)),
            "agent": which.agent,
            "reason": which.reason,
            "paused": which.paused,
            "labels": columns.to_json(which.labels),
            "limit": which.limit,
            **columns.place_parameters(which),
        }
        return await self._read(
            lambda database: [rows.run_row(row) for row in rows.of_runs(database, QUERIES["find_runs"], parameters)]
        )

    async def operations(self, tenant: Tenant, run: RunId) -> list[OperationRow]:
        parameters = {"tenant": tenant, "run": run}
        return await self._read(
            lambda database: [
                columns.operation_row(row) for row in database.execute(QUERIES["find_operations"], parameters)
            ]
        )

    async def operation(self, tenant: Tenant, operation: OperationId) -> OperationRow | None:
        def find(database: sqlite3.Connection) -> OperationRow | None:
            parameters = {"tenant": tenant, "operation": operation}
            row = database.execute(QUERIES["find_operation"], parameters).fetchone()
            return None if row is None else columns.operation_row(row)

        return await self._read(find)

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        parameters = {"tenant": tenant, "origin": origin, "tool": tool, "digest": digest, "key": key}
        return await self._read(
            lambda database: [columns.operation_row(row) for row in database.execute(QUERIES["find_alike"], parameters)]
        )

    async def rollbacks(self, tenant: Tenant, run: RunId) -> list[RunRow]:
        parameters: columns.Parameters = {"tenant": tenant, "run": run}
        return await self._read(
            lambda database: [
                rows.run_row(row) for row in rows.of_runs(database, QUERIES["find_rollbacks"], parameters)
            ]
        )

    async def post(self, message: Message, *, now: int | None = None) -> bool:
        parameters: columns.Parameters = {
            "tenant": message.tenant,
            "run": message.run,
            "topic": message.topic,
            "sender_key": message.sender_key,
            "body": message.body,
        }
        columns.check_text(parameters, f"a message to run {message.run}")

        def add(database: sqlite3.Connection, clock: int) -> bool:
            if database.execute(QUERIES["add_message"], {**parameters, "now": self._at(now, clock)}).rowcount == 1:
                return True
            if not database.execute(QUERIES["run_exists"], {"tenant": message.tenant, "run": message.run}).fetchone()[
                0
            ]:
                raise UnknownRun(run=message.run)
            return False

        added = await self._write(add)
        if added:
            self._hint()
        return added

    async def unread(self, tenant: Tenant, run: RunId) -> list[Message]:
        parameters = {"tenant": tenant, "run": run}
        return await self._read(
            lambda database: [rows.message(tenant, run, row) for row in database.execute(QUERIES["unread"], parameters)]
        )

    async def divergences(self, tenant: Tenant, run: RunId) -> list[Divergence]:
        parameters = {"tenant": tenant, "run": run}
        return await self._read(
            lambda database: [
                Divergence(code, report) for code, report in database.execute(QUERIES["find_divergences"], parameters)
            ]
        )

    async def durability(self) -> list[str]:
        return await self._write(lambda database, _: unsafe_settings(database, self._path), bare=True)


def find_run(database: sqlite3.Connection, tenant: Tenant, run: RunId) -> RunRow | None:
    """The row of a run, or None."""
    found = rows.of_runs(database, QUERIES["find_run"], {"tenant": tenant, "run": run})
    return rows.run_row(found[0]) if found else None
