"""Many timers that come due at once: worked off in order, beside what is new, and nothing is loaded that only waits."""

from dataclasses import replace
from datetime import timedelta

import pytest

from outlive import Run
from tests.engine.rig import Rig
from tests.engine.subject import base, does, subject

MANY = 12


async def sleeps(run: Run[None]) -> object:
    if run.id.startswith("timer"):
        await run.sleep(timedelta(minutes=int(run.id[5:]) + 1))
    does.steps.append(run.id)
    return None


async def start(rig: Rig, *names: str) -> None:
    does.body = sleeps
    for name in names:
        await rig.app(base).start(subject, "task", id=name)


@pytest.mark.parametrize("room", [1, 4])
async def test_a_backlog_of_timers_is_worked_off_in_order_and_starves_no_start(rig: Rig, room: int) -> None:
    worker = rig.worker(rig.app(base))
    await start(rig, *(f"timer{number:02}" for number in reversed(range(MANY))))
    await rig.settle(worker)
    assert (worker.running(), does.steps) == ([], []), "all of them wait, and none is loaded"
    rig.clock.advance(timedelta(hours=1))
    await start(rig, "new-1", "new-2")
    worker.pace = replace(worker.pace, concurrency=room)
    await rig.settle(worker)
    order = [int(name[5:]) for name in does.steps if name.startswith("timer")]
    assert sorted(order) == list(range(MANY))
    # Those that are driven at once may end in any order.
    assert all(abs(place - number) < room for place, number in enumerate(order)), order
    assert max(does.steps.index("new-1"), does.steps.index("new-2")) <= 4, does.steps
    assert worker.running() == []


async def test_a_backlog_of_starts_keeps_no_timer_waiting(rig: Rig) -> None:
    worker = rig.worker(rig.app(base))
    await start(rig, "timer00")
    await rig.settle(worker)
    await start(rig, *(f"new-{number:02}" for number in range(MANY)))
    rig.clock.advance(timedelta(hours=1))
    worker.pace = replace(worker.pace, concurrency=1)
    await rig.settle(worker)
    assert does.steps.index("timer00") <= 2, does.steps
