"""Reading the log of a run to its end: the store gives it in pages."""

from __future__ import annotations

from outlive.log.entry import Entry
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Store

_PAGE = 1000


async def log_of(store: Store, run: str) -> list[Entry]:
    """Every entry that is committed by now."""
    found: list[Entry] = []
    while True:
        after = found[-1].seq if found else -1
        page = await store.entries(DEFAULT_TENANT, RunId(run), after=after, limit=_PAGE)
        found += page
        if len(page) < _PAGE:
            return found


async def last_step(store: Store, run: str) -> Entry:
    """What the log has of the last step of a run."""
    return next(entry for entry in reversed(await log_of(store, run)) if entry.kind == "step")
