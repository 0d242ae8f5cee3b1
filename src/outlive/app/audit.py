"""`outlive audit verify`: is each log what was written, and is everything beside it what follows from it?

Chain, fold, run row, operation records, approvals with their votes and blobs are compared; of a log that does not fit,
the first entry is named. It reads and changes nothing, a page at a time. A run that is written meanwhile is compared as
of one moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from outlive.app.projection import Projection, unlike
from outlive.log.entry import Entry, verify
from outlive.model.errors import ChainBroken, UndecodableEntry, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.model.run import Head, RunRow
from outlive.store.port import Store
from outlive.store.survey import Recorded, Surveyed

_PAGE = 500
_RUNS = 200
_HOMELESS = 1000
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """One thing that is not what the log says. `entry` is the seq of the first entry that does not fit, or None."""

    run: str
    what: str
    why: str
    entry: int | None = None


@dataclass(slots=True)
class Progress:
    """How much was verified; `told` is called after each page and each run.

    `busy` are runs that grew all the time: their logs fit, but what stands beside them could not be compared.
    """

    told: Callable[[Progress], None] = lambda _: None
    runs: int = 0
    entries: int = 0
    busy: list[str] = field(default_factory=list)


async def verify_all(store: Surveyed, tenant: Tenant, progress: Progress) -> AsyncIterator[Misfit]:
    """Everything of a tenant that does not fit, as it is found. Nothing found is good."""
    after = RunId("")
    while page := await store.runs_of(tenant, after=after, limit=_RUNS):
        for row in page:
            async for misfit in verify_run(store, tenant, row.id, progress):
                yield misfit
        after = page[-1].id
    for one in await store.homeless(tenant, limit=_HOMELESS):
        yield Misfit(run=one.run, what=f"table {one.table}", why="it has rows of this run, which is not there")


async def verify_run(store: Surveyed, tenant: Tenant, run: str, progress: Progress) -> AsyncIterator[Misfit]:
    """Everything of a run that does not fit. Raises UnknownRun."""
    log = Projection(tenant, RunId(run))
    try:
        async for misfit in _compared(store, log, progress):
            yield misfit
    except ChainBroken as broken:
        yield Misfit(run=run, what="chain", why=_broken(broken, log), entry=broken.seq)
    except UndecodableEntry as error:
        yield Misfit(run=run, what="entry", why=str(error), entry=log.head.seq)
    progress.runs += 1
    progress.told(progress)


async def check_chain(store: Store, tenant: Tenant, run: str) -> Head:
    """Verify a whole log against its chain. Raises ChainBroken, UnknownRun."""
    await _row(store, tenant, run)
    head = Head(0, b"")
    async for page in _pages(store, tenant, RunId(run), head):
        head = page[1]
    return head


async def _compared(store: Surveyed, log: Projection, progress: Progress) -> AsyncIterator[Misfit]:
    """Read the log to its end, then what stands beside it; again from there if it has grown meanwhile."""
    row = await _row(store, log.tenant, log.run)
    for _ in range(_TRIES):
        await _read_on(store, log, progress)
        records, classes = await store.recorded(log.tenant, log.run), await store.misclassed(log.tenant, log.run)
        asked = await store.consents(log.tenant, log.run)
        before, row = row, await _row(store, log.tenant, log.run)
        if (row.head, row.status, row.epoch) == (before.head, before.status, before.epoch):
            for misfit in _beside(log, row, records, classes):
                yield misfit
            async for misfit in _undone(store, log, records):
                yield misfit
            async for misfit in _keyed(store, log, records):
                yield misfit
            for id, why in log.consented.of_approvals(asked, row.principal):
                yield Misfit(run=log.run, what=f"approval {id}", why=why)
            return
    progress.busy.append(log.run)


def _beside(
    log: Projection, row: RunRow, records: list[Recorded], classes: Mapping[int, str]
) -> Iterator[Misfit]:  # fmt: skip
    for column, why in log.of_run(row):
        yield Misfit(run=log.run, what=f"run row, {column}", why=why)
    for id, why in log.of_operations(records):
        yield Misfit(run=log.run, what=f"operation {id}", why=why)
    for seq, address in classes.items():
        why = f"the blob {address} has another data class or key than the entry that names it"
        yield Misfit(run=log.run, what="blob", why=why, entry=seq)


async def _undone(store: Store, log: Projection, records: list[Recorded]) -> AsyncIterator[Misfit]:
    """What is said across runs: an operation is compensated exactly if another one of a rollback has done that."""
    for one in records:
        row = one.row
        if row is not None and row.compensated_by:
            by = await store.operation(log.tenant, row.compensated_by)
            back = await store.run(log.tenant, by.run) if by is not None else None
            if by is None or by.compensates != row.id or by.status != "succeeded":
                why = f"compensated_by: {row.compensated_by} has not compensated it, or is not here"
                yield Misfit(run=log.run, what=f"operation {row.id}", why=why)
            elif back is None or back.rolls_back != log.run:
                why = f"compensated_by: run {by.run} does not roll this one back"
                yield Misfit(run=log.run, what=f"operation {row.id}", why=why)
        if row is not None and row.compensates and row.status == "succeeded":
            target = await store.operation(log.tenant, row.compensates)
            if target is not None and target.status != "compensated":
                why = f"compensates: {target.id} of run {target.run} is {target.status}, not compensated"
                yield Misfit(run=log.run, what=f"operation {row.id}", why=why)


async def _keyed(store: Store, log: Projection, records: list[Recorded]) -> AsyncIterator[Misfit]:
    """A business key says what became of the operation that has it, and no two have acted under one. A key may be gone:
    it is kept for a time of its own, and no bundle has it.
    """
    for one in records:
        row = one.row
        if row is None or not row.business_key:
            continue
        key = await store.business_key(log.tenant, row.business_key)
        if key is None or not unlike(row, key.mark):
            continue
        # Another run may have changed both meanwhile: what is there now is compared once more.
        row, key = await store.operation(log.tenant, row.id) or row, await store.business_key(log.tenant, key.mark.key)
        if key is not None and (why := unlike(row, key.mark)):
            yield Misfit(run=log.run, what=f"operation {row.id}", why=f"business_key {key.mark.shown}: {why}")


async def _read_on(store: Store, log: Projection, progress: Progress) -> None:
    async for page, _ in _pages(store, log.tenant, log.run, log.head):
        for entry in page:
            log.take(entry)
        progress.entries += len(page)
        progress.told(progress)


async def _pages(store: Store, tenant: Tenant, run: RunId, head: Head) -> AsyncIterator[tuple[list[Entry], Head]]:
    """The log from `head` on in pages that fit the chain, each with where it ends.

    Raises ChainBroken or UndecodableEntry; all entries before the one that does not fit have been given by then.
    """
    secret = await store.key(tenant)
    while page := await _page(store, tenant, run, head):
        try:
            head = verify(secret, run, page, head.digest)
        except ChainBroken as broken:
            if fit := [entry for entry in page if entry.seq < broken.seq]:
                yield fit, Head(fit[-1].seq + 1, fit[-1].digest)
            raise
        yield page, head


async def _page(store: Store, tenant: Tenant, run: RunId, head: Head) -> list[Entry]:
    try:
        return await store.entries(tenant, run, after=head.seq - 1, limit=_PAGE)
    except UndecodableEntry:
        # Bytes that are no text: one by one, what comes before them can be read.
        return await store.entries(tenant, run, after=head.seq - 1, limit=1)


async def _row(store: Store, tenant: Tenant, run: str) -> RunRow:
    row = await store.run(tenant, RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    return row


def _broken(broken: ChainBroken, log: Projection) -> str:
    if broken.seq > log.head.seq:
        return f"entry {log.head.seq} is not there; the first one behind it is entry {broken.seq}"
    return "it is not what was written, or its payload is not"
