"""A cancel where nobody lives, deadlines, the end of grace, and what comes too late: never silently."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation, Run
from outlive.app import stop
from outlive.engine.attempt import Kit
from outlive.errors import RunCancelled, RunExpired
from outlive.model.run import Head
from outlive.store.port import Append, Store
from tests.engine.rig import Mortal, Rig
from tests.engine.scenes import acts, control, lost
from tests.engine.subject import RUN, Body, State, act, add, base, begin, does, double, subject
from tests.engine.test_cancel import CLEAN_UP, cancel, cleans_up, handle, recorded, served, settled, sleeps, told

WHO, WHY = "ada", "enough"


async def receives(run: Run[None]) -> object:
    return await run.receive("offers", str)


# ---- nobody is alive, or nobody can


@pytest.mark.parametrize("status", ["ready", "waiting", "blocked"])
async def test_with_no_worker_alive_whoever_asks_ends_the_run_without_its_code(either: Rig, status: str) -> None:
    rig = either
    worker = await begin(rig, acts if status == "blocked" else cleans_up(sleeps))
    does.tool = lost
    if status != "ready":
        await rig.settle(worker)
    assert (await rig.row(RUN)).status == status
    assert await cancel(rig) == "cancelled"
    row = await rig.row(RUN)
    assert (row.status, row.reason, row.detail) == ("cancelled", "cancel", "ada: enough")
    assert "add 99" not in does.steps
    assert [one.status for one in await rig.operations(RUN)] == (["unknown"] if status == "blocked" else [])
    with pytest.raises(RunCancelled, match="enough"):
        await handle(rig).result()


async def test_a_run_that_is_ready_begins_only_to_be_told(either: Rig) -> None:
    rig = either
    worker = await served(rig, cleans_up(sleeps))
    assert await cancel(rig) == "asked"
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert does.steps == [], "its first call is not begun"


async def test_a_blocked_run_ends_at_once_although_a_worker_serves_it(either: Rig) -> None:
    rig = either
    worker = await served(rig, acts)
    does.tool = lost
    await rig.settle(worker)
    assert await cancel(rig) == "cancelled"
    assert [one.status for one in await rig.operations(RUN)] == ["unknown"]
    assert (await rig.kinds(RUN))[-2:] == ["cancelling", "ended"]


async def test_the_owner_that_died_in_its_clean_up_is_taken_over_from(rig: Rig) -> None:
    """The clean-up goes on where it was: no call of it is made twice."""
    reached = asyncio.Event()

    async def body(run: Run[None]) -> object:
        try:
            await run.sleep(timedelta(days=1))
        except asyncio.CancelledError:
            await run.step(add, 99)
            if not reached.is_set():
                reached.set()
                await asyncio.Event().wait()
            await run.step(double, 99)
            raise
        return None

    await begin(rig, body)
    first = rig.mortal(rig.app(base))
    await first._patiently_announce()
    await rig.settle(first)
    assert await cancel(rig, grace=timedelta(minutes=5)) == "asked"
    await rig.crash(first, reached)
    await rig.take_over(rig.worker(base))
    assert (await rig.row(RUN)).status == "cancelled"
    assert does.steps == CLEAN_UP


async def test_a_drain_gives_the_clean_up_to_the_next_worker(rig: Rig) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        reached.set()
        await go_on.wait()
        return "did"

    async def part(run: Run[None]) -> object:
        return await run.call(act, "it")

    does.tool = slow
    worker = await served(rig, cleans_up(part))
    await worker.claim()
    await reached.wait()
    for drive in worker._drives.values():
        drive.drain()
    await cancel(rig)
    await told(rig, worker)
    await recorded(rig)
    go_on.set()
    await worker.idle()
    assert (await rig.row(RUN)).status == "ready"
    await rig.settle(rig.worker(base))
    assert (await rig.row(RUN)).status == "cancelled"
    assert does.steps == ["add 1", *CLEAN_UP]


# ---- what the code does with it


async def test_who_swallows_a_cancel_and_returns_is_cancelled_all_the_same(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            await run.sleep(timedelta(days=1))
        except asyncio.CancelledError:
            pass
        return "as if nothing had been"

    worker = await served(rig, body)
    await rig.settle(worker)
    await cancel(rig)
    await rig.settle(worker)
    (ended,) = [one for one in await rig.entries(RUN) if one.kind == "ended"]
    assert '"cancelled"' in ended.body
    assert ended.payload is None


async def test_an_error_of_the_clean_up_is_kept_with_the_end(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            await run.sleep(timedelta(days=1))
        finally:
            raise ValueError("the broom broke")

    worker = await served(rig, body)
    await rig.settle(worker)
    await cancel(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert "the broom broke" in (await rig.entries(RUN))[-1].body


@pytest.mark.parametrize("evict", [False, True])
async def test_a_loop_that_goes_on_is_ended_where_its_turn_would_commit(rig: Rig, evict: bool) -> None:
    """The next window would not know that the run is cancelled."""

    async def body(run: Run[None]) -> object:
        async for state in run.turns(State()):
            await run.step(add, state.n)
            state.n += 1
            try:
                await run.sleep(timedelta(days=1))
            except asyncio.CancelledError:
                await run.step(double, state.n)
        return None

    rig.evict = evict
    worker = await served(rig, body)
    await settled(rig, worker)
    await cancel(rig)
    await settled(rig, worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert does.steps == ["add 0", "double 1"]
    assert (await rig.kinds(RUN)).count("turn") == 1


async def test_a_cancel_in_a_turn_is_told_there(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async for state in run.turns(State()):
            try:
                if state.n == 1:
                    await cancel(rig)
                    await told(rig, worker)
                    while True:
                        await rig.kinds(RUN)
                await run.step(add, state.n)
            except asyncio.CancelledError:
                await run.step(double, state.n)
                raise
            state.n += 1
        return None

    worker = await served(rig, body)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert does.steps == ["add 0", "double 1"]


async def test_what_is_not_durable_is_interrupted_too(rig: Rig) -> None:
    reached = asyncio.Event()

    async def body(run: Run[None]) -> object:
        await run.step(add, 1)
        try:
            reached.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await run.step(double, 1)
            await run.sleep(timedelta(seconds=1))
            await run.step(double, 2)
            raise
        return None

    worker = await served(rig, body)
    await worker.claim()
    await reached.wait()
    await cancel(rig)
    await told(rig, worker)
    await worker.idle()
    assert (await rig.until_ended(rig.worker(base), RUN)).status == "cancelled"
    assert does.steps == ["add 1", "double 1", "double 2"]


async def test_branches_of_the_clean_up_are_not_cancelled_with_the_run(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            await run.gather(run.sleep(timedelta(days=1)), run.receive("t", str))
        except asyncio.CancelledError:
            await run.gather(run.step(add, 1), run.step(double, 1))
            await run.sleep(timedelta(seconds=1))
            await run.gather(run.step(add, 2), run.step(double, 2))
            raise
        return None

    worker = await served(rig, body)
    await rig.settle(worker)
    await cancel(rig)
    assert (await rig.until_ended(worker, RUN)).status == "cancelled"
    assert sorted(does.steps) == ["add 1", "add 2", "double 1", "double 2"]


# ---- grace


@pytest.mark.parametrize("part", ["sleeps", "is in doubt"])
async def test_clean_up_ends_with_its_grace(either: Rig, part: str) -> None:
    rig = either

    async def body(run: Run[None]) -> object:
        try:
            await run.sleep(timedelta(days=1))
        except asyncio.CancelledError:
            await run.step(add, 99)
            await (run.sleep(timedelta(days=1)) if part == "sleeps" else run.call(act, "undo"))
            await run.step(double, 99)
        return None

    does.tool = lost
    worker = await served(rig, body)
    await rig.settle(worker)
    await cancel(rig, grace=timedelta(seconds=10))
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.wake_at) == ("waiting", rig.clock.now() + 10_000)
    await rig.pass_time(worker, timedelta(seconds=10))
    assert (await rig.row(RUN)).status == "cancelled"
    assert does.steps == ["add 99"]
    assert [one.status for one in await rig.operations(RUN)] == ([] if part == "sleeps" else ["unknown"])


async def test_a_call_that_outlasts_the_grace_becomes_unknown_and_its_answer_evidence(rig: Rig) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        reached.set()
        await go_on.wait()
        return "did it after all"

    async def part(run: Run[None]) -> object:
        return await run.call(act, "it")

    does.tool = slow
    worker = await served(rig, cleans_up(part))
    worker.kit = _in_place(worker.kit)
    await worker.claim()
    await reached.wait()
    await cancel(rig, grace=timedelta(seconds=10))
    await told(rig, worker)
    await recorded(rig)
    rig.clock.advance(timedelta(seconds=10))
    while not (row := await rig.row(RUN)).ended:
        pass
    assert row.status == "cancelled"
    assert [one.status for one in await rig.operations(RUN)] == ["unknown"]
    go_on.set()
    await worker.idle()
    await rig.settle(worker)
    assert [one.status for one in await rig.operations(RUN)] == ["succeeded"]
    assert (await rig.kinds(RUN))[-1] == "evidence"


def _in_place(kit: Kit) -> Kit:
    """A worker that notices by itself that a time has come, as in production."""
    return replace(kit, wake_in_place=True)


# ---- deadlines


async def started(rig: Rig, body: Body, deadline: timedelta) -> None:
    does.body = body
    await rig.app(base).start(subject, "task", id=RUN, deadline=deadline)


async def test_a_waiting_run_cleans_up_at_its_deadline(either: Rig) -> None:
    rig = either
    await started(rig, cleans_up(receives), timedelta(hours=1))
    worker = rig.worker(rig.app(base))
    await rig.settle(worker)
    assert (await rig.row(RUN)).wake_at == (await rig.row(RUN)).deadline_at
    await rig.pass_time(worker, timedelta(hours=1))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("expired", "deadline")
    assert does.steps == ["add 1", *CLEAN_UP]
    with pytest.raises(RunExpired):
        await handle(rig).result()


@pytest.mark.parametrize("status", ["ready", "waiting"])
async def test_after_its_grace_nobody_cleans_up_any_more(either: Rig, status: str) -> None:
    rig = either
    await started(rig, cleans_up(receives), timedelta(hours=1))
    worker = rig.worker(rig.app(base))
    if status == "waiting":
        await rig.settle(worker)
    await rig.pass_time(worker, timedelta(hours=1, seconds=30))
    assert (await rig.row(RUN)).status == "expired"
    assert "add 99" not in does.steps


@pytest.mark.parametrize("status", ["paused", "blocked"])
async def test_a_run_that_stands_still_ends_at_its_deadline(either: Rig, status: str) -> None:
    rig = either
    does.tool = lost
    await started(rig, acts if status == "blocked" else receives, timedelta(hours=1))
    worker = rig.worker(rig.app(base))
    await rig.settle(worker)
    if status == "paused":
        assert await handle(rig).pause(who=WHO, why=WHY) == "paused"
    await rig.pass_time(worker, timedelta(hours=1))
    row = await rig.row(RUN)
    assert (row.status, row.paused_at) == ("expired", None)


async def test_a_call_in_flight_past_the_deadline_is_told_and_recorded(rig: Rig) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        if op.arguments["what"] == "it":
            reached.set()
            await go_on.wait()
        return "did"

    async def part(run: Run[None]) -> object:
        return await run.call(act, "it")

    does.tool = slow
    await started(rig, cleans_up(part), timedelta(seconds=5))
    worker = rig.worker(rig.app(base))
    worker.kit = _in_place(worker.kit)
    await worker.claim()
    await reached.wait()
    rig.clock.advance(timedelta(seconds=5))
    await recorded(rig)
    go_on.set()
    await worker.idle()
    assert (await rig.row(RUN)).status == "expired"
    assert [one.status for one in await rig.operations(RUN)] == ["succeeded", "succeeded"]
    assert does.steps == ["add 1", *CLEAN_UP]


# ---- too late, and races


async def test_a_cancel_of_an_ended_run_is_answered_in_its_log(either: Rig) -> None:
    rig = either
    worker = await served(rig, lambda run: run.step(add, 1))
    await rig.settle(worker)
    assert await cancel(rig) == "too late"
    assert (await rig.row(RUN)).status == "succeeded"
    assert (await rig.kinds(RUN))[-2:] == ["ended", "too late"]
    assert not await rig.store.unread((await rig.row(RUN)).tenant, (await rig.row(RUN)).id)


async def test_a_cancel_while_the_last_append_is_on_its_way_is_answered(either: Rig) -> None:
    """It is posted after the run has looked for the last time and before its end is stored."""
    rig = either
    posted: list[str] = []

    class Late(Mortal):
        def __getattr__(self, name: str) -> object:
            method = super().__getattr__(name)
            if name != "append":
                return method

            async def append(one: Append, *, now: int | None = None) -> Head:
                if one.change is not None and not posted:
                    posted.append(await cancel(rig))
                return await rig.store.append(one, now=now)

            return append

    await begin(rig, lambda run: run.step(add, 1))
    worker = rig.worker(rig.app(base), store=cast(Store, Late(rig.store)))
    await worker._patiently_announce()
    await rig.settle(worker)
    assert posted == ["asked"]
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert (await rig.kinds(RUN))[-1] == "too late"


async def test_a_second_cancel_of_one_key_is_the_same(rig: Rig) -> None:
    worker = await served(rig, cleans_up(sleeps))
    await rig.settle(worker)
    tenant = (await rig.row(RUN)).tenant
    for _ in range(3):
        assert await stop.cancel(control(rig), tenant, RUN, who=WHO, why=WHY, key="one") == "asked"
    await rig.settle(worker)
    assert (await rig.kinds(RUN)).count("cancelling") == 1
    assert "too late" not in await rig.kinds(RUN)
