"""A run as it is recorded: its row, what replay has to meet, and the key of its digests."""

from __future__ import annotations

from dataclasses import dataclass

from outlive.log.entry import Entry
from outlive.model.errors import UndecodableEntry, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunRow
from outlive.store.keeping import Kept


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run, the entries of its window, and its tenant's key. `whose` run it is where it is from a bundle, too."""

    row: RunRow
    entries: list[Entry]
    key: bytes
    whose: Tenant


async def recorded(store: Kept, tenant: Tenant, run: RunId, whose: Tenant | None = None) -> Recorded:
    """Read a run; a worker may append to it meanwhile. `whose`: the tenant that it came from, if that is another one.

    Raises UnknownRun, and UndecodableEntry for an entry whose payload is lost: a worker would not replay it either.
    """
    row, key = await store.run(tenant, run), await store.known_key(tenant)
    if row is None or key is None:
        raise UnknownRun(run=run)
    entries = await store.window(tenant, run)
    lost = next((one for one in entries if one.lost), None)
    if lost is not None:
        raise UndecodableEntry(where=f"entry {lost.seq} ({lost.kind})", why="its payload is lost")
    return Recorded(row, entries, key, whose or tenant)
