"""The survey of a schema: reads that follow each other, each as large as its page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from psycopg.rows import DictRow, TupleRow

from outlive.model.ids import OperationId, RunId, Tenant
from outlive.model.run import RunRow
from outlive.store import columns
from outlive.store.postgres.base import Base
from outlive.store.sql import load
from outlive.store.survey import Consents, Homeless, Recorded, Seen, Stray, consents

_STATEMENTS = load(Path(__file__).with_name("survey.sql"))


class PostgresSurvey(Base):
    """The port's `Survey`; its contract is there."""

    async def open_runs(self, *, after: tuple[Tenant, RunId], limit: int) -> list[Seen]:
        parameters: columns.Parameters = {"tenant": after[0], "run": after[1], "limit": limit}
        found = await self._read(self._statement("open_runs"), parameters)
        return [
            Seen(columns.run_row(row), row["unread"], frozenset(row["diverged"]), row["asked"]) for row in found
        ]  # fmt: skip

    async def runs_of(self, tenant: Tenant, *, after: RunId, limit: int) -> list[RunRow]:
        parameters: columns.Parameters = {"tenant": tenant, "run": after, "limit": limit}
        return [columns.run_row(row) for row in await self._read(self._statement("runs_of"), parameters)]

    async def recorded(self, tenant: Tenant, run: RunId) -> list[Recorded]:
        found = await self._read(self._sql["find_operations"], {"tenant": tenant, "run": run})
        return [_recorded(row) for row in found]

    async def consents(self, tenant: Tenant, run: RunId) -> Consents:
        given: columns.Parameters = {"tenant": tenant, "run": run}
        before, votes = list[DictRow](), list[DictRow]()
        # Votes between two equal readings of the rows that count them are of the same moment.
        while (asked := await self._read(self._statement("approvals_of_run"), given)) != before:
            before, votes = asked, await self._read(self._statement("votes_of_run"), given)
        imported = await self._read_tuples(self._statement("imported"), given)
        voted = [(row["approval"], columns.vote_row(row)) for row in votes]
        return consents(imported, [columns.approval_row(row) for row in asked], voted)

    async def misclassed(self, tenant: Tenant, run: RunId) -> Mapping[int, str]:
        found = await self._read_tuples(self._statement("misclassed"), {"tenant": tenant, "run": run})
        return {row[0]: row[1] for row in found}

    async def unnamed_blobs(self, *, after: Stray, limit: int) -> list[Stray]:
        found = await self._read_tuples(self._statement("unnamed_blobs"), _behind(after, limit))
        return [_stray(row) for row in found]

    async def missing_blobs(self, *, after: Stray, limit: int) -> list[Stray]:
        found = await self._read_tuples(self._statement("missing_blobs"), _behind(after, limit))
        return [_stray(row) for row in found]

    async def homeless(self, tenant: Tenant, *, limit: int) -> list[Homeless]:
        found = await self._read_tuples(self._statement("homeless"), {"tenant": tenant, "limit": limit})
        return [Homeless(RunId(row[0]), row[1]) for row in found]

    def _statement(self, name: str) -> bytes:
        return self._sql.fill(_STATEMENTS[name]).encode()


def _behind(after: Stray, limit: int) -> columns.Parameters:
    return {"tenant": after.tenant, "address": after.address, "run": after.run, "seq": after.seq, "limit": limit}


def _stray(row: TupleRow) -> Stray:
    return Stray(Tenant(row[0]), row[1], RunId(row[2]), row[3])


def _recorded(row: DictRow) -> Recorded:
    id = OperationId(row["id"])
    try:
        return Recorded(id, columns.operation_row(row), row["data_class"], row["key_id"])
    except ValueError as error:
        return Recorded(id, None, row["data_class"], row["key_id"], str(error))
