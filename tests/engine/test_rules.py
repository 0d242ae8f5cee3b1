"""Rules of leases, doubt and poison that no other test would miss."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path

from outlive import Operation, Run
from outlive.app.decide import retry_blocked
from outlive.engine import inbox
from outlive.engine.authority import DatabaseTime, Grip, Keeper
from outlive.model.clock import SystemClock
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import Authority
from outlive.store.port import Message, Renewed
from tests.engine.rig import LEASE, Rig, rig_at
from tests.engine.scenes import acts, control, crash_in_flight, lost, pays
from tests.engine.subject import RUN, act, add, base, begin, does, subject


async def _until_waiting(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task], timeout=0.1)
    assert not task.done()


async def test_nothing_is_sent_late_in_a_lease_that_has_not_been_renewed(rig: Rig) -> None:
    """The run is still ours, but the window would be too short to send in: the renewal is waited for."""

    async def body(run: Run[None]) -> object:
        await run.step(add, 1)
        rig.clock.advance(LEASE * 5 / 6)
        return await run.call(act, "it")

    worker = await begin(rig, body)
    await worker.claim()
    idle = asyncio.ensure_future(worker.idle())
    await _until_waiting(idle)
    assert rig.sent == []
    worker._keeper.renew_once()
    await idle
    assert len(rig.sent) == 1


async def test_nothing_is_appended_past_the_lease_that_can_be_proven(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        rig.clock.advance(LEASE)
        return await run.step(add, 1)

    worker = await begin(rig, body)
    await worker.claim()
    idle = asyncio.ensure_future(worker.idle())
    await _until_waiting(idle)
    assert "step" not in await rig.kinds(RUN)
    worker._keeper.renew_once()
    await idle
    assert (await rig.row(RUN)).status == "succeeded"


async def test_after_a_crash_the_other_side_has_its_time_before_a_no_counts(rig: Rig) -> None:
    await crash_in_flight(rig, pays)
    worker = rig.worker(rig.app(base))
    await rig.take_over(worker)
    (claimed,) = [line for line in await rig.lines(RUN) if line.kind == "claimed" and line.text.startswith("takeover")]
    (operation,) = await rig.operations(RUN)
    # The time-out of the call (20 s) and settle_after (5 s), from the claim of the worker that waits.
    assert 25_000 <= operation.not_before - claimed.at < 29_000


async def test_messages_do_not_make_progress(tmp_path: Path) -> None:
    """A run that lapses each time is poison, however much is written to it meanwhile."""
    async with rig_at(tmp_path, max_lapses=2) as rig:
        await crash_in_flight(rig, acts)

        async def hangs(op: Operation[None]) -> str:
            await asyncio.Event().wait()
            return "never"

        for number in range(2):
            junk = Message(DEFAULT_TENANT, RunId(RUN), inbox.EVIDENCE, f"k{number}", '{"operation":"op-none"}')
            await rig.store.post(junk)
            before = (await rig.row(RUN)).lapses
            does.tool = hangs
            await rig.take_over(rig.worker(rig.app(base)))
            row = await rig.row(RUN)
            assert row.lapses >= before
            if row.status == "blocked":
                break
        assert (await rig.row(RUN)).lapses > 0


async def test_a_blocked_run_keeps_nothing_pending(tmp_path: Path) -> None:
    async with rig_at(tmp_path, max_lapses=1) as rig:
        await crash_in_flight(rig, acts)
        await rig.take_over(rig.worker(rig.app(base)))
        row = await rig.row(RUN)
        (operation,) = await rig.operations(RUN)
        assert (row.reason, operation.status) == ("poison", "unknown")
        assert operation.not_before > row.updated_at + timedelta(minutes=1) / timedelta(milliseconds=1) - 20_000


async def test_a_word_about_another_attempt_settles_nothing(rig: Rig) -> None:
    await crash_in_flight(rig, acts)
    worker = rig.worker(rig.app(base))
    await rig.take_over(worker)
    (operation,) = await rig.operations(RUN)
    assert (operation.status, operation.attempt) == ("unknown", 1)
    said = inbox.Decision(operation.id, 2, "happened", "ada", "she looked at another", '"x"')
    await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), inbox.RESOLUTION, "k", inbox.resolution(said)))
    await rig.settle(worker)
    assert (await rig.row(RUN)).reason == "operation in doubt"
    assert (await rig.operations(RUN))[0].status == "unknown"


async def test_all_blocked_runs_are_tried_again_however_many(rig: Rig) -> None:
    does.tool, does.body = lost, acts
    app = rig.app(base)
    for number in range(120):
        await app.start(subject, "task", id=f"r{number}")
    worker = rig.worker(app)
    await rig.settle(worker)
    tried = await retry_blocked(control(rig), DEFAULT_TENANT, who="ada", why="a new release")
    assert len(tried) == 120


class Failing:
    """A store whose first renewal fails in a way that no store should."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.times = 0

    def renew(self, owner: Owner, held: object, lease_ms: int, *, now: int | None = None, **_: object) -> Renewed:
        self.times += 1
        self.asked.release()
        if self.times == 1:
            raise MemoryError("once")
        return Renewed(0, frozenset(), frozenset())


async def test_the_thread_that_renews_outlives_any_error() -> None:
    clock, store = SystemClock(), Failing()
    keeper = Keeper(store, Owner("w"), 300, clock, DatabaseTime(clock))  # type: ignore[arg-type]  # it only renews
    authority, loop = Authority(DEFAULT_TENANT, RunId("r"), 1, "t"), asyncio.get_running_loop()
    keeper.hold(Grip(authority, clock.boottime() + 1, clock, loop))
    keeper.start(loop)
    try:
        for _ in range(3):
            assert await asyncio.to_thread(store.asked.acquire, timeout=10)
    finally:
        await asyncio.to_thread(keeper.stop)
    assert store.times >= 3
