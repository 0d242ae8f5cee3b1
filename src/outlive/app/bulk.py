"""One verb on many runs: those of a filter, in pages, each with what came of it. A failure of one stops no other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from outlive.model.errors import CommitUnknown, LeaseLost, OutliveError, StoreBusy, StoreError
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunFilter, RunRow
from outlive.store.port import Store

# What is done to one run, and in words what came of it. An OutliveError is a failure of that run alone.
Verb = Callable[[Store, RunRow], Awaitable[str]]

_PAGE = 500
# Errors of the store that are one run's: somebody else had it, or it may have been done.
_OF_ONE = (LeaseLost, StoreBusy, CommitUnknown)


class NotYet(str):
    """Words of a verb for what was asked of a run, and is not so yet. It is no failure."""

    __slots__ = ()


class Left(str):
    """Words of a verb for a run that it leaves alone. It is no failure."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one run."""

    run: RunId
    said: str
    failed: bool = False

    @property
    def kind(self) -> str:
        """What it counts as: *done*, *asked*, *left alone* or *failed*."""
        if self.failed:
            return "failed"
        return "asked" if isinstance(self.said, NotYet) else "left alone" if isinstance(self.said, Left) else "done"


async def chosen(store: Store, tenant: Tenant, which: RunFilter, *, page: int = _PAGE) -> AsyncIterator[RunRow]:
    """Every run of the filter, newest first, whatever its limit. Runs that are started meanwhile are not among them."""
    at = replace(which, limit=page)
    while rows := await store.runs(tenant, at):
        for row in rows:
            yield row
        at = replace(at, behind=(rows[-1].created_at, rows[-1].id))


async def each(
    store: Store, tenant: Tenant, which: RunFilter, verb: Verb, *, page: int = _PAGE
) -> AsyncIterator[Done]:  # fmt: skip
    """Do it to every run of the filter. Raises StoreError when the store itself cannot be reached."""
    async for row in chosen(store, tenant, which, page=page):
        if which.labels and row.damaged:
            yield Done(row.id, f"left alone: {row.damaged}", failed=True)
        else:
            yield await one(store, row, verb)


async def one(store: Store, row: RunRow, verb: Verb) -> Done:
    """Do it to one run."""
    try:
        return Done(row.id, await verb(store, row))
    except StoreError as error:
        if not isinstance(error, _OF_ONE):
            raise
        return Done(row.id, str(error), failed=True)
    except OutliveError as error:
        return Done(row.id, str(error), failed=True)


async def would(store: Store, row: RunRow) -> str:
    """The verb of a dry run: it changes nothing, and says how the run is."""
    paused = ", paused" if row.paused_at is not None and not row.ended else ""
    paused += ", forked before" if row.forked else ""
    return f"{row.status}{paused}{': ' if row.reason else ''}{row.reason}"
