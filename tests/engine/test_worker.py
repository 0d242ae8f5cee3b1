"""Workers: whose runs they take, whose they leave, and what they do with runs that need no agent code."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from outlive import NotSent, Operation, Outlive, Run
from outlive.engine.authority import DatabaseTime, Grip, Keeper, margin_s
from outlive.errors import BadArguments, RunExists, RunExpired, RunFailed, StoreUnavailable, TimedOut, UnknownRun
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import Authority, Head
from outlive.model.signals import Unwind
from outlive.store.port import Append, Renewed, Store
from outlive.store.sqlite.hints import HintFile
from outlive.testing.clock import ManualClock
from outlive.testing.faults import Fault, FaultyStore
from tests.engine.rig import LEASE, Mortal, Rig, rig_at
from tests.engine.subject import RUN, act, add, base, begin, does, reset, subject


async def hangs_then(rig: Rig) -> asyncio.Event:
    in_flight = asyncio.Event()

    async def hang(op: Operation[None]) -> str:
        in_flight.set()
        await asyncio.Event().wait()
        return "never"

    does.tool = hang
    return in_flight


async def acts(run: Run[None]) -> object:
    return await run.call(act, "it")


# ---- takeover


async def test_a_lapsed_lease_is_taken_only_after_watching_it_for_a_renewal_interval(rig: Rig) -> None:
    await begin(rig, acts)
    await rig.crash(rig.mortal(rig.app(base)), await hangs_then(rig))
    rig.clock.advance(timedelta(hours=5))  # a laptop's sleep, a clock that jumped: nobody has watched
    second = rig.worker(rig.app(base))
    assert await second.claim() == 0
    rig.clock.advance(timedelta(seconds=1))
    assert await second.claim() == 0
    for _ in range(10):
        rig.clock.advance(timedelta(seconds=1))
        if await second.claim():
            break
    else:
        pytest.fail("never taken over")
    await second.idle()
    assert (await rig.row(RUN)).reason == "operation in doubt"


async def test_a_gap_in_its_own_sight_starts_the_watch_again(rig: Rig) -> None:
    await begin(rig, acts)
    await rig.crash(rig.mortal(rig.app(base)), await hangs_then(rig))
    rig.clock.advance(LEASE)
    second = rig.worker(rig.app(base))
    await second.claim()
    rig.clock.advance(LEASE / 3 + timedelta(seconds=5))  # it did not look in between
    assert await second.claim() == 0


async def test_a_look_that_failed_starts_the_watch_again(rig: Rig) -> None:
    await begin(rig, acts)
    await rig.crash(rig.mortal(rig.app(base)), await hangs_then(rig))
    rig.clock.advance(LEASE)
    store = FaultyStore(rig.store)
    second = rig.worker(rig.app(base), store=store)
    assert await second.claim() == 0
    rig.clock.advance(LEASE / 6)
    store.inject(Fault("before", 1, "look"))
    with pytest.raises(StoreUnavailable):
        await second.claim()
    rig.clock.advance(LEASE / 6)
    assert await second.claim() == 0, "it has not seen the store all the time"
    rig.clock.advance(LEASE / 3)
    assert await second.claim() == 1
    await second.idle()


@pytest.mark.parametrize("lease", [2, 3, 15, 30])
@pytest.mark.parametrize("phase", [0.0, 0.4, 0.9])
async def test_a_dead_workers_run_moves_within_a_lease_and_a_second(
    lease: int, phase: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reset()
    monkeypatch.setattr(HintFile, "count_up", lambda _: None)
    async with rig_at(tmp_path, lease=timedelta(seconds=lease)) as rig:
        second = rig.worker(rig.app(base))
        serving = asyncio.ensure_future(second.run())
        # It is idle, and at any point of its longest wait.
        await rig.serve_for(serving, timedelta(seconds=25))
        await rig.serve_for(serving, await rig.next_wait(serving) * phase)
        first = rig.mortal(rig.app(base))
        begun = await hangs_then(rig)
        does.body = acts
        await rig.app(base).start(subject, "task", id=RUN)
        await rig.crash(first, begun)
        died = rig.clock.now()
        while (await rig.row(RUN)).epoch < 2:
            rig.clock.advance(await rig.next_wait(serving))
            await rig.next_wait(serving)
            assert rig.clock.now() - died <= lease * 1000 + 1000
        assert rig.clock.now() - died >= lease * 1000, "it was taken over too early"
        second.stop()
        await serving


async def steps_forever(run: Run[None]) -> object:
    await run.step(hang)
    return "never"


class Moment:
    """When the step of the attempt that runs now has begun."""

    begun = asyncio.Event()


async def hang() -> None:
    Moment.begun.set()
    await asyncio.Event().wait()


async def test_poison_counts_lapses_not_claims(tmp_path: Path) -> None:
    async with rig_at(tmp_path, max_lapses=2) as rig:
        await begin(rig, steps_forever)
        for lapse in (0, 1):
            begun = Moment.begun = asyncio.Event()
            dies = rig.mortal(rig.app(base))
            rig.clock.advance(LEASE)
            for _ in range(40):
                if begun.is_set():
                    break
                await dies.claim()
                await asyncio.wait([asyncio.ensure_future(begun.wait())], timeout=0.05)
                rig.clock.advance(timedelta(seconds=1))
            assert begun.is_set(), f"lapse {lapse}: never claimed"
            await rig.crash(dies, begun)
        last = rig.worker(rig.app(base))
        await rig.take_over(last)
        row = await rig.row(RUN)
        assert (row.status, row.reason) == ("blocked", "poison"), row
        assert "2 leases in a row lapsed" in row.detail


# ---- drain, deadlines


async def test_a_drained_worker_gives_its_runs_back_after_the_record(rig: Rig) -> None:
    in_flight, go_on = asyncio.Event(), asyncio.Event()

    async def tool(op: Operation[None]) -> str:
        in_flight.set()
        await go_on.wait()
        return "acted"

    async def body(run: Run[None]) -> object:
        await run.call(act, "first")
        return await run.call(act, "second")

    does.tool = tool
    worker = await begin(rig, body)
    await worker.claim()
    await in_flight.wait()
    worker.stop()
    go_on.set()
    await worker.idle()
    row = await rig.row(RUN)
    assert (row.status, row.owner) == ("ready", None)
    assert (await rig.kinds(RUN))[-2:] == ["outcome", "released"]
    second = rig.worker(rig.app(base))
    await rig.settle(second)
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(rig.sent) == 2
    assert (await rig.row(RUN)).lapses == 0


@pytest.mark.parametrize("ready", [True, False])
async def test_a_deadline_ends_a_run_that_nobody_drives(rig: Rig, ready: bool) -> None:
    async def tool(op: Operation[None]) -> str:
        raise ConnectionError("lost")

    does.tool, does.body = tool, acts
    app = rig.app(base)
    handle = await app.start(subject, "task", id=RUN, deadline=timedelta(hours=1))
    worker = rig.worker(app)
    if not ready:
        await rig.settle(worker)
        assert (await rig.row(RUN)).status == "blocked"
    await rig.pass_time(worker, timedelta(hours=1))
    assert (await rig.row(RUN)).status == "expired"
    with pytest.raises(RunExpired):
        await handle.result()
    assert [row.status for row in await rig.operations(RUN)] == ([] if ready else ["unknown"])


async def test_a_deadline_ends_a_run_before_its_next_call(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        rig.clock.advance(timedelta(seconds=11))
        return "acted"

    async def body(run: Run[None]) -> object:
        await run.call(act, "in time")
        return await run.call(act, "too late")

    does.tool, does.body = tool, body
    app = rig.app(base)
    await app.start(subject, "task", id=RUN, deadline=timedelta(seconds=10))
    await rig.settle(rig.worker(app))
    assert (await rig.row(RUN)).status == "expired"
    assert [arguments["what"] for _, arguments in rig.sent] == ["in time"]
    assert (await rig.kinds(RUN))[-3:] == ["outcome", "cancelling", "ended"]


async def test_a_due_timer_that_nobody_serves_does_not_make_a_worker_spin(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        raise NotSent("later")

    does.tool = tool
    await rig.settle(await begin(rig, acts))
    rig.clock.advance(timedelta(hours=1))
    store = FaultyStore(rig.store)
    idle = rig.worker(rig.app(Outlive[None]()), store=store)
    serving = asyncio.ensure_future(idle.run())
    await rig.serve_for(serving, timedelta(minutes=1))
    store.inject()  # count from here
    await rig.serve_for(serving, timedelta(minutes=1))
    assert 9 <= store.counts["look"] <= 11
    assert set(store.counts) == {"look"}
    idle.stop()
    await serving


async def test_a_timer_is_not_late_however_idle_a_worker_is(rig: Rig) -> None:
    class Busy(NotSent):
        retry_after = 63

    async def tool(op: Operation[None]) -> str:
        if len(rig.sent) == 1:
            raise Busy("429")
        return "acted"

    does.tool = tool
    worker = await begin(rig, acts)
    serving = asyncio.ensure_future(worker.run())
    while (wake_at := (await rig.row(RUN)).wake_at) is None:
        await rig.serve_for(serving, timedelta(milliseconds=20))
    await rig.serve_for(serving, timedelta(milliseconds=wake_at - rig.clock.now() - 1))
    assert (await rig.row(RUN)).status == "waiting"
    await rig.serve_for(serving, timedelta(milliseconds=3))  # sleeps are rounded up to milliseconds
    await worker.idle()
    assert (await rig.row(RUN)).status == "succeeded"
    worker.stop()
    await serving


async def test_who_drives_nothing_renews_nothing() -> None:
    clock, answers = ManualClock(), Answers()
    keeper = Keeper(answers, Owner("w"), 30_000, clock, DatabaseTime(clock))  # type: ignore[arg-type]  # it only renews
    answers.error = AssertionError("a renewal was sent")
    keeper.renew_once()
    grip = grip_at(clock, 28)
    keeper.hold(grip)
    with pytest.raises(AssertionError):
        keeper.renew_once()
    keeper.drop(grip)
    keeper.renew_once()


# ---- start, handle


async def test_start_is_idempotent_by_id_and_input(rig: Rig) -> None:
    app = rig.app(base)
    one = await app.start(subject, "task", id="r")
    two = await app.start(subject, "task", id="r")
    assert one.id == two.id
    with pytest.raises(RunExists, match="another input"):
        await app.start(subject, "other", id="r")
    other = Outlive[None](clock=rig.clock)
    other.use(rig.store)
    second = other.agent(name="second")(another)
    with pytest.raises(RunExists, match="another agent"):
        await other.start(second, "task", id="r")
    with pytest.raises(BadArguments):
        await app.start(subject, 7)  # type: ignore[misc]  # the misuse under test
    with pytest.raises(BadArguments, match="printable"):
        await app.start(subject, "task", id="a\nb")
    with pytest.raises(BadArguments, match="the id ''"):
        await app.start(subject, "task", id="")  # a variable that was not set must not make a new run each time


async def another(run: Run[None], task: str) -> str:
    return task


async def test_a_handle_says_how_a_run_ended(rig: Rig) -> None:
    async def fails(run: Run[None]) -> object:
        raise LookupError("no such thing")

    worker = await begin(rig, fails)
    app = rig.app(base)
    handle = app.handle(subject, RUN)
    assert await handle.status() == "ready"
    with pytest.raises(TimedOut, match="it is ready"):
        await handle.result(timeout=timedelta(0))
    await rig.settle(worker)
    with pytest.raises(RunFailed, match="LookupError: no such thing"):
        await handle.result()
    with pytest.raises(UnknownRun):
        await app.handle(subject, "nobody").result()
    with pytest.raises(StoreUnavailable, match="async with app"):
        await Outlive[None]().start(subject, "task")


async def test_priority_goes_first(rig: Rig) -> None:
    order: list[str] = []

    async def body(run: Run[None]) -> object:
        order.append(run.id)
        return None

    does.body = body
    app = rig.app(base)
    for number, priority in enumerate((0, 5, 1)):
        await app.start(subject, "task", id=f"r{number}", priority=priority)
    worker = rig.worker(app)
    worker.pace = replace(worker.pace, concurrency=1)
    await rig.settle(worker)
    assert order == ["r1", "r2", "r0"]


# ---- authority


def grip_at(clock: ManualClock, safe_for: float, *, kept: bool = True) -> Grip:
    authority = Authority(DEFAULT_TENANT, RunId("r"), 1, "t")
    return Grip(authority, clock.boottime() + safe_for, clock, asyncio.get_running_loop(), kept=kept)


async def test_past_the_safe_deadline_one_waits_and_goes_on_when_a_renewal_succeeds() -> None:
    clock = ManualClock()
    grip = grip_at(clock, 10)
    await grip.ensure()
    clock.advance(timedelta(seconds=11))
    waiting = asyncio.ensure_future(grip.ensure())
    await asyncio.wait([waiting], timeout=0.01)
    assert not waiting.done()
    grip.renewed(clock.boottime() + 28)
    await waiting
    grip.lose()
    with pytest.raises(Unwind):
        await grip.ensure()


class Answers:
    """A store that only renews, as the test says."""

    def __init__(self) -> None:
        self.kept: list[Authority] = []
        self.error: Exception | None = None

    def renew(self, owner: Owner, held: object, lease_ms: int, *, now: int | None = None, **_: object) -> Renewed:
        if self.error is not None:
            raise self.error
        return Renewed(now or 0, frozenset(self.kept), frozenset())


async def test_only_the_store_takes_a_run_away() -> None:
    clock, answers = ManualClock(), Answers()
    keeper = Keeper(answers, Owner("w"), 30_000, clock, DatabaseTime(clock))  # type: ignore[arg-type]  # the misuse under test
    grip = grip_at(clock, 28)
    keeper.hold(grip)
    answers.error = StoreUnavailable(store="s", why="restarting")
    with pytest.raises(StoreUnavailable):
        keeper.renew_once()
    assert not grip.lost
    answers.error, answers.kept = None, [grip.authority]
    clock.advance(timedelta(seconds=10))
    keeper.renew_once()
    assert grip.safe_until == clock.boottime() + 30 - margin_s(30)
    answers.kept = []
    keeper.renew_once()
    assert grip.lost


async def test_an_answer_about_an_older_claim_takes_nothing_away() -> None:
    clock, answers = ManualClock(), Answers()
    keeper = Keeper(answers, Owner("w"), 30_000, clock, DatabaseTime(clock))  # type: ignore[arg-type]  # the misuse under test
    grip = grip_at(clock, 28)
    keeper.hold(grip)
    older = grip.authority

    class Slow(Answers):
        def renew(self, owner: Owner, held: object, lease_ms: int, *, now: int | None = None, **_: object) -> Renewed:
            grip.moved(Authority(older.tenant, older.run, 2, "u"), clock.boottime() + 28)
            return Renewed(0, frozenset(), frozenset())

    keeper._store = Slow()  # type: ignore[assignment]  # a stand-in that only renews
    keeper.renew_once()
    assert not grip.lost


async def test_nothing_is_sent_after_the_send_window(rig: Rig) -> None:
    said: list[str] = []

    async def tool(op: Operation[None]) -> str:
        op.guard()
        if said:
            return "acted"
        rig.clock.advance(timedelta(seconds=29))
        worker._keeper.renew_once()  # the run is still ours; the window of this attempt is over all the same
        try:
            op.guard()
        except NotSent as error:
            said.append(str(error))
            raise
        return "never"

    does.tool = tool
    worker = await begin(rig, acts)
    row = await rig.until_ended(worker, RUN)
    assert said == ["the send window is over"]
    assert row.status == "succeeded"
    refused = [line for line in await rig.lines(RUN) if line.kind == "not acted"]
    assert refused[0].data["free"] is False, "a tool that was begun and was too slow has spent an attempt"


async def test_an_intent_that_took_too_long_to_commit_costs_no_attempt(rig: Rig) -> None:
    class Slow(Mortal):
        async def append(self, append: Append, *, now: int | None = None) -> Head:
            head = await rig.store.append(append, now=now)
            if append.drafts[-1].kind == "intent" and not slow:
                slow.append("once")
                rig.clock.advance(timedelta(seconds=29))
                worker._keeper.renew_once()
            return head

    slow: list[str] = []
    await begin(rig, acts)
    worker = rig.worker(rig.app(base), store=cast(Store, Slow(rig.store)))
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    refused = [line for line in await rig.lines(RUN) if line.kind == "not acted"]
    assert refused[0].data["free"] is True
    assert len(rig.sent) == 2, "it was about to be sent twice, and its body ran once"


async def test_a_step_runs_once_more_when_it_has_no_record(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return [await run.step(add, 1), await run.call(act, "it")]

    worker = await begin(rig, body)
    await rig.settle(worker)
    assert does.steps == ["add 1"]
