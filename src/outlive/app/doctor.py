"""`outlive doctor`: is every run of the store explained, and can the store be trusted? It reads and changes nothing.

The store is read in pages, so that its size decides how long this takes, not how much memory. What it finds is of many
moments: a run that moves meanwhile is seen once, before or after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from outlive.app.compose import secrets_of
from outlive.app.explain import Explanation, Fault, Kind, builds_of, explain, stall_of
from outlive.app.keys import circles
from outlive.app.operate import ALIVE_MS
from outlive.app.settings import Settings
from outlive.duty.telling import TellingDuty, unsigned
from outlive.model.clock import apart, machine_now
from outlive.model.ids import Tenant
from outlive.store.keeping import DutyRow, Kept
from outlive.store.port import Store, WorkerRow
from outlive.store.survey import Seen, Stray, open_pages

_PAGE = 500
# Silent workers are forgotten after a day; until then they are on record.
_ON_RECORD_MS = 10 * 86_400_000
SKEW_MS = 2000
# A duty waits for the one before it, which may have much to do.
DUTY_LATE_MS = 3_600_000

# What has to be told is told within seconds; what waits longer waits for somebody.
UNTOLD_MS = 60_000
# A duty that is due every ten minutes and was not done for so long is nobody's.
_NOBODY_MS = 30 * 60_000

Trouble = (
    Fault
    | Literal[
        "silent worker", "stalled worker", "overdue duty", "clock skew", "unsafe durability", "unnamed blob",
        "missing blob", "nobody to notify", "failing route", "deadlock",
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that somebody should look at. `subject` is the id of a run, a worker, a setting, a blob."""

    trouble: Trouble
    subject: str
    why: str
    tenant: str = ""


@dataclass(slots=True)
class Tally:
    """What was looked at: runs that have not ended, and by what they are explained.

    `told` says whether any worker with routes is there, so that somebody would be told.
    """

    runs: int = 0
    explained: Counter[Kind] = field(default_factory=Counter)
    told: bool = False
    tenants: set[Tenant] = field(default_factory=set)


async def examine(store: Kept, tally: Tally, *, accept_unsafe: bool = False) -> AsyncIterator[Finding]:
    """Everything that is wrong, as it is found; `tally` grows meanwhile. Nothing found is good."""
    for setting in [] if accept_unsafe else await store.durability():
        why = "it may lose what it has acknowledged; see --unsafe-durability"
        yield Finding(trouble="unsafe durability", subject=setting, why=why)
    if skew := await _skew(store):
        yield skew
    workers = await store.workers(within_ms=_ON_RECORD_MS)
    now = await store.now()
    for worker in workers:
        for finding in _workers_own(worker, now):
            yield finding
    for duty in await store.duties():
        if late := _late(duty, now, any(not _silent(worker, now) for worker in workers)):
            yield Finding(trouble="overdue duty", subject=duty.name, why=late)
    for part in (_runs(store, tally), _waiting(store, tally), _telling(store, tally, now)):
        async for finding in part:
            yield finding
    async for stray in _pages(store.unnamed_blobs):
        yield Finding(trouble="unnamed blob", subject=stray.address, tenant=stray.tenant, why="no entry names it")
    async for stray in _pages(store.missing_blobs):
        why = f"entry {stray.seq} names the blob {stray.address}, which is not there"
        yield Finding(trouble="missing blob", subject=stray.run, tenant=stray.tenant, why=why)


async def _waiting(store: Kept, tally: Tally) -> AsyncIterator[Finding]:
    """Runs that wait for each other."""
    for tenant in sorted(tally.tenants):
        async for circle in circles(store, tenant):
            why = f"they wait for each other's business keys: {' → '.join((*circle, circle[0]))}"
            why += f"; unless another branch of one goes on, end one: outlive cancel {circle[0]}"
            yield Finding(trouble="deadlock", subject=circle[0], tenant=tenant, why=why)


def _workers_own(worker: WorkerRow, now: int) -> Iterator[Finding]:
    """What is wrong with a worker itself; of a silent one nothing else is known any more."""
    if _silent(worker, now):
        ago = f"{(now - worker.seen_at) // 1000} s ago"
        why = f"pid {worker.pid} announced itself, and gave its last sign of life {ago}"
        stall = stall_of(worker, worker.seen_at)
        yield Finding(trouble="silent worker", subject=worker.owner, why=f"{why}; {stall}" if stall else why)
        return
    if stall := stall_of(worker, now):
        yield Finding(trouble="stalled worker", subject=worker.owner, why=f"pid {worker.pid}: {stall}")
    if off := _off(worker.skew_ms or 0, "its machine's clock"):
        yield Finding(trouble="clock skew", subject=worker.owner, why=f"pid {worker.pid}: {off}")


def _late(duty: DutyRow, now: int, served: bool) -> str:
    """Why a duty should be looked at: it failed, or nobody does it although there is somebody to do it."""
    if duty.report.startswith("failed"):
        return f"it {duty.report}"
    late = now - max(duty.next_at, duty.expires_at or 0)
    if not served or late < DUTY_LATE_MS:
        return ""
    return f"it was due {late // 1000} s ago, and no live worker does it; last time: {duty.report or 'never done'}"


async def _telling(store: Kept, tally: Tally, now: int) -> AsyncIterator[Finding]:
    """Whether somebody is told of what only a person can settle."""
    tally.told = any(
        one.name == TellingDuty.name and ((one.expires_at or 0) > now or now - one.next_at < _NOBODY_MS)
        for one in await store.duties()
    )
    untold = await store.untold()
    if untold.since is not None and now - untold.since > UNTOLD_MS:
        route = "no route takes" if tally.told else "there is no worker with routes to deliver"
        why = f"{route} {untold.count} notifications, the oldest of {(now - untold.since) // 60_000} min ago"
        yield Finding(trouble="nobody to notify", subject=store.name, why=f"{why}; see outlive notifications")
    for one in await store.routes():
        if one.failing_since is not None and now - one.failing_since > UNTOLD_MS:
            ago = f"{(now - one.failing_since) // 60_000} min"
            why = f"it has failed for {ago}, {one.open} notifications wait for it: {one.error}"
            yield Finding(trouble="failing route", subject=one.route, why=why)


def unsigned_routes(settings: Settings) -> Iterator[Finding]:
    """Routes of this environment whose secret is not in it."""
    for name, missing in unsigned(settings.notify.every, secrets_of(settings)):
        why = f"nothing can be signed in this environment, and no worker starts in it: {missing}"
        yield Finding(trouble="failing route", subject=name, why=why)


def _silent(worker: WorkerRow, now: int) -> bool:
    return now - worker.seen_at > ALIVE_MS


async def _runs(store: Kept, tally: Tally) -> AsyncIterator[Finding]:
    async for page in open_pages(store):
        now, alive = await store.now(), await store.workers(within_ms=ALIVE_MS)
        serving, stalled = builds_of(alive), {one.owner: stall for one in alive if (stall := stall_of(one, now))}
        for seen in page:
            found = explain(seen, serving, now, stalled)
            tally.runs += 1
            tally.tenants.add(seen.row.tenant)
            tally.explained[found.kind] += 1
            if found.fault is not None:
                yield _broken(seen, found, found.fault)


def _broken(seen: Seen, found: Explanation, fault: Fault) -> Finding:
    return Finding(trouble=fault, subject=seen.row.id, tenant=seen.row.tenant, why=found.why)


async def _pages(read: Callable[..., Awaitable[Sequence[Stray]]]) -> AsyncIterator[Stray]:
    after = Stray()
    while page := await read(after=after, limit=_PAGE):
        for stray in page:
            yield stray
        after = page[-1]


async def _skew(store: Store) -> Finding | None:
    """How far this machine's clock is from the database's, beyond what asking took."""
    before = machine_now()
    there = await store.now()
    after = machine_now()
    why = _off(apart(before, there, after), "this machine's clock")
    return Finding(trouble="clock skew", subject=store.name, why=why) if why else None


def _off(skew_ms: int, whose: str) -> str:
    """Words for a clock that is too far from the database's, which is ahead of it by so much; else empty."""
    if abs(skew_ms) < SKEW_MS:
        return ""
    way = "ahead of" if skew_ms < 0 else "behind"
    return f"{whose} is {abs(skew_ms) / 1000:.1f} s {way} the database's, by which everything here goes"
