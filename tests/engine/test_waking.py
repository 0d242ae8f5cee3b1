"""What wakes a worker before its time, and how hints that lead to nothing are heeded less and less."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation
from outlive.engine.waking import CALM_S, QUIET_MOST_S, Waking
from outlive.engine.worker import Pace
from outlive.store.sqlite.hints import HintFile
from outlive.testing.clock import ManualClock
from outlive.testing.faults import FaultyStore
from tests.engine.rig import LEASE, Mortal, Rig
from tests.engine.scenes import acts
from tests.engine.subject import RUN, base, does, subject


async def waited(waking: Waking, clock: ManualClock, seconds: float) -> float:
    """How long it waits when nothing else comes; sleeps are rounded up to milliseconds."""
    waiting, before = asyncio.ensure_future(waking.wait(seconds)), clock.now()
    await asyncio.wait([waiting], timeout=0.001)
    while not waiting.done():
        sleeper = clock.next_sleeper()
        if sleeper is not None:
            clock.advance(sleeper)
        await asyncio.wait([waiting], timeout=0.001)
    return (clock.now() - before) / 1000


async def test_the_first_hint_is_heeded_at_once() -> None:
    clock = ManualClock()
    waking = Waking(clock, least=0.02)
    assert not waking.take()
    assert await waited(waking, clock, 5) == 5
    waking.heard(hinted=True)
    assert await waited(waking, clock, 5) == 0
    assert waking.take()
    assert not waking.take(), "one hint is heeded once"


async def test_hints_that_lead_to_nothing_are_heeded_less_and_less() -> None:
    clock = ManualClock()
    waking = Waking(clock, least=0.02)
    waits = []
    for _ in range(8):
        waking.heard(hinted=True)
        waits.append(await waited(waking, clock, 5))
        assert waking.take()
        waking.led_to(0)
    expected = [0, 0.02, 0.04, 0.08, 0.16, QUIET_MOST_S, QUIET_MOST_S, QUIET_MOST_S]
    assert waits == pytest.approx(expected, abs=0.002)
    # What is known here, and not just heard, does not wait.
    waking.heard(hinted=True)
    waking.told()
    assert await waited(waking, clock, 5) == 0
    assert waking.take()


async def test_a_hint_that_led_to_something_or_follows_a_calm_is_heeded_at_once() -> None:
    clock = ManualClock()
    waking = Waking(clock, least=0.02)
    for found, calm in ((1, 0.0), (0, CALM_S + 1)):
        for one in (0, 0, found):
            waking.heard(hinted=True)
            await waited(waking, clock, 5)
            assert waking.take()
            waking.led_to(one)
        clock.advance(timedelta(seconds=calm))
        waking.heard(hinted=True)
        assert await waited(waking, clock, 5) == 0
        assert waking.take()
        waking.led_to(0)
        waking.heard(hinted=True)
        assert await waited(waking, clock, 5) == pytest.approx(0.02, abs=0.002), "it begins anew"


async def test_news_of_its_own_end_a_wait() -> None:
    clock = ManualClock()
    waking = Waking(clock, least=0.02)
    waiting = asyncio.ensure_future(waking.wait(5))
    await asyncio.wait([waiting], timeout=0.001)
    assert not waiting.done()
    waking.wake()
    await waiting
    assert not waking.take(), "that is no reason to claim without a look"


async def test_without_hints_a_worker_looks_more_often_but_never_less_than_its_lease_asks() -> None:
    assert Pace().between_looks() == 6.0
    assert Pace().between_looks(hinted=False) == 1.0
    assert Pace(lease_ms=2_000).between_looks() == 2 / 3
    assert Pace(lease_ms=600).between_looks(hinted=False) == 0.2


# ---- a worker that serves


async def test_a_start_whose_hint_is_lost_is_found_by_polling(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HintFile, "count_up", lambda _: None)
    worker = rig.worker(rig.app(base))
    serving = asyncio.ensure_future(worker.run())
    await rig.serve_for(serving, timedelta(minutes=2))
    await rig.app(base).start(subject, "task", id=RUN)
    await rig.serve_for(serving, timedelta(seconds=worker.pace.poll_most))
    await worker.idle()
    assert (await rig.row(RUN)).ended
    worker.stop()
    await serving


async def test_hints_that_find_runs_to_start_keep_nothing_else_waiting(rig: Rig) -> None:
    store = FaultyStore(rig.store)
    worker = rig.worker(rig.app(base), store=store)
    assert await worker.claim() == 0
    for number in range(3):
        await rig.app(base).start(subject, "task", id=f"r{number}")
        assert await worker._hinted() == 1
        assert store.counts["look"] == 1 + number, "it claims without a look"
        assert worker._watch.left() == pytest.approx(worker.pace.poll_least)
        rig.clock.advance(timedelta(seconds=worker.pace.poll_least, milliseconds=1))
        await worker._hinted()
        assert store.counts["look"] == 2 + number, "but looks soon, however many hints come"
    await worker.idle()


async def test_a_worker_gives_a_sign_of_life_whether_it_drives_or_not(rig: Rig) -> None:
    in_flight = asyncio.Event()

    async def hang(op: Operation[None]) -> str:
        in_flight.set()
        await asyncio.Event().wait()
        return "never"

    does.tool = hang
    worker = rig.mortal(rig.app(base))
    serving = asyncio.ensure_future(worker.run())
    await rig.next_wait(serving)
    alive_s = 2 * LEASE / timedelta(milliseconds=1)
    for _ in range(20):
        await rig.serve_for(serving, LEASE / 2)
        [row] = await rig.store.workers(within_ms=int(alive_s), now=rig.clock.now())
        assert rig.clock.now() - row.seen_at <= 25_000
    does.body = acts
    await rig.app(base).start(subject, "task", id=RUN)
    worker.hint()
    await in_flight.wait()
    rig.clock.advance(timedelta(minutes=10))
    assert await rig.store.workers(within_ms=int(alive_s), now=rig.clock.now()) == []
    worker._keeper.renew_once()
    assert len(await rig.store.workers(within_ms=1, now=rig.clock.now())) == 1
    cast(Mortal, worker.store).kill()
    serving.cancel()
    for task in [serving, *worker._drives]:
        task.cancel()
    await asyncio.wait([serving, *worker._drives], timeout=1)
    worker._keeper.stop()
