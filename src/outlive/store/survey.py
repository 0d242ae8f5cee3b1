"""The survey port: what `outlive doctor` and `outlive audit` read of a whole store, page by page.

Every method reads and changes nothing. A page goes on behind the last item of the one before, so that no read is larger
than its page however large the store is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from outlive.model.approval import ApprovalRow, Reading, Vote
from outlive.model.ids import OperationId, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import RunRow
from outlive.store.port import Store


@dataclass(frozen=True, slots=True)
class Seen:
    """A run that has not ended, whether its inbox has unread rows, and the builds that cannot continue it.

    `asked` says that one of those rows asks it to end, or to be paused.
    """

    row: RunRow
    unread: bool
    diverged: frozenset[str]
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """An operation record as it is stored. `row` is None where it cannot be read: `wrong` says why."""

    id: OperationId
    row: OperationRow | None
    data_class: str
    key_id: str
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Stray:
    """A blob by its address (hex), with the entry that names it where there is one."""

    tenant: Tenant = Tenant("")
    address: str = ""
    run: RunId = RunId("")
    seq: int = -1


@dataclass(frozen=True, slots=True)
class Homeless:
    """Rows of a table that name a run which is not there."""

    run: RunId
    table: str


@dataclass(frozen=True, slots=True)
class Consents:
    """The approvals of a run with their votes, and whether the run was imported: a bundle has none of them."""

    imported: bool
    readings: tuple[Reading, ...]


def consents(imported: Sequence[object], rows: Sequence[ApprovalRow], votes: Sequence[tuple[str, Vote]]) -> Consents:
    """Of what was found: rows of an imported run, approvals, and votes, each with its approval."""
    of = {row.id: tuple(vote for id, vote in votes if id == row.id) for row in rows}
    return Consents(bool(imported), tuple(Reading(row, of[row.id]) for row in rows))


class Survey(Protocol):
    """A whole store, in pages."""

    async def open_runs(self, *, after: tuple[Tenant, RunId], limit: int) -> list[Seen]:
        """Runs of all tenants that have not ended, by tenant and id."""
        ...

    async def runs_of(self, tenant: Tenant, *, after: RunId, limit: int) -> list[RunRow]:
        """Runs of one tenant, by id."""
        ...

    async def recorded(self, tenant: Tenant, run: RunId) -> list[Recorded]:
        """The operation records of a run, in the order of their first intent, also those that cannot be read."""
        ...

    async def consents(self, tenant: Tenant, run: RunId) -> Consents:
        """The approvals of a run and their votes, in the order in which they were asked for; all as of one moment."""
        ...

    async def misclassed(self, tenant: Tenant, run: RunId) -> Mapping[int, str]:
        """Entries of a run (their seq) whose blob has another data class or key than they have, and the blob."""
        ...

    async def unnamed_blobs(self, *, after: Stray, limit: int) -> list[Stray]:
        """Blobs that no entry names, by tenant and address."""
        ...

    async def missing_blobs(self, *, after: Stray, limit: int) -> list[Stray]:
        """Blobs that are not there, with the entries that name them, by tenant, address, run and seq."""
        ...

    async def homeless(self, tenant: Tenant, *, limit: int) -> list[Homeless]:
        """Entries and operation records of a tenant whose run is not there, at most so many runs."""
        ...


class Surveyed(Store, Survey, Protocol):
    """A store that can be surveyed."""


_PAGE = 500


async def open_pages(store: Survey) -> AsyncIterator[list[Seen]]:
    """All runs of all tenants that have not ended, page by page: none is larger, however many there are."""
    after = (Tenant(""), RunId(""))
    while page := await store.open_runs(after=after, limit=_PAGE):
        yield page
        after = (page[-1].row.tenant, page[-1].row.id)
