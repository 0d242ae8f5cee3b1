"""The part of the store port that approvals are decided by: each in a row of its own, under that row's lock."""

from __future__ import annotations

from typing import Protocol

from outlive.model.approval import ApprovalFilter, ApprovalRow, ApprovalStatus, Reading, Vote
from outlive.model.ids import ApprovalId, Tenant


class Approvals(Protocol):
    """What people decide about operations, each in a row of its own. The log copies what these rows say."""

    async def approval(self, tenant: Tenant, id: ApprovalId) -> Reading | None:
        """One approval by its full id, and what was done about it, or None."""
        ...

    async def approvals(self, tenant: Tenant, which: ApprovalFilter) -> list[ApprovalRow]:
        """Approvals that match, oldest first."""
        ...

    async def vote(self, tenant: Tenant, id: ApprovalId, vote: Vote, *, now: int | None = None) -> ApprovalRow:
        """Record what a person does about an approval, as `judge` rules; the row as it is now.

        Row and votes are compared as they were judged and set in one transaction, by the database's clock; a decision
        leaves a message in the run's inbox in the same one. Raises UnknownApproval and what `judge` raises; then
        nothing is changed.
        """
        ...

    async def end_approval(
        self, tenant: Tenant, id: ApprovalId, status: ApprovalStatus, why: str, *, now: int | None = None
    ) -> ApprovalRow | None:
        """Close one that is asked for or approved, with *expired* only if its time is over by the database's clock.

        The row as it is now, changed or not; None for one that is not there.
        """
        ...
