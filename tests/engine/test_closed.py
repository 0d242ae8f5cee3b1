"""Once an attempt is closed, user code may unwind as it likes: nothing is appended or sent, its result is ignored."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from outlive import NotSent, Operation, Run
from tests.engine.rig import Rig
from tests.engine.subject import RUN, act, add, begin, does

Body = Callable[[Run[None]], Awaitable[object]]


async def acts_in_finally(run: Run[None]) -> object:
    try:
        return await run.call(act, "first")
    finally:
        await run.call(act, "from finally")


async def swallows(run: Run[None]) -> object:
    try:
        return await run.call(act, "first")
    except BaseException:  # noqa: BLE001 - what people write
        await run.call(act, "after swallowing")
        return "success, it says"


async def returns_in_finally(run: Run[None]) -> object:
    try:
        await run.call(act, "first")
    finally:
        return "success, it says"  # noqa: B012 - what people write


async def in_task_group(run: Run[None]) -> object:
    with contextlib.suppress(BaseException):
        async with asyncio.TaskGroup():
            await run.call(act, "first")
    await run.call(act, "after the group")
    return "success, it says"


async def steps_in_finally(run: Run[None]) -> object:
    try:
        return await run.call(act, "first")
    finally:
        await run.step(add, 1)


class Machine:
    def __init__(self, run: Run[None]) -> None:
        self._run = run

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> bool:
        await self._run.call(act, "from aexit")
        return True


async def in_async_with(run: Run[None]) -> object:
    async with Machine(run):
        await run.call(act, "first")
    return "success, it says"


@pytest.mark.parametrize(
    "body", [acts_in_finally, steps_in_finally, swallows, returns_in_finally, in_task_group, in_async_with]
)
async def test_nothing_durable_happens_while_an_attempt_unwinds(rig: Rig, body: Body) -> None:
    async def tool(op: Operation[None]) -> str:
        raise NotSent("try later")

    does.tool = tool
    worker = await begin(rig, body)
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert row.status == "waiting", row.detail
    assert [arguments["what"] for _, arguments in rig.sent] == ["first"]
    assert does.steps == []
    assert await rig.kinds(RUN) == ["started", "intent", "not acted", "suspended"]


async def test_a_sibling_does_not_act_while_the_run_sleeps(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        if op.arguments["what"] == "waits":
            raise NotSent("try later")
        return "done"

    async def body(run: Run[None]) -> object:
        async def busy() -> int:
            n = 0
            for _ in range(5):
                n = await run.step(add, n)
            return n

        return await run.gather(run.call(act, "waits"), busy())

    does.tool = tool
    worker = await begin(rig, body)
    await rig.settle(worker)
    kinds = await rig.kinds(RUN)
    assert kinds.count("step") == 5, "the run is unloaded only when every scope is parked"
    assert kinds[-1] == "suspended"


async def test_a_waiting_run_is_a_row_and_nothing_else(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        raise NotSent("try later")

    async def body(run: Run[None]) -> object:
        return await run.call(act, "waits")

    does.tool = tool
    worker = await begin(rig, body)
    await rig.settle(worker)
    assert worker.running() == []
    assert (await rig.row(RUN)).owner is None
    await rig.pass_time(worker, timedelta(minutes=10))
    assert (await rig.row(RUN)).head.seq > 4
