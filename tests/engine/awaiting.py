"""An operation that has its outcome later, and who tells it: what the tests of that play."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from outlive import DidNotHappen, Happened, Operation, Run
from outlive.engine.worker import Worker
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.operation import OperationRow
from outlive.store.telling import Telling
from tests.engine.rig import Rig
from tests.engine.scenes import acts
from tests.engine.subject import RUN, Body, base, begin, does, put

HOUR = timedelta(hours=1)


async def in_an_hour(op: Operation[None]) -> str:
    return op.pending(until=HOUR)


async def puts(run: Run[None]) -> object:
    return await run.call(put, "it")


async def tell(rig: Rig, outcome: Happened[object] | DidNotHappen, *, key: str = "evt-1", number: int = 0) -> None:
    await rig.app(base).complete((await rig.operations(RUN))[number].id, outcome, key=key)


async def operation(rig: Rig) -> OperationRow:
    (one,) = await rig.operations(RUN)
    return one


async def verdicts(rig: Rig) -> list[object]:
    """What came of each completion."""
    return [line.data["verdict"] for line in await rig.lines(RUN) if line.kind == "completion"]


async def notices(rig: Rig) -> list[str]:
    assert isinstance(rig.store, Telling)
    found = await rig.store.notifications(DEFAULT_TENANT, undelivered=True, limit=100)
    return [one.notification.kind for one in reversed(found)]


async def look_into_inbox(rig: Rig, worker: Worker) -> None:
    """The owner is told that something has come, and has looked."""
    await asyncio.to_thread(worker._keeper.renew_once)
    (drive,) = worker._drives.values()
    assert drive.attempt is not None
    while drive.grip.has_unread or drive.attempt.listening:
        await asyncio.wait(drive.attempt.helpers or {asyncio.ensure_future(rig.row(RUN))})


async def waiting(rig: Rig, body: Body = acts) -> Worker:
    """A run whose operation has its outcome to come."""
    worker = await begin(rig, body)
    await worker._patiently_announce()
    does.tool = in_an_hour
    await rig.settle(worker)
    assert (await operation(rig)).status == "later"
    return worker
