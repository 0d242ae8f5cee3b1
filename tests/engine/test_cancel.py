"""A cancel reaches the code wherever it is, what it does then is recorded in order, and no cancel is ever lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from outlive import Happened, Operation, Retry, Run
from outlive.app.client import Handle
from outlive.engine.definition import AgentSpec, Tool
from outlive.engine.worker import Worker
from outlive.errors import RunCancelled
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.signals import ToldToStop
from tests.engine.rig import Rig
from tests.engine.subject import (
    RUN,
    Answer,
    Behaviour,
    Body,
    act,
    add,
    base,
    begin,
    charge,
    does,
    double,
    fails,
    look,
    note_down,
    on_thread,
    put,
)

Part = Callable[[Run[None]], Awaitable[object]]


def handle(rig: Rig) -> Handle[str]:
    agent = base.registry.agents["subject"]
    assert isinstance(agent, AgentSpec)
    return Handle(lambda: rig.store, rig.clock, agent, DEFAULT_TENANT, RunId(RUN))


async def cancel(rig: Rig, **also: timedelta) -> str:
    return await handle(rig).cancel(who="ada", why="enough", **also)


def cleans_up(part: Part) -> Body:
    """Does the part, and when it is cancelled there, undoes it by calls that are recorded."""

    async def body(run: Run[None]) -> object:
        await run.step(add, 1)
        try:
            got = await part(run)
        except asyncio.CancelledError:
            await run.step(add, 99)
            await run.call(put, "undo")
            await run.step(double, 99)
            raise
        return got

    return body


async def served(rig: Rig, body: Body) -> Worker:
    """A worker that has made itself known."""
    worker = await begin(rig, body)
    await worker._patiently_announce()
    return worker


async def told(rig: Rig, worker: Worker) -> None:
    """What a renewal brings: that there is something in the inbox."""
    await asyncio.to_thread(worker._keeper.renew_once)


async def recorded(rig: Rig, kind: str = "cancelling") -> None:
    """Return once the log has an entry of the kind."""
    while kind not in await rig.kinds(RUN):
        pass


CLEAN_UP = ["add 99", "double 99"]
UNDONE = ["step", "intent", "outcome", "step", "ended"]


async def the_end(rig: Rig) -> None:
    """It was cancelled, its clean-up is recorded after that, once and in order."""
    row = await rig.row(RUN)
    assert (row.status, row.reason, row.detail) == ("cancelled", "cancel", "ada: enough")
    assert does.steps[-2:] == CLEAN_UP
    assert does.steps.count("add 99") == 1
    kinds = [kind for kind in await rig.kinds(RUN) if kind not in ("suspended", "scope cancelled", "arrived")]
    assert kinds[kinds.index("cancelling") + 1 :] == UNDONE
    with pytest.raises(RunCancelled, match="was cancelled by ada: enough"):
        await handle(rig).result()


async def sleeps(run: Run[None]) -> object:
    await run.sleep(timedelta(days=3))
    return None


async def receives(run: Run[None]) -> object:
    return await run.receive("offers", str)


async def asks(run: Run[None]) -> object:
    return await run.ask("shall we?", bool, role="boss")


async def first_of(run: Run[None]) -> object:
    return await run.first(reply=run.receive("offers", str), late=run.sleep(timedelta(days=1)))


async def gathers(run: Run[None]) -> object:
    return await run.gather(run.sleep(timedelta(days=1)), run.receive("offers", str), run.step(add, 5))


async def nests(run: Run[None]) -> object:
    async def inner(n: int) -> object:
        await run.step(add, n)
        return await run.first(a=run.sleep(timedelta(days=n)), b=run.receive(f"t{n}", str))

    return await run.map(inner, [1, 2, 3], key=str, limit=2)


async def retries_a_step(run: Run[None]) -> object:
    return await run.options(retry=Retry(attempts=3, first=timedelta(hours=1))).step(fails, "again")


async def retries_a_call(run: Run[None]) -> object:
    return await run.options(retry=Retry(attempts=3, first=timedelta(hours=1))).call(look, "flaky")


@pytest.mark.parametrize("evict", [False, True])
@pytest.mark.parametrize(
    "part", [sleeps, receives, asks, first_of, gathers, nests, retries_a_step, retries_a_call]
)  # fmt: skip
async def test_a_cancel_wakes_what_waits_and_it_cleans_up(either: Rig, part: Part, evict: bool) -> None:
    rig = either
    rig.evict = evict
    if part is retries_a_call:
        does.tool = _flaky
    worker = await served(rig, cleans_up(part))
    await settled(rig, worker)
    assert (await rig.row(RUN)).status == "waiting"
    does.tool = Behaviour().tool
    assert await cancel(rig) == "asked"
    await settled(rig, worker)
    await the_end(rig)
    assert await cancel(rig) == "cancelled", "it is no error to ask again"


async def _flaky(op: Operation[None]) -> str:
    raise ConnectionError("not now")


async def settled(rig: Rig, worker: Worker) -> None:
    """Drive until it waits for something that does not come at once."""
    await rig.settle(worker)
    while (row := await rig.row(RUN)).reason == "evicted":
        rig.clock.advance(timedelta(milliseconds=1))
        await rig.settle(worker)
    assert row.status != "running"


# ---- what is in flight


async def in_flight(rig: Rig, part: Part, tool: Callable[[Operation[None]], Awaitable[str]] | None = None) -> Worker:
    """A worker whose run is in the part, which sets `reached`."""
    if tool is not None:
        does.tool = tool
    worker = await served(rig, cleans_up(part))
    await worker.claim()
    return worker


async def test_a_step_in_flight_is_cut_short_and_not_recorded(either: Rig) -> None:
    rig, reached = either, asyncio.Event()

    async def part(run: Run[None]) -> object:
        return await run.step(hangs)

    _here.append(reached)
    worker = await in_flight(rig, part)
    await reached.wait()
    assert await cancel(rig) == "asked"
    await told(rig, worker)
    await worker.idle()
    await the_end(rig)


_here: list[asyncio.Event] = []


async def hangs() -> int:
    _here.pop().set()
    await asyncio.Event().wait()
    return 1


async def hangs_at_nought(n: int) -> None:
    if n == 0:
        await hangs()
    does.steps.append(f"add {n}")


async def test_the_key_of_a_call_that_left_nothing_is_free_for_the_clean_up(rig: Rig) -> None:
    """The step that is cut short and that of the clean-up are of one name: replay must give both the same keys."""
    reached = asyncio.Event()

    async def body(run: Run[None]) -> object:
        try:
            await run.step(hangs_at_nought, 0)
        except asyncio.CancelledError:
            await run.step(hangs_at_nought, 1)
            await run.sleep(timedelta(seconds=5))
            await run.step(hangs_at_nought, 3)
        return None

    _here.append(reached)
    worker = await served(rig, body)
    await worker.claim()
    await reached.wait()
    await cancel(rig)
    await told(rig, worker)
    await worker.idle()
    assert (await rig.until_ended(rig.worker(base, code="first"), RUN)).status == "cancelled"
    assert does.steps == ["add 1", "add 3"]


async def test_a_thread_in_flight_is_waited_for(rig: Rig) -> None:
    async def part(run: Run[None]) -> object:
        return await run.call(on_thread, "it")

    worker = await in_flight(rig, part)
    while not rig.sent:
        await asyncio.to_thread(lambda: None)
    await cancel(rig)
    await told(rig, worker)
    await recorded(rig)
    does.blocking.set()
    await worker.idle()
    row = await rig.row(RUN)
    assert row.status == "cancelled"
    assert [(one.tool, one.status) for one in await rig.operations(RUN)] == [
        ("on_thread", "succeeded"), ("put", "succeeded")
    ]  # fmt: skip


@pytest.mark.parametrize("tool", [act, charge, put])
async def test_an_operation_in_flight_reaches_its_record(either: Rig, tool: Tool[[str], str]) -> None:
    rig, reached, go_on = either, asyncio.Event(), asyncio.Event()
    was_told: list[str] = []

    async def slow(op: Operation[None]) -> str:
        if op.arguments["what"] == "it":
            reached.set()
            await go_on.wait()
            try:
                op.raise_if_lost()
            except ToldToStop as stop:
                was_told.append(str(stop))
        else:
            op.raise_if_lost()
        return f"did {op.arguments['what']}"

    async def part(run: Run[None]) -> object:
        return await run.call(tool, "it")

    worker = await in_flight(rig, part, slow)
    await reached.wait()
    assert await cancel(rig) == "asked"
    await told(rig, worker)
    await recorded(rig)
    go_on.set()
    await worker.idle()
    assert was_told == ["the run is being cancelled"]
    assert (await rig.row(RUN)).status == "cancelled"
    assert [one.status for one in await rig.operations(RUN)] == ["succeeded", "succeeded"]
    assert does.steps == ["add 1", *CLEAN_UP]


async def test_a_read_in_flight_is_cut_short(rig: Rig) -> None:
    reached = asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        if op.arguments["what"] == "it":
            reached.set()
            await asyncio.Event().wait()
        return "read"

    async def part(run: Run[None]) -> object:
        return await run.call(look, "it")

    worker = await in_flight(rig, part, slow)
    await reached.wait()
    await cancel(rig)
    await told(rig, worker)
    await worker.idle()
    await the_end(rig)


async def test_a_transaction_in_flight_commits_first(rig: Rig) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        if op.arguments["what"] == "it":
            reached.set()
            await go_on.wait()
        return "noted"

    seen: list[object] = []

    async def part(run: Run[None]) -> object:
        seen.append(await run.call(note_down, "it"))
        await run.sleep(timedelta(days=1))
        return None

    worker = await in_flight(rig, part, slow)
    await reached.wait()
    asked = asyncio.ensure_future(cancel(rig))  # its row waits for the transaction too
    go_on.set()
    await asked
    await worker.idle()
    await settled(rig, worker)
    await the_end(rig)
    assert set(seen) == {"noted"}


async def test_an_operation_that_becomes_doubtful_stays_so_and_the_clean_up_runs(rig: Rig) -> None:
    """No person is waited for: the run ends with the doubt, which does not end with it."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def loses(op: Operation[None]) -> str:
        if op.arguments["what"] == "it":
            reached.set()
            await go_on.wait()
            raise ConnectionResetError("the answer was lost")
        return "did"

    async def part(run: Run[None]) -> object:
        return await run.call(act, "it")

    worker = await in_flight(rig, part, loses)
    await reached.wait()
    await cancel(rig)
    await told(rig, worker)
    await recorded(rig)
    go_on.set()
    await worker.idle()
    assert (await rig.row(RUN)).status == "cancelled"
    assert [one.status for one in await rig.operations(RUN)] == ["unknown", "succeeded"]
    assert does.steps == ["add 1", *CLEAN_UP]


async def test_what_can_be_looked_up_is_asked_for_once(rig: Rig) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def loses(op: Operation[None]) -> str:
        if op.arguments["what"] == "it":
            reached.set()
            await go_on.wait()
            raise ConnectionResetError("the answer was lost")
        return "did"

    async def found(op: Operation[None]) -> Answer:
        return Happened("it did")

    async def part(run: Run[None]) -> object:
        return await run.call(charge, "it")

    does.look_up = found
    worker = await in_flight(rig, part, loses)
    await reached.wait()
    await cancel(rig)
    await told(rig, worker)
    await recorded(rig)
    go_on.set()
    await worker.idle()
    assert (await rig.row(RUN)).status == "cancelled"
    assert [one.status for one in await rig.operations(RUN)] == ["succeeded", "succeeded"]


async def test_branches_in_flight_are_cut_short_but_for_what_may_have_been_sent(either: Rig) -> None:
    rig, reached, go_on = either, asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        if op.arguments["what"] == "it":
            reached.set()
            await go_on.wait()
        return "did"

    async def part(run: Run[None]) -> object:
        return await run.gather(run.call(act, "it"), run.sleep(timedelta(days=1)), run.receive("t", str))

    worker = await in_flight(rig, part, slow)
    await reached.wait()
    await cancel(rig)
    await told(rig, worker)
    await recorded(rig)
    go_on.set()
    await worker.idle()
    row = await rig.row(RUN)
    assert row.status == "cancelled"
    assert [one.status for one in await rig.operations(RUN)] == ["succeeded", "succeeded"]
    assert does.steps == ["add 1", *CLEAN_UP]
