"""Which runs are replayed: all that have not ended, and a sample of those that have; or those of bundles."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from outlive.app.compose import open_store
from outlive.app.settings import Settings
from outlive.duty.bundle import Bundle, key_id
from outlive.gate.crew import Target
from outlive.model.clock import SystemClock
from outlive.model.errors import BadBundle, KeyDiffers, SettingInvalid
from outlive.model.ids import Tenant
from outlive.model.run import ENDED, RunFilter, RunRow
from outlive.store.keeping import Kept
from outlive.store.survey import open_pages

_PAGE = 500
_LOOKED_AT = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for. Empty: everything of its kind.

    `sample` is how many ended runs of each version of each agent are taken, the newest first, started at `since` or
    later (milliseconds of the database's clock).
    """

    tenants: frozenset[Tenant] = frozenset()
    agents: frozenset[str] = frozenset()
    sample: int = 20
    since: int = 0


async def chosen(store: Kept, wanted: Wanted, served: Iterable[str], own: Tenant) -> list[Target]:
    """Live runs of all tenants that are wanted, and a sample of ended ones of the agents that are `served` or wanted.

    Ended ones are looked for in the tenants that are wanted, those that have live runs, and `own`. Rollbacks are left
    out: no agent's code drives them.
    """
    live = [one async for one in _live(store, wanted)]
    tenants = wanted.tenants or {own, *(one.tenant for one in live)}
    # By name: a run may end between the two listings.
    found = {(one.tenant, one.id): Target(store, one.tenant, one.id) for one in live}
    for tenant in sorted(tenants):
        for agent in sorted(wanted.agents or set(served)):
            async for one in _ended(store, tenant, agent, wanted):
                found[tenant, one.id] = Target(store, tenant, one.id)
    return list(found.values())


async def _live(store: Kept, wanted: Wanted) -> AsyncIterator[RunRow]:
    async for page in open_pages(store):
        for seen in page:
            row = seen.row
            if (
                row.rolls_back is None
                and (not wanted.tenants or row.tenant in wanted.tenants)
                and (not wanted.agents or row.agent in wanted.agents)
            ):
                yield row


async def _ended(store: Kept, tenant: Tenant, agent: str, wanted: Wanted) -> AsyncIterator[RunRow]:
    """Newest first; of each version so many. Old versions that are far behind are not looked for for ever."""
    taken: Counter[str] = Counter()
    which = RunFilter(statuses=tuple(ENDED), agent=agent, limit=_PAGE)
    for _ in range(-(-max(_LOOKED_AT, wanted.sample) // _PAGE) if wanted.sample else 0):
        page = await store.runs(tenant, which)
        for row in page:
            if row.created_at < wanted.since:
                return
            if row.rolls_back is None and taken[row.version] < wanted.sample:
                taken[row.version] += 1
                yield row
        if len(page) < _PAGE:
            return
        which = replace(which, behind=(page[-1].created_at, page[-1].id))


@asynccontextmanager
async def unpacked(files: Sequence[str], known: Kept | None) -> AsyncIterator[list[Target]]:
    """The runs of bundles, in a store of their own for as long as the block runs.

    A bundle is read under the key that it carries, or under that of its tenant in the store that is `known`. Raises
    BadBundle and KeyDiffers that name the file.
    """
    with TemporaryDirectory() as directory:
        settings = Settings.load({}, store=f"sqlite:///{directory}/bundles.db", unsafe_durability=True)
        store = await open_store(settings, SystemClock())
        try:
            yield [await _taken(store, file, number, known) for number, file in enumerate(files)]
        finally:
            await store.close()


async def _taken(store: Kept, file: str, number: int, known: Kept | None) -> Target:
    # Each in a tenant of its own: keys differ from store to store, and so may runs of one name.
    tenant = Tenant(f"bundle-{number}")
    try:
        lines = await asyncio.to_thread(_lines, file)
        header = Bundle(lines).header
        secret = header.key
        if secret is None and known is not None:
            secret = await known.known_key(header.tenant)
        if secret is None or key_id(secret) != header.key_id:
            why = "the bundle carries no key; export it with --with-key, or name the store that wrote it"
            raise KeyDiffers(bundle=header.key_id, tenant=header.tenant, why=f"{file}: {why}")
        await store.put_run(tenant, Bundle(lines).parts(secret), secret)
    except BadBundle as bad:
        raise BadBundle(line=bad.line, why=bad.why, file=file) from None
    except OSError as error:
        raise SettingInvalid(
            name="bundle", value=file, source="argument", why=f"it cannot be read: {error.strerror}"
        ) from None  # fmt: skip
    return Target(store, tenant, header.run, file, header.tenant)


def _lines(file: str) -> list[bytes]:
    with Path(file).open("rb") as opened:
        return list(opened)
