"""A run in its loop of turns has all that comes before: what new code asks for there is not done at each attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlive import Operation, Run
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, State, act, add, begin, carry_on, does, double

DAY = timedelta(days=1)


async def rounds(run: Run[None]) -> object:
    async for state in run.turns(State()):
        state.n += await run.step(add, state.n)
        if state.n > 10:
            return state.n
        await run.sleep(DAY)
    return None


async def old(run: Run[None]) -> object:
    first = await run.step(double, 1)
    return [first, await rounds(run)]


async def a_step(run: Run[None]) -> object:
    first = await run.step(double, 1)
    await run.step(add, 100)
    return [first, await rounds(run)]


async def an_operation(run: Run[None]) -> object:
    first = await run.step(double, 1)
    await run.call(act, "it")
    return [first, await rounds(run)]


async def a_value(run: Run[None]) -> object:
    first = await run.step(double, 1)
    run.now()
    return [first, await rounds(run)]


async def a_wait(run: Run[None]) -> object:
    first = await run.step(double, 1)
    await run.sleep(timedelta(seconds=1))
    return [first, await rounds(run)]


async def branches(run: Run[None]) -> object:
    first = await run.step(double, 1)
    await run.gather(run.call(act, "it"))
    return [first, await rounds(run)]


async def no_loop(run: Run[None]) -> object:
    first = await run.step(double, 1)
    return [first, await run.call(act, "it")]


async def nothing_more(run: Run[None]) -> object:
    return [await run.step(double, 1)]


async def raises(run: Run[None]) -> object:
    await run.step(double, 1)
    raise ValueError("before the loop")


@pytest.mark.parametrize("body", [a_step, an_operation, a_value, a_wait, branches, no_loop, nothing_more, raises])
async def test_what_is_new_in_front_of_the_loop_is_not_done(rig: Rig, body: Body) -> None:
    sent: list[str] = []

    async def sends(op: Operation[None]) -> str:
        sent.append(op.id)
        return "sent"

    does.tool = sends
    worker = await begin(rig, old)
    await rig.settle(worker)
    rig.clock.advance(DAY)
    await rig.settle(worker)
    worker.stop()
    before = len(await rig.entries(RUN))
    steps = list(does.steps)

    rig.clock.advance(DAY)
    await rig.settle(await carry_on(rig, body))
    row = await rig.row(RUN)
    assert (row.status, row.reason, sent) == ("blocked", "diverged", []), row.detail
    assert "the log has turns(State) (entry " in row.detail
    assert does.steps == steps
    kinds = {one.kind for one in (await rig.entries(RUN))[before:]}
    assert kinds <= {"claimed", "blocked"}, kinds

    await rig.settle(await carry_on(rig, old, code="third"))
    assert (await rig.row(RUN)).status == "waiting", "code that fits goes on"
