"""The stop verbs of the command line: to cancel, terminate, pause or resume a run, and what came of it in words.

One run and many go through the same verb. What was asked and is not so yet is no failure; what came too late is.
"""

from __future__ import annotations

from datetime import timedelta

from outlive.app import stop
from outlive.app.bulk import NotYet, Verb
from outlive.engine.control import Control
from outlive.engine.worker import owner_name
from outlive.model.clock import SystemClock
from outlive.model.errors import UnknownRun, WrongState
from outlive.model.run import RunRow
from outlive.store.port import Store


def cancelling(who: str, why: str, *, grace: timedelta, wait: timedelta) -> Verb:
    """`stop.cancel`. Raises WrongState for a run that had ended otherwise."""

    async def verb(store: Store, row: RunRow) -> str:
        control = _control(store)
        came = await stop.cancel(control, row.tenant, row.id, who=who, why=why, grace=grace, wait=wait)
        return await _words(store, row, came, "asked to end; it does within its grace", "cancel")

    return verb


def terminating(who: str, why: str) -> Verb:
    """`stop.terminate`."""

    async def verb(store: Store, row: RunRow) -> str:
        await stop.terminate(_control(store), row.tenant, row.id, who=who, why=why)
        return "terminated"

    return verb


def pausing(who: str, why: str, *, wait: timedelta) -> Verb:
    """`stop.pause`. Raises WrongState also for a run that ended before it paused."""

    async def verb(store: Store, row: RunRow) -> str:
        came = await stop.pause(_control(store), row.tenant, row.id, who=who, why=why, wait=wait)
        asked = "asked to pause; it does when its calls in flight have their record"
        return await _words(store, row, came, asked, "pause")

    return verb


def resuming(who: str, why: str) -> Verb:
    """`stop.resume`."""

    async def verb(store: Store, row: RunRow) -> str:
        now = await stop.resume(_control(store), row.tenant, row.id, who=who, why=why)
        return f"goes on; it is {now.status}"

    return verb


async def _words(store: Store, row: RunRow, came: stop.Cancelled | stop.Paused, asked: str, verb: str) -> str:
    if came == "asked":
        return NotYet(asked)
    if came == "too late":
        now = await store.run(row.tenant, row.id)
        if now is None:
            raise UnknownRun(run=row.id)
        raise WrongState(run=row.id, status=now.status, wanted=f"it is too late to {verb} it")
    return came


def _control(store: Store) -> Control:
    clock = SystemClock()
    return Control(store, clock, owner_name(clock))
