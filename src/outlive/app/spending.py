"""What a run has spent on models, whichever framework its agent is of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from outlive.app.outlive import Outlive
from outlive.harness import costs
from outlive.harness.costs import Spent
from outlive.log.entry import Entry
from outlive.model.errors import UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.store.port import Store

__all__ = ["Spent", "spent"]

D = TypeVar("D")
_PAGE = 1000


async def spent(app: Outlive[D], run: str, /, *, tenant: str = "default") -> list[Spent]:
    """What a run has spent on models up to now, by the name of their operations. Raises UnknownRun."""
    row = await app.opened.run(Tenant(tenant), RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    return await costs.spent(_entries(app.opened, row.tenant, row.id))


async def _entries(store: Store, tenant: Tenant, run: RunId) -> AsyncIterator[Entry]:
    after = -1
    while page := await store.entries(tenant, run, after=after, limit=_PAGE):
        for entry in page:
            yield entry
        after = page[-1].seq
