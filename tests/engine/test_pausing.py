"""Terminate, pause and resume: in every status, whoever lives."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from outlive import Operation, Run
from outlive.engine import inbox
from outlive.engine.cancelling import Request, written
from outlive.engine.worker import Worker
from outlive.errors import WrongState
from outlive.model.run import Head
from outlive.store.port import Append, Message
from tests.engine.rig import Rig
from tests.engine.scenes import acts, lost
from tests.engine.subject import RUN, act, add, base, begin, does, look
from tests.engine.test_cancel import cancel, cleans_up, handle, recorded, served, sleeps, told

WHO, WHY = "ada", "enough"


async def receives(run: Run[None]) -> object:
    return await run.receive("offers", str)


# ---- terminate


@pytest.mark.parametrize("status", ["ready", "waiting", "blocked", "paused"])
async def test_terminate_ends_a_run_in_any_status(either: Rig, status: str) -> None:
    rig = either
    does.tool = lost
    worker = await served(rig, acts if status == "blocked" else cleans_up(sleeps))
    if status != "ready":
        await rig.settle(worker)
    if status == "paused":
        await handle(rig).pause(who=WHO)
    await handle(rig).terminate(who=WHO, why=WHY)
    row = await rig.row(RUN)
    assert (row.status, row.reason, row.detail, row.paused_at) == ("cancelled", "terminated", "ada: enough", None)
    await rig.settle(worker)
    assert "add 99" not in does.steps
    with pytest.raises(WrongState, match="only a run that has not ended can be terminated"):
        await handle(rig).terminate(who=WHO, why=WHY)


async def test_terminate_refuses_what_a_live_owner_writes_next(either: Rig) -> None:
    rig, reached, go_on = either, asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        reached.set()
        await go_on.wait()
        return "did"

    does.tool = slow
    worker = await served(rig, acts)
    await worker.claim()
    await reached.wait()
    await handle(rig).terminate(who=WHO, why=WHY)
    assert [one.status for one in await rig.operations(RUN)] == ["unknown"]
    go_on.set()
    await worker.idle()
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert [one.status for one in await rig.operations(RUN)] == ["succeeded"], "what it learned is evidence"


# ---- pause and resume


@pytest.mark.parametrize("status", ["ready", "waiting", "blocked"])
async def test_a_run_that_nobody_drives_is_paused_and_resumed(either: Rig, status: str) -> None:
    rig = either
    does.tool = lost
    worker = await served(rig, acts if status == "blocked" else receives)
    if status != "ready":
        await rig.settle(worker)
    assert await handle(rig).pause(who=WHO, why=WHY) == "paused"
    assert await handle(rig).pause(who=WHO, why=WHY) == "paused", "it is already"
    row = await rig.row(RUN)
    assert (row.status, row.paused_at) == (status, rig.clock.now())
    if status != "blocked":
        await handle(rig).send("offers", "hello", key="one")
    await rig.pass_time(worker, timedelta(days=1))
    assert (await rig.row(RUN)).status == status, "it stands still"
    await handle(rig).resume(who=WHO, why=WHY)
    row = await rig.row(RUN)
    assert (row.status, row.paused_at) == ("ready", None)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == ("blocked" if status == "blocked" else "succeeded")
    kinds = await rig.kinds(RUN)
    assert (kinds.count("paused"), kinds.count("resumed")) == (1, 1)
    with pytest.raises(WrongState, match="only a paused run"):
        await handle(rig).resume(who=WHO, why=WHY)


async def test_a_live_owner_pauses_when_its_calls_have_their_record(either: Rig) -> None:
    rig, reached, go_on = either, asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        reached.set()
        await go_on.wait()
        return "did"

    async def body(run: Run[None]) -> object:
        await run.call(act, "it")
        return await run.step(add, 2)

    does.tool = slow
    worker = await served(rig, body)
    await worker.claim()
    await reached.wait()
    assert await handle(rig).pause(who=WHO, why=WHY) == "asked"
    await told(rig, worker)
    while not any(drive.attempt and drive.attempt.stop for drive in worker._drives.values()):
        await rig.row(RUN)
    go_on.set()
    await worker.idle()
    row = await rig.row(RUN)
    assert (row.status, row.paused_at is not None) == ("ready", True)
    assert [one.status for one in await rig.operations(RUN)] == ["succeeded"]
    assert does.steps == []
    await rig.settle(worker)
    assert does.steps == []
    await handle(rig).resume(who=WHO)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"


@pytest.mark.parametrize("when", ["at once", "one after the other"])
async def test_two_who_ask_for_a_pause_get_it_and_then_the_run_stands_still(either: Rig, when: str) -> None:
    """No request is left unread behind the pause: every look of every worker would find it, and write a claim."""
    rig, reached, go_on = either, asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        reached.set()
        await go_on.wait()
        return "did"

    does.tool = slow
    worker = await served(rig, acts)
    await worker.claim()
    await reached.wait()
    assert await handle(rig).pause(who=WHO, why=WHY) == "asked"
    if when == "one after the other":
        await told(rig, worker)
        while not any(drive.attempt and drive.attempt.stop for drive in worker._drives.values()):
            await rig.row(RUN)
    assert await handle(rig).pause(who="bob", why=WHY) == "asked"
    if when == "at once":
        await told(rig, worker)
        while not any(drive.attempt and drive.attempt.stop for drive in worker._drives.values()):
            await rig.row(RUN)
    go_on.set()
    await worker.idle()
    await worker.claim()
    row, entries = await rig.row(RUN), len(await rig.entries(RUN))
    assert row.paused_at is not None
    assert await rig.store.unread(row.tenant, row.id) == []
    for _ in range(3):
        await worker.claim()
    assert len(await rig.entries(RUN)) == entries


async def test_a_pause_survives_the_owner_that_was_asked(rig: Rig) -> None:
    """It dies when it has heard of it, with a call in flight: the run is not paused yet."""
    heard = asyncio.Event()
    reached = asyncio.Event()

    async def hangs(op: Operation[None]) -> str:
        reached.set()
        await asyncio.Event().wait()
        return "never"

    async def body(run: Run[None]) -> object:
        await run.call(look, "it")
        return await run.step(add, 1)

    does.tool = hangs
    await begin(rig, body)
    first = rig.mortal(rig.app(base))
    crash = asyncio.ensure_future(rig.crash(first, heard))
    await reached.wait()
    assert await handle(rig).pause(who=WHO) == "asked"
    await told(rig, first)
    while not any(drive.attempt and drive.attempt.stop for drive in first._drives.values()):
        await rig.row(RUN)
    heard.set()
    await crash
    assert (await rig.row(RUN)).paused_at is None
    await rig.take_over(rig.worker(base))
    assert (await rig.row(RUN)).paused_at is not None
    assert (len(rig.sent), does.steps) == (1, [])


async def test_a_paused_run_is_cancelled_at_once(either: Rig) -> None:
    rig = either
    worker = await served(rig, cleans_up(sleeps))
    await rig.settle(worker)
    await handle(rig).pause(who=WHO)
    assert await cancel(rig) == "cancelled"
    assert (await rig.row(RUN)).paused_at is None


async def test_a_cancel_that_was_only_stored_ends_a_paused_run_too(either: Rig) -> None:
    """Whoever asked died before acting: any worker does it."""
    rig = either
    worker = await served(rig, cleans_up(sleeps))
    await rig.settle(worker)
    await handle(rig).pause(who=WHO)
    row = await rig.row(RUN)
    body = written(Request("cancel", WHO, WHY))
    await rig.store.post(Message(row.tenant, row.id, inbox.CONTROL, "k", body), now=rig.clock.now())
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"


async def asked_only(rig: Rig, what: Literal["cancel", "pause"]) -> None:
    """Whoever asked has died before acting."""
    row = await rig.row(RUN)
    body = written(Request(what, WHO, WHY))
    await rig.store.post(Message(row.tenant, row.id, inbox.CONTROL, what, body), now=rig.clock.now())


async def blocked_by_a_change(rig: Rig) -> Worker:
    """A run that every build there is has diverged from: no worker claims it for a message."""
    worker = await served(rig, cleans_up(sleeps))
    await rig.settle(worker)
    does.body = cleans_up(receives)
    rig.clock.advance(timedelta(days=3))
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    return worker


async def test_a_cancel_that_was_only_stored_ends_a_run_that_no_build_can_continue(either: Rig) -> None:
    rig = either
    worker = await blocked_by_a_change(rig)
    await asked_only(rig, "cancel")
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert (await rig.kinds(RUN))[-2:] == ["cancelling", "ended"]


async def test_a_pause_that_was_only_stored_pauses_a_run_that_no_build_can_continue(either: Rig) -> None:
    rig = either
    worker = await blocked_by_a_change(rig)
    await asked_only(rig, "pause")
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason, row.paused_at is not None) == ("blocked", "diverged", True)
    entries = len(await rig.entries(RUN))
    await rig.settle(worker)
    assert len(await rig.entries(RUN)) == entries


@pytest.mark.parametrize("status", ["blocked", "paused"])
async def test_a_cancel_is_read_only_by_the_commit_that_ends_the_run(
    rig: Rig, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends it may die between any two commits: a cancel that is read, and a run that stands, is lost."""
    does.tool = lost
    worker = await served(rig, acts if status == "blocked" else cleans_up(sleeps))
    await rig.settle(worker)
    if status == "paused":
        await handle(rig).pause(who=WHO)
    await asked_only(rig, "cancel")
    seen: list[bool] = []
    store = rig.store.append

    async def watched(append: Append, *, now: int | None = None) -> Head:
        if append.taken:
            seen.append(append.change is not None and append.change.status == "cancelled")
        return await store(append, now=now)

    monkeypatch.setattr(rig.store, "append", watched)
    await worker.claim()
    assert (await rig.row(RUN)).status == "cancelled"
    assert seen == [True]


async def test_a_pause_during_the_clean_up_is_too_late(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            await run.sleep(timedelta(days=1))
        except asyncio.CancelledError:
            await handle(rig).pause(who=WHO)
            await told(rig, worker)
            await recorded(rig, "too late")
            await run.step(add, 99)
            raise
        return None

    worker = await served(rig, body)
    await rig.settle(worker)
    await cancel(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert does.steps == ["add 99"]


async def test_an_owner_that_does_not_hear_is_ended_over_its_head(rig: Rig) -> None:
    """Its lease lives, but nothing of it looks into the inbox: whoever waits does not wait for ever."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        reached.set()
        await go_on.wait()
        return "did"

    does.tool = slow
    worker = await served(rig, acts)
    await worker.claim()
    await reached.wait()
    asked = asyncio.ensure_future(handle(rig).cancel(who=WHO, why=WHY, wait=timedelta(hours=1)))
    while not asked.done():
        for run in worker._drives.values():
            authority = run.grip.authority
            await asyncio.to_thread(rig.store.renew, worker.owner, [authority], 30_000, now=rig.clock.now())
        rig.clock.advance(timedelta(milliseconds=500))
        await rig.row(RUN)
    assert asked.result() == "cancelled"
    assert [one.status for one in await rig.operations(RUN)] == ["unknown"]
    go_on.set()
    await told(rig, worker)
    await worker.idle()
