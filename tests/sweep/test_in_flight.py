"""What one branch does wrong must not cut short what is in flight in another: it reaches its record first."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from outlive import NotSent, Operation, Outlive, Retry, Run
from outlive.errors import RunFailed, StepFailed
from outlive.testing import ManualClock, lab


@dataclass
class World:
    """What the code asks for, whether the bank is reachable, and the code that was unwound."""

    number: int = 1
    reachable: bool = False
    unwound: list[str] = field(default_factory=list)
    clock: ManualClock = field(default_factory=ManualClock)


app: Outlive[World] = Outlive()


@app.tool()
async def pay_slowly(op: Operation[World], what: str) -> str:
    for _ in range(50):
        await op.deps.clock.sleep(0)
    return f"paid {what}"


@app.tool(retry=Retry(attempts=9))
def pay(op: Operation[World], what: str) -> str:
    if not op.deps.reachable:
        raise NotSent("no connection")
    return f"paid {what}"


def double(number: int) -> int:
    return 2 * number


@app.agent()
async def cancels_itself(run: Run[World], what: str) -> str:
    async def bad() -> int:
        for _ in range(20):
            await run.deps.clock.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return await run.step(double, 1)

    await run.gather(run.call(pay_slowly, what), bad())
    return "not reached"


@app.agent()
async def raises_cancelled(run: Run[World], what: str) -> str:
    async def bad() -> str:
        raise asyncio.CancelledError

    await run.gather(run.call(pay_slowly, what), bad())
    return "not reached"


@app.agent()
async def two_branches(run: Run[World], what: str) -> list[object]:
    async def unwound() -> str:
        try:
            return await run.call(pay, what)
        finally:
            run.deps.unwound.append(what)

    return list(await run.gather(unwound(), run.step(double, run.deps.number)))


@app.tool(retry=Retry(attempts=2, first=timedelta(days=9), most=timedelta(days=9)))
async def pay_in_nine_days(op: Operation[World], what: str) -> str:
    if op.attempt == 1:
        raise NotSent("not yet")
    return f"paid {what}"


@app.agent()
async def has_a_winner(run: Run[World], what: str) -> str:
    name, _ = await run.first(late=run.call(pay_in_nine_days, what), soon=run.step(double, 1))
    return name


@app.agent()
async def fails_at_once(run: Run[World], what: str) -> str:
    try:
        await run.gather(run.call(pay_in_nine_days, what), run.step(broken, 1))
    except StepFailed as error:
        return error.type
    return "not reached"


def broken(number: int) -> int:
    raise ValueError(number)


@app.agent()
async def has_a_queue(run: Run[World], what: str) -> list[str]:
    async def one(item: str) -> str:
        if item == "late":
            return await run.call(pay_in_nine_days, item)
        return str(await run.step(double, 1))

    return await run.map(one, ["late", "b", "c"], key=str, limit=2)


async def test_a_winner_is_told_at_once_and_not_when_the_loser_is_due() -> None:
    async with lab(app, deps=World()) as t:
        begun = t.clock.now()
        assert await t.run(has_a_winner, "rent") == "soon"
        assert await t.run(fails_at_once, "rent") == "ValueError"
        assert t.clock.now() == begun
        assert len(t.sent("pay_in_nine_days")) == 2


async def test_a_place_that_is_free_is_taken_at_once() -> None:
    async with lab(app, deps=World()) as t:
        run = await t.start(has_a_queue, "rent")
        await t.advance()
        steps = [line for line in await t.log(run) if line.split()[2] == "step"]
        assert len(steps) == 2, "\n".join(await t.log(run))
        assert await t.status(run) == "waiting"


async def test_a_fault_in_one_branch_waits_for_the_call_in_flight_of_another() -> None:
    deps = World()
    async with lab(app, deps=deps) as t:
        deps.clock = t.clock
        for count, agent in enumerate((cancels_itself, raises_cancelled), start=1):
            run = await t.start(agent, "rent")
            with pytest.raises(RunFailed, match="ForeignCancellation"):
                await run.result()
            [operation] = await t.operations(run)
            assert (operation.status, operation.how) == ("succeeded", "call"), "\n".join(await t.log(run))
            assert len(t.sent("pay_slowly")) == count


async def test_a_branch_that_waits_is_unwound_when_another_diverges() -> None:
    deps = World()
    async with lab(app, deps=deps) as t:
        run = await t.start(two_branches, "rent")
        await t.advance()
        assert await t.status(run) == "waiting"
        assert deps.unwound == ["rent"]
        deps.number, deps.reachable = 2, True
        await t.advance(minutes=1)
        assert await t.status(run) == "blocked"
        assert deps.unwound == ["rent", "rent"]
        assert len(t.sent("pay")) == 1
