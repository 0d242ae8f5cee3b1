"""A run that is to end, and whose workers have all gone: a worker of something else ends it, or doctor names it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation, Outlive, Run
from outlive.app.doctor import Finding, Tally, examine
from outlive.engine.worker import Worker
from outlive.errors import WrongState
from outlive.store.keeping import Kept
from tests.engine.rig import LEASE, Rig
from tests.engine.subject import RUN, act, add, base, begin, does
from tests.engine.test_cancel import cancel, cleans_up, handle, recorded, served, sleeps, told

other: Outlive[None] = Outlive()


@other.agent()
async def elsewhere(run: Run[None], n: int) -> int:
    return n


async def bystander(rig: Rig) -> Worker:
    """A live worker of another application on the same store."""
    worker = rig.worker(rig.app(other))
    await worker._patiently_announce()
    return worker


async def watches(rig: Rig, worker: Worker, span: timedelta) -> None:
    """It looks every few seconds, gives signs of life, and time passes."""
    until = rig.clock.now() + int(span / timedelta(milliseconds=1))
    while (left := until - rig.clock.now()) > 0:
        await worker.claim()
        rig.clock.advance(timedelta(milliseconds=min(left, 9000)))
    await worker.claim()


async def named(rig: Rig) -> list[Finding]:
    return [one async for one in examine(cast(Kept, rig.store), Tally(), accept_unsafe=True)]


async def the_end(rig: Rig) -> None:
    row = await rig.row(RUN)
    assert (row.status, row.reason, row.detail) == ("cancelled", "cancel", "ada: enough")
    assert not await rig.store.unread(row.tenant, row.id)


@pytest.mark.parametrize("gone", ["drained", "killed"])
@pytest.mark.parametrize("status", ["ready", "waiting"])
async def test_a_request_outlives_the_last_worker_that_could_serve_it(either: Rig, status: str, gone: str) -> None:
    rig = either
    worker = await served(rig, cleans_up(sleeps))
    if status == "waiting":
        await rig.settle(worker)
    assert await cancel(rig) == "asked"
    if gone == "drained":
        await rig.store.leave(worker.owner)
    there = await bystander(rig)
    await watches(rig, there, 2 * LEASE - timedelta(seconds=5))
    assert (await rig.row(RUN)).status == status, "a worker that is started anew would let it clean up"
    await watches(rig, there, (0 if gone == "drained" else 2) * LEASE + timedelta(seconds=10))
    await the_end(rig)
    assert "add 99" not in does.steps
    before = await rig.kinds(RUN)
    await watches(rig, there, LEASE)
    assert await rig.kinds(RUN) == before


async def test_who_is_started_anew_in_time_lets_it_clean_up(either: Rig) -> None:
    rig = either
    worker = await served(rig, cleans_up(sleeps))
    await rig.settle(worker)
    await cancel(rig)
    await rig.store.leave(worker.owner)
    there = await bystander(rig)
    await watches(rig, there, 2 * LEASE - timedelta(seconds=5))
    again = rig.worker(base)
    await again._patiently_announce()
    await watches(rig, there, LEASE)
    assert (await rig.row(RUN)).status == "waiting", "somebody serves it again"
    await rig.settle(again)
    await the_end(rig)
    assert does.steps == ["add 1", "add 99", "double 99"]


async def test_what_was_not_asked_to_end_is_left_alone(either: Rig) -> None:
    rig = either
    worker = await served(rig, cleans_up(sleeps))
    await rig.settle(worker)
    await handle(rig).send("offers", "hello", key="one")
    await rig.store.leave(worker.owner)
    before = await rig.entries(RUN)
    await watches(rig, await bystander(rig), 6 * LEASE)
    assert await rig.entries(RUN) == before


async def test_a_clean_up_that_was_drained_ends_though_nobody_serves_it_any_more(either: Rig) -> None:
    rig, reached, go_on = either, asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        reached.set()
        await go_on.wait()
        return "did"

    does.tool = slow
    worker = await served(rig, cleans_up(lambda run: run.call(act, "it")))
    await worker.claim()
    await reached.wait()
    for drive in worker._drives.values():
        drive.drain()
    await cancel(rig)
    await told(rig, worker)
    await recorded(rig)
    go_on.set()
    await worker.idle()
    await rig.store.leave(worker.owner)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("ready", "cancelling")
    await watches(rig, await bystander(rig), 2 * LEASE + timedelta(seconds=5))
    await the_end(rig)
    assert does.steps == ["add 1"]


async def test_a_clean_up_that_waits_ends_though_nobody_serves_it_any_more(either: Rig) -> None:
    rig = either

    async def body(run: Run[None]) -> object:
        try:
            await run.sleep(timedelta(days=1))
        finally:
            await run.step(add, 99)
            await run.receive("the keys", str)
        return None

    worker = await served(rig, body)
    await rig.settle(worker)
    await cancel(rig, grace=timedelta(hours=1))
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason, row.detail) == ("waiting", "cancelling", "a message on the keys")
    there = await bystander(rig)
    await watches(rig, there, LEASE)
    await worker.claim()
    assert (await rig.row(RUN)).status == "waiting"
    await rig.store.leave(worker.owner)
    await watches(rig, there, 2 * LEASE + timedelta(seconds=5))
    await the_end(rig)


async def test_the_owner_that_died_with_a_request_unread(either: Rig) -> None:
    """Nobody can take the run over: it is given back, and then it is ended or paused as it was asked to."""
    rig, reached = either, asyncio.Event()

    async def body(run: Run[None]) -> object:
        reached.set()
        await asyncio.Event().wait()
        return None

    await begin(rig, body)
    first = rig.mortal(rig.app(base))
    await first._patiently_announce()
    await rig.crash(first, reached)
    assert await handle(rig).pause(who="ada", why="lunch") == "asked"
    there = await bystander(rig)
    await watches(rig, there, 6 * LEASE)
    row = await rig.row(RUN)
    assert (row.status, row.paused_at is not None) == ("ready", True)
    assert await handle(rig).cancel(who="ada", why="enough") == "cancelled"


async def test_a_run_that_is_being_cancelled_is_not_paused(either: Rig) -> None:
    rig = either

    async def body(run: Run[None]) -> object:
        try:
            await run.sleep(timedelta(days=1))
        finally:
            await run.receive("the keys", str)
        return None

    worker = await served(rig, body)
    await rig.settle(worker)
    await cancel(rig, grace=timedelta(hours=1))
    await rig.settle(worker)
    with pytest.raises(WrongState, match="it is being cancelled, too late to pause it"):
        await handle(rig).pause(who="ada", why="lunch")
    assert (await rig.kinds(RUN))[-1] == "too late"
    await rig.pass_time(worker, timedelta(hours=1))
    await the_end(rig)


async def test_with_no_worker_at_all_it_is_named(either: Rig) -> None:
    rig = either
    worker = await served(rig, cleans_up(sleeps))
    await rig.settle(worker)
    await cancel(rig)
    await rig.store.leave(worker.owner)
    (found,) = [one for one in await named(rig) if one.subject == RUN]
    assert found.trouble == "unserved run"
    assert "it was asked to end, or to be paused: outlive cancel subject-1 ends it, as any worker will" in found.why
    assert await cancel(rig) == "cancelled"
    assert not [one for one in await named(rig) if one.subject == RUN]
