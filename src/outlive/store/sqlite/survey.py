"""The survey of a file: reads that follow each other, each as large as its page."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from outlive.model.ids import OperationId, RunId, Tenant
from outlive.model.run import RunRow
from outlive.store import columns
from outlive.store.sql import load
from outlive.store.sqlite import rows
from outlive.store.sqlite.base import Base
from outlive.store.sqlite.connection import QUERIES, SETUP
from outlive.store.survey import Consents, Homeless, Recorded, Seen, Stray, consents

_STATEMENTS = load(Path(__file__).with_name("survey.sql"))


class SQLiteSurvey(Base):
    """The port's `Survey`; its contract is there."""

    async def open_runs(self, *, after: tuple[Tenant, RunId], limit: int) -> list[Seen]:
        found = await self._runs("open_runs", {"tenant": after[0], "run": after[1], "limit": limit})
        return [
            Seen(
                rows.run_row(row), bool(row["unread"]), frozenset(json.loads(row["diverged"])), bool(row["asked"])
            )
            for row in found
        ]  # fmt: skip

    async def runs_of(self, tenant: Tenant, *, after: RunId, limit: int) -> list[RunRow]:
        found = await self._runs("runs_of", {"tenant": tenant, "run": after, "limit": limit})
        return [rows.run_row(row) for row in found]

    async def recorded(self, tenant: Tenant, run: RunId) -> list[Recorded]:
        found = await self._rows(QUERIES["find_operations"], {"tenant": tenant, "run": run})
        return [_recorded(row) for row in found]

    async def consents(self, tenant: Tenant, run: RunId) -> Consents:
        given = {"tenant": tenant, "run": run}

        def find(database: sqlite3.Connection) -> Consents:
            database.execute(SETUP["begin_read"])
            try:
                imported, asked, votes = [
                    database.execute(_STATEMENTS[name], given).fetchall()
                    for name in ("imported", "approvals_of_run", "votes_of_run")
                ]
            finally:
                database.execute(SETUP["rollback"])
            voted = [(row["approval"], columns.vote_row(row)) for row in votes]
            return consents(imported, [columns.approval_row(row) for row in asked], voted)

        return await self._read(find)

    async def misclassed(self, tenant: Tenant, run: RunId) -> Mapping[int, str]:
        return {
            row[0]: row[1] for row in await self._rows(_STATEMENTS["misclassed"], {"tenant": tenant, "run": run})
        }  # fmt: skip

    async def unnamed_blobs(self, *, after: Stray, limit: int) -> list[Stray]:
        return [_stray(row) for row in await self._rows(_STATEMENTS["unnamed_blobs"], _behind(after, limit))]

    async def missing_blobs(self, *, after: Stray, limit: int) -> list[Stray]:
        return [_stray(row) for row in await self._rows(_STATEMENTS["missing_blobs"], _behind(after, limit))]

    async def homeless(self, tenant: Tenant, *, limit: int) -> list[Homeless]:
        found = await self._rows(_STATEMENTS["homeless"], {"tenant": tenant, "limit": limit})
        return [Homeless(RunId(row[0]), row[1]) for row in found]

    async def _runs(self, name: str, parameters: columns.Parameters) -> list[sqlite3.Row]:
        return await self._read(lambda database: rows.of_runs(database, _STATEMENTS[name], parameters))

    async def _rows(self, statement: str, parameters: columns.Parameters) -> list[sqlite3.Row]:
        return await self._read(lambda database: list(database.execute(statement, parameters)))


def _behind(after: Stray, limit: int) -> columns.Parameters:
    return {
        "tenant": after.tenant, "address": bytes.fromhex(after.address), "run": after.run, "seq": after.seq,
        "limit": limit,
    }  # fmt: skip


def _stray(row: sqlite3.Row) -> Stray:
    return Stray(Tenant(row[0]), row[1], RunId(row[2]), row[3])


def _recorded(row: sqlite3.Row) -> Recorded:
    id = OperationId(row["id"])
    try:
        return Recorded(id, columns.operation_row(row), row["data_class"], row["key_id"])
    except ValueError as error:
        return Recorded(id, None, row["data_class"], row["key_id"], str(error))
