"""Scopes: branches with stable keys, what is told when one fails, and calls that no scope owns."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from outlive import Operation, Run
from outlive.errors import StepFailed
from tests.engine.rig import Rig
from tests.engine.subject import RUN, act, add, begin, does, double, fails


async def test_branches_are_keyed_by_what_they_call_and_by_their_items(rig: Rig) -> None:
    async def one(run: Run[None], item: str) -> int:
        return await run.step(add, len(item))

    async def body(run: Run[None]) -> object:
        pair = await run.gather(run.step(add, 1), run.step(double, 2))

        async def branch(item: str) -> int:
            return await one(run, item)

        many = await run.map(branch, ["a/b", "ccc"], key=str)
        return [pair, many]

    await rig.settle(await begin(rig, body))
    scopes = {entry.scope for entry in await rig.entries(RUN) if entry.kind == "step"}
    assert scopes == {"/gather/0:add.0", "/gather/0:double.0", "/map/0:a%2Fb", "/map/0:ccc"}


async def test_two_branches_of_one_key_are_refused(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async def branch(item: int) -> int:
            return await run.step(add, item)

        return await run.map(branch, [1, 2], key=lambda _: "same")

    await rig.settle(await begin(rig, body))
    assert "each branch needs a key of its own" in (await rig.row(RUN)).detail


@pytest.mark.parametrize("evict", [False, True])
async def test_a_failing_branch_is_told_the_same_on_every_replay(rig: Rig, evict: bool) -> None:
    async def slow(run: Run[None]) -> int:
        total = 0
        for n in range(50):
            total += await run.step(add, n)
        return total

    async def body(run: Run[None]) -> object:
        try:
            await run.gather(slow(run), run.step(fails, "first"))
        except StepFailed as error:
            said = str(error)
        else:
            said = "no failure"
        return [said, await run.step(double, 4)]

    rig.evict = evict
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert row.status == "succeeded"
    kinds = [(entry.kind, entry.scope) for entry in await rig.entries(RUN)]
    assert ("joined", "") in kinds
    assert ("scope cancelled", "/gather/0:slow.0") in kinds
    executed = [name for name in does.steps if name.startswith("add")]
    assert len(executed) == len(set(executed)), "no recorded step of the cancelled branch is executed again"


async def test_an_external_call_is_never_cancelled_because_a_sibling_failed(rig: Rig) -> None:
    begun = asyncio.Event()

    async def tool(op: Operation[None]) -> str:
        begun.set()
        while "scope cancelled" not in await rig.kinds(RUN):
            pass
        for _ in range(5):
            await rig.kinds(RUN)  # long enough to be told of the cancellation
        return "acted"

    async def late_failure(run: Run[None]) -> int:
        await begun.wait()
        return await run.step(fails, "while the call is in flight")

    async def body(run: Run[None]) -> object:
        try:
            await run.gather(run.call(act, "slow"), late_failure(run))
        except StepFailed:
            return "failed"
        return "no failure"

    does.tool = tool
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert row.status == "succeeded"
    assert [operation.status for operation in await rig.operations(RUN)] == ["succeeded"]


@pytest.mark.parametrize("evict", [False, True])
async def test_first_tells_who_won_and_cancels_the_rest(rig: Rig, evict: bool) -> None:
    async def never(run: Run[None]) -> int:
        n = 0
        while True:
            n = await run.step(add, n)

    async def body(run: Run[None]) -> object:
        winner = await run.first(quick=run.step(double, 2), endless=never(run))
        return [winner, await run.step(double, 5)]

    rig.evict = evict
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert row.status == "succeeded"
    (joined,) = [entry for entry in await rig.entries(RUN) if entry.kind == "joined"]
    assert '"branch":"quick"' in joined.body


async def test_a_second_call_in_flight_in_one_scope_is_refused(rig: Rig) -> None:
    seen: list[BaseException] = []

    async def body(run: Run[None]) -> object:
        async def beside() -> None:
            try:
                await run.step(add, 1)
            except BaseException as error:  # noqa: BLE001 - the test looks at whatever it is
                seen.append(error)

        task = asyncio.ensure_future(beside())
        await run.call(act, "in flight")
        await task
        return "done"

    async def tool(op: Operation[None]) -> str:
        while not seen:
            await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0)
        return "done"

    does.tool = tool
    await rig.settle(await begin(rig, body))
    assert type(seen[0]).__name__ == "ConcurrentCalls"
    assert "use run.gather" in str(seen[0])


async def test_a_call_from_a_task_that_the_run_did_not_start_is_refused(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await asyncio.ensure_future(run.step(add, 1))

    await rig.settle(await begin(rig, body))
    row = await rig.row(RUN)
    assert row.status == "failed"
    assert "ScopeError" in row.detail
    assert "test_scopes.py" in row.detail


async def test_asyncio_gather_is_refused_by_name_of_the_remedy(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await asyncio.gather(run.step(add, 1), run.step(add, 2))

    await rig.settle(await begin(rig, body))
    assert "use run.gather" in (await rig.row(RUN)).detail


async def test_a_foreign_cancellation_fails_the_run_at_its_line(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        await asyncio.Event().wait()
        return "never"

    async def endless(run: Run[None]) -> object:
        try:
            async with asyncio.timeout(0.01):
                await run.options(name="stuck").step(stuck)
        except TimeoutError:
            return "the fall-back branch: replay could not find it"
        return "never"

    await rig.settle(await begin(rig, endless))
    row = await rig.row(RUN)
    assert row.status == "failed"
    assert "ForeignCancellation" in row.detail
    assert "run.options(timeout=" in row.detail


async def stuck() -> int:
    await asyncio.Event().wait()
    return 0


async def test_a_time_out_of_our_own_is_an_outcome(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            return await run.options(timeout=timedelta(milliseconds=10)).step(stuck)
        except StepFailed as error:
            return error.type

    await rig.settle(await begin(rig, body))
    ended = (await rig.entries(RUN))[-1]
    assert ended.payload == '"TimedOut"'
