"""Approvals: a vote is judged and set inside the one transaction that writes it."""

from __future__ import annotations

import sqlite3

from outlive.model.approval import ApprovalFilter, ApprovalRow, ApprovalStatus, Reading, Vote, judge
from outlive.model.errors import UnknownApproval
from outlive.model.ids import ApprovalId, Tenant
from outlive.store import columns
from outlive.store.sqlite.base import Base
from outlive.store.sqlite.connection import QUERIES


class SQLiteApprovals(Base):
    """The port's `Approvals`; its contract is there."""

    async def approval(self, tenant: Tenant, id: ApprovalId) -> Reading | None:
        return await self._read(lambda database: _find(database, tenant, id))

    async def approvals(self, tenant: Tenant, which: ApprovalFilter) -> list[ApprovalRow]:
        parameters: columns.Parameters = {
            "tenant": tenant, "statuses": columns.to_json(list(which.statuses)), "role": which.role, "run": which.run,
            "limit": which.limit,
        }  # fmt: skip
        return await self._read(
            lambda database: [
                columns.approval_row(row) for row in database.execute(QUERIES["find_approvals"], parameters)
            ]
        )

    async def vote(self, tenant: Tenant, id: ApprovalId, vote: Vote, *, now: int | None = None) -> ApprovalRow:
        columns.check_text(columns.said(vote), f"approval {id}")

        def set_down(database: sqlite3.Connection, clock: int) -> ApprovalRow:
            at, found = self._at(now, clock), _find(database, tenant, id)
            if found is None:
                raise UnknownApproval(approval=id)
            ruling = judge(found.row, found.votes, vote, at)
            parameters = {**columns.vote_parameters(found.row, vote, ruling), "now": at}
            for statement in ("decide_approval", "add_vote", "tell_run"):
                database.execute(QUERIES[statement], parameters)
            after = _find(database, tenant, id)
            assert after is not None
            return after.row

        row = await self._write(set_down)
        if not row.open:
            self._hint()
        return row

    async def end_approval(
        self, tenant: Tenant, id: ApprovalId, status: ApprovalStatus, why: str, *, now: int | None = None
    ) -> ApprovalRow | None:
        def end(database: sqlite3.Connection, clock: int) -> ApprovalRow | None:
            parameters = {"tenant": tenant, "id": id, "status": status, "why": why, "now": self._at(now, clock)}
            database.execute(QUERIES["end_approval"], parameters)
            found = _find(database, tenant, id)
            return None if found is None else found.row

        return await self._write(end)


def _find(database: sqlite3.Connection, tenant: Tenant, id: ApprovalId) -> Reading | None:
    parameters = {"tenant": tenant, "id": id}
    row = database.execute(QUERIES["find_approval"], parameters).fetchone()
    if row is None:
        return None
    votes = database.execute(QUERIES["find_votes"], parameters).fetchall()
    return Reading(columns.approval_row(row), tuple(map(columns.vote_row, votes)))
