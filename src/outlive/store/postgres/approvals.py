"""Approvals: a vote is judged by what was read, and set by one statement that compares it; if somebody was faster it is
judged anew.
"""

from __future__ import annotations

from outlive.model.approval import ApprovalFilter, ApprovalRow, ApprovalStatus, Reading, Vote, judge
from outlive.model.errors import StoreBusy, UnknownApproval
from outlive.model.ids import ApprovalId, Tenant
from outlive.store import columns
from outlive.store.postgres.base import Base

# Each time somebody else has decided meanwhile, and an approval is decided by few.
_MOST = 100


class PostgresApprovals(Base):
    """The port's `Approvals`; its contract is there."""

    async def approval(self, tenant: Tenant, id: ApprovalId) -> Reading | None:
        found = await self._seen(tenant, id, None)
        return None if found is None else found[0]

    async def approvals(self, tenant: Tenant, which: ApprovalFilter) -> list[ApprovalRow]:
        parameters: columns.Parameters = {
            "tenant": tenant, "statuses": list(which.statuses), "role": which.role, "run": which.run,
            "limit": which.limit,
        }  # fmt: skip
        return [columns.approval_row(row) for row in await self._read(self._sql["find_approvals"], parameters)]

    async def vote(self, tenant: Tenant, id: ApprovalId, vote: Vote, *, now: int | None = None) -> ApprovalRow:
        columns.check_text(columns.said(vote), f"approval {id}")
        query = self._sql.built("decide_approval", ("add_vote", "tell_run"), "accepted_rows")
        for _ in range(_MOST):
            found = await self._seen(tenant, id, now)
            if found is None:
                raise UnknownApproval(approval=id)
            seen, at = found
            ruling = judge(seen.row, seen.votes, vote, at)
            parameters = {**columns.vote_parameters(seen.row, vote, ruling), "now": self._at(now)}
            if changed := await self._write(query, parameters):
                row = columns.approval_row(changed[0])
                if not row.open:
                    self._hint()
                return row
        raise StoreBusy(store=self.name, why=f"approval {id} is being decided by many at once")

    async def end_approval(
        self, tenant: Tenant, id: ApprovalId, status: ApprovalStatus, why: str, *, now: int | None = None
    ) -> ApprovalRow | None:
        parameters: columns.Parameters = {
            "tenant": tenant, "id": id, "status": status, "why": why, "now": self._at(now)
        }  # fmt: skip
        await self._write(self._sql["end_approval"], parameters)
        found = await self._seen(tenant, id, now)
        return None if found is None else found[0].row

    async def _seen(self, tenant: Tenant, id: ApprovalId, now: int | None) -> tuple[Reading, int] | None:
        """The votes are read after the row: more of them than it counts only make the comparison fail."""
        parameters: columns.Parameters = {"tenant": tenant, "id": id, "now": self._at(now)}
        found = await self._read(self._sql["find_approval"], parameters)
        if not found:
            return None
        votes = await self._read(self._sql["find_votes"], parameters)
        return Reading(columns.approval_row(found[0]), tuple(map(columns.vote_row, votes))), int(found[0]["moment"])
