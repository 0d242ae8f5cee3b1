"""Who waits for whom: business keys that somebody waits for, as chains from run to run, to the root or around a circle.

A waiter is remembered in the row of the key; whether it still waits, its own row says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from outlive.model.business import KEY_STATUSES, KeyFilter, KeyRow, KeyStatus
from outlive.model.errors import SettingInvalid
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunRow
from outlive.store.port import Store

_PAGE = 500

# By run, the keys that it waits for.
Waits = Mapping[RunId, list[KeyRow]]


@dataclass(frozen=True, slots=True)
class Link:
    """One step of a chain: a key that is waited for, and the run whose operation has it, as it is now."""

    key: KeyRow
    owner: RunRow | None

    def said(self) -> str:
        """In words, with why that run does not go on."""
        mark, owner = self.key.mark, self.owner
        if owner is None:
            standing = "which is not here any more"
        elif owner.paused_at is not None and not owner.ended:
            standing = "which is paused"
        else:
            why = f": {owner.reason}" if owner.reason else ""
            standing = f"which has {owner.status}" if owner.ended else f"which is {owner.status}{why}"
        return f"business key {mark.shown}: operation {mark.operation} of run {mark.run}, {standing}"


async def listed(store: Store, tenant: str, which: KeyFilter) -> list[KeyRow]:
    """The keys that match, oldest change last."""
    found = await store.business_keys(Tenant(tenant), which)
    return sorted(found, key=lambda row: (-row.updated_at, row.mark.shown))


def statuses(text: str) -> tuple[KeyStatus, ...]:
    """Read `--status`. Raises SettingInvalid."""
    named = [one for one in text.split(",") if one]
    found: tuple[KeyStatus, ...] = tuple(one for one in KEY_STATUSES if one in named)
    if len(found) != len(set(named)) or not found:
        why = f"say some of {', '.join(KEY_STATUSES)}"
        raise SettingInvalid(name="--status", value=text, source="option", why=why)
    return found


async def waits(store: Store, tenant: Tenant) -> Waits:
    """Who waits for which keys, of all runs of a tenant."""
    found: dict[RunId, list[KeyRow]] = {}
    after = ""
    while page := await store.business_keys(tenant, KeyFilter(awaited=True, limit=_PAGE, after=after)):
        for row in page:
            for run in row.waiters:
                found.setdefault(run, []).append(row)
        after = page[-1].mark.key
    return found


async def chains(store: Store, row: RunRow) -> list[list[Link]]:
    """For each key that a run waits for, whose it is, what that run waits for, and so on to the root."""
    if row.status not in ("waiting", "blocked"):
        return []
    known = await waits(store, row.tenant)
    return [await _chain(store, row, key, known) for key in known.get(row.id, [])]


async def _chain(store: Store, row: RunRow, key: KeyRow, known: Waits) -> list[Link]:
    found, met = [Link(key, await store.run(row.tenant, key.mark.run))], {row.id}
    while (owner := found[-1].owner) is not None and owner.id not in met and owner.status in ("waiting", "blocked"):
        met.add(owner.id)
        further = known.get(owner.id, [])
        if not further:
            break
        found.append(Link(further[0], await store.run(row.tenant, further[0].mark.run)))
    return found


async def circles(store: Store, tenant: Tenant) -> AsyncIterator[tuple[RunId, ...]]:
    """Runs that wait for each other, each circle once, from the least of its ids on."""
    known = await waits(store, tenant)
    told = set[tuple[RunId, ...]]()
    for run in sorted(known):
        circle = _around(run, known)
        if circle and circle not in told and [one async for one in _moving(store, tenant, circle)] == []:
            told.add(circle)
            yield circle


async def _moving(store: Store, tenant: Tenant, circle: tuple[RunId, ...]) -> AsyncIterator[RunId]:
    """Runs of a circle that do not wait any more."""
    for run in circle:
        row = await store.run(tenant, run)
        if row is None or row.status not in ("waiting", "blocked"):
            yield run


def _around(start: RunId, known: Waits) -> tuple[RunId, ...]:
    """A shortest way from a run back to itself, if there is one; it begins with the least id on it."""
    before: dict[RunId, RunId] = {}
    ahead = [start]
    while ahead:
        run = ahead.pop(0)
        for owner in sorted({key.mark.run for key in known.get(run, [])}):
            if owner == start and run != start:
                way = [run]
                while way[-1] != start:
                    way.append(before[way[-1]])
                way = way[::-1]
                least = way.index(min(way))
                return (*way[least:], *way[:least])
            if owner not in before and owner != start:
                before[owner] = run
                ahead.append(owner)
    return ()
