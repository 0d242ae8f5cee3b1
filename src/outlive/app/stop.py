"""To cancel, terminate, pause and resume one run; each returns what has come of it.

A request is stored before anything is done about it. Who waits here also acts where nobody else will: on a run that is
blocked or paused, that no live worker serves, or whose owner has not heard by the end of its grace.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from outlive.app.given import check_said
from outlive.engine.cancelling import Request
from outlive.engine.control import Control
from outlive.engine.failures import writable
from outlive.model.errors import LeaseLost, Refused, UnknownRun, WrongState
from outlive.model.ids import RunId, Tenant
from outlive.model.run import ENDED, RunRow

# What has come of it: *asked* is acknowledged and not done yet, *too late* found a run that had ended otherwise.
Cancelled = Literal["cancelled", "asked", "too late"]
Paused = Literal["paused", "asked", "too late"]

GRACE = timedelta(seconds=30)
AT_ONCE = timedelta(0)

# As long as people take a worker to be alive.
_ALIVE_MS = 60_000
_PAUSE_LEAST, _PAUSE_MOST = 0.02, 0.5
# How long an owner may take to hear of a request, beyond the grace: a renewal, and its own lease.
_DEAF_MS = 60_000


async def cancel(
    control: Control, tenant: Tenant, run: str, *, who: str, why: str, grace: timedelta = GRACE,
    wait: timedelta = AT_ONCE, key: str = "",
) -> Cancelled:  # fmt: skip
    """Ask that a run ends: its code is told, and may clean up for `grace`. Waits for its end, at most `wait`.

    Two requests of one `key` are one (default: each is one of its own). Raises UnknownRun, Refused for a negative time.
    """
    if grace < timedelta(0) or wait < timedelta(0):
        raise Refused(what=f"cancel(grace={grace}, wait={wait})", why="a time is not negative")
    check_said("cancel", who, why)
    row = await _run(control, tenant, run)
    request = Request("cancel", writable(who), writable(why), int(grace / timedelta(milliseconds=1)))
    await control.cancel(row, request, key=key or control.clock.token())
    begun, pause = control.clock.boottime(), _PAUSE_LEAST
    while True:
        row = await _run(control, tenant, run)
        if not row.ended:
            waited_ms = int((control.clock.boottime() - begun) * 1000)
            await _act(control, row, deaf=waited_ms > request.grace_ms + _DEAF_MS)
            row = await _run(control, tenant, run)
        if row.ended:
            await _answer(control, row)
            return "cancelled" if row.status == "cancelled" else "too late"
        left = wait.total_seconds() - (control.clock.boottime() - begun)
        if left <= 0:
            return "asked"
        await control.clock.sleep(min(pause, left))
        pause = min(pause * 1.5, _PAUSE_MOST)


async def terminate(control: Control, tenant: Tenant, run: str, *, who: str, why: str) -> RunRow:
    """End a run at once, without its code, whoever drives it. Raises UnknownRun, and WrongState for an ended run."""
    check_said("terminate", who, why)
    row = await _run(control, tenant, run)
    await control.terminate(row, who=who, why=why)
    return await _run(control, tenant, run)


async def pause(
    control: Control, tenant: Tenant, run: str, *, who: str, why: str, wait: timedelta = AT_ONCE, key: str = ""
) -> Paused:
    """Let a run stand still until it is resumed; its calls in flight reach their record first.

    Waits for that, at most `wait`. Raises UnknownRun, Refused for a negative time, and WrongState for an ended run.
    """
    if wait < timedelta(0):
        raise Refused(what=f"pause(wait={wait})", why="a time is not negative")
    check_said("pause", who, why)
    request, key = Request("pause", writable(who), writable(why)), key or control.clock.token()
    row = await _run(control, tenant, run)
    begun, pause = control.clock.boottime(), _PAUSE_LEAST
    done = await control.pause(row, request, key=key)
    while not done:
        left = wait.total_seconds() - (control.clock.boottime() - begun)
        if left <= 0:
            return "asked"
        await control.clock.sleep(min(pause, left))
        pause = min(pause * 1.5, _PAUSE_MOST)
        row = await _run(control, tenant, run)
        if row.ended:
            await _answer(control, row)
            return "too late"
        done = row.paused_at is not None
        if not done and not await _lives(control, row):
            done = await _paused(control, row, request, key)
    return "paused"


async def resume(control: Control, tenant: Tenant, run: str, *, who: str, why: str) -> RunRow:
    """Let a paused run go on. Raises UnknownRun, and WrongState for a run that is not paused."""
    check_said("resume", who, why)
    await control.resume(await _run(control, tenant, run), who=who, why=why)
    return await _run(control, tenant, run)


async def _paused(control: Control, row: RunRow, request: Request, key: str) -> bool:
    try:
        return await control.pause(row, request, key=key)
    except WrongState:
        return False  # it has just ended


async def _act(control: Control, row: RunRow, *, deaf: bool) -> None:
    """End the run here if nobody else will. Somebody who is faster is left to it."""
    lives = await _lives(control, row)
    stands = row.status == "blocked" or row.paused_at is not None
    try:
        if deaf:
            await control.enforce(row.tenant, row.id, live=True)
        elif not lives and (stands or not await _served(control, row)):
            await control.enforce(row.tenant, row.id)
    except LeaseLost:
        pass


async def _answer(control: Control, row: RunRow) -> None:
    """What an ended run was asked is answered in its log."""
    try:
        if await control.store.unread(row.tenant, row.id):
            await control.take_in(row.tenant, row.id, only=ENDED)
    except LeaseLost:
        pass


async def _lives(control: Control, row: RunRow) -> bool:
    given = control.clock.now()
    now = await control.store.now() if given is None else given
    return row.status == "running" and row.expires_at is not None and now < row.expires_at


async def _served(control: Control, row: RunRow) -> bool:
    """Whether a live worker serves the agent, as the run's pin asks, with a build that has not diverged on it."""
    tried = {one.code for one in await control.store.divergences(row.tenant, row.id)}
    alive = await control.store.workers(within_ms=_ALIVE_MS, now=control.clock.now())
    return any(worker.fits(row) and worker.serves[row.agent] not in tried for worker in alive)


async def _run(control: Control, tenant: Tenant, run: str) -> RunRow:
    row = await control.store.run(tenant, RunId(run))
    if row is None:
        raise UnknownRun(run=run)
    return row
