"""Rollbacks of what has, or had, its outcome later: told before, meanwhile, after, and otherwise than before."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlive import DidNotHappen, Happened, Operation, Outlive, Retry, Run
from outlive.app.audit import Progress, verify_all
from outlive.app.decide import Word, resolve
from outlive.engine.operation import Original
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.operation import OperationRow
from outlive.store.sqlite import SQLiteStore
from tests.engine.awaiting import HOUR, notices
from tests.engine.rig import Rig
from tests.engine.scenes import control

RUN, BACK = "trip-1", "trip-1-rollback"
app: Outlive[None] = Outlive()
originals: list[Original] = []
done: list[str] = []
later: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    originals.clear()
    done.clear()
    later.clear()


async def give_back(op: Operation[None]) -> str:
    originals.append(op.original)
    done.append(f"give back {op.original.arguments['what']}")
    if "give back" in later:
        return op.pending(until=HOUR)
    return "given back"


@app.tool(compensate=give_back, retry=Retry(attempts=1), settle_after=timedelta(seconds=1))
async def order(op: Operation[None], what: str) -> str:
    done.append(f"order {what}")
    return op.pending(until=HOUR)


@app.tool(compensate=give_back, retry=Retry(attempts=1))
async def book(op: Operation[None], what: str) -> str:
    done.append(f"book {what}")
    return f"booked {what}"


@app.agent()
async def trip(run: Run[None], task: str) -> str:
    await run.call(book, "room")
    return await run.call(order, "seat")


async def one(rig: Rig, tool: str, run: str = RUN) -> OperationRow:
    (found,) = [row for row in await rig.operations(run) if row.tool == tool]
    return found


async def decide(rig: Rig, row: OperationRow, word: Word, outcome: str | None = None) -> None:
    await resolve(
        control(rig), app.registry, DEFAULT_TENANT, row.run, row.id, word, who="ada", why="she looked", outcome=outcome
    )


async def misfits(rig: Rig) -> list[str]:
    assert isinstance(rig.store, SQLiteStore)
    return [f"{one.run}, {one.what}: {one.why}" async for one in verify_all(rig.store, DEFAULT_TENANT, Progress())]


async def test_what_compensates_gets_the_whole_outcome_that_was_told(either: Rig) -> None:
    rig, here = either, either.app(app)
    large = "seat 12A " * 10_000
    await here.start(trip, "task", id=RUN)
    worker = rig.worker(here)
    await rig.settle(worker)
    await here.complete((await one(rig, "order")).id, Happened(large), key="evt-1")
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    await here.handle(trip, RUN).rollback(who="ada", why="rain")
    assert (await rig.until_ended(worker, BACK)).status == "succeeded"
    assert originals[0].outcome == large


async def test_a_compensation_can_have_its_outcome_later(either: Rig) -> None:
    rig, here = either, either.app(app)
    await here.start(trip, "task", id=RUN)
    worker = rig.worker(here)
    await rig.settle(worker)
    await here.complete((await one(rig, "order")).id, Happened("12A"), key="evt-1")
    await rig.until_ended(worker, RUN)
    later.add("give back")
    await here.handle(trip, RUN).rollback(who="ada", why="rain")
    await rig.settle(worker)
    taken = await one(rig, "order.compensate", BACK)
    assert (taken.status, (await one(rig, "order")).status) == ("later", "succeeded")
    assert "give back room" not in done, "nothing older is passed meanwhile"
    later.clear()
    await here.complete(taken.id, Happened("given back"), key="evt-2")
    assert (await rig.until_ended(worker, BACK)).status == "succeeded"
    assert (await one(rig, "order")).compensated_by == taken.id
    assert done == ["book room", "order seat", "give back seat", "give back room"]


async def test_what_a_person_and_the_other_side_say_at_once_is_recorded_as_the_log_has_it(rig: Rig) -> None:
    """Both are in the inbox when it is taken in: the operation's record says what its log says."""
    here = rig.app(app)
    await here.start(trip, "task", id=RUN)
    worker = rig.worker(here)
    await rig.settle(worker)
    await rig.pass_time(worker, HOUR)  # nobody has told it: a person is asked
    row = await one(rig, "order")
    assert (row.status, (await rig.row(RUN)).reason) == ("unknown", "operation in doubt")
    rig.clock.advance(HOUR)
    await here.complete(row.id, Happened("12A"), key="evt-1")
    await decide(rig, row, "did-not-happen")
    assert await misfits(rig) == []
    assert (await one(rig, "order")).status == "succeeded"


async def test_did_not_happen_of_what_was_undone_contradicts_it_and_somebody_is_told(rig: Rig) -> None:
    here = rig.app(app)
    await here.start(trip, "task", id=RUN)
    worker = rig.worker(here)
    await rig.settle(worker)
    await here.complete((await one(rig, "order")).id, Happened("12A"), key="evt-1")
    await rig.until_ended(worker, RUN)
    await here.handle(trip, RUN).rollback(who="ada", why="rain")
    await rig.until_ended(worker, BACK)
    row = await one(rig, "order")
    before = await notices(rig)
    await here.complete(row.id, DidNotHappen(), key="evt-2")
    await here.complete(row.id, Happened("another seat"), key="evt-3")
    await here.complete(row.id, Happened("12A"), key="evt-4")
    said = [line.data["verdict"] for line in await rig.lines(RUN) if line.kind == "completion"]
    assert said == ["settles", "contradicts", "contradicts", "confirms"]
    assert (await notices(rig))[len(before) :] == ["contradiction", "contradiction"]
    assert (await one(rig, "order")).status == "compensated"
    assert await misfits(rig) == []


async def test_what_turns_out_to_have_happened_while_it_is_rolled_back_is_undone_too(rig: Rig) -> None:
    here = rig.app(app)
    await here.start(trip, "task", id=RUN)
    worker = rig.worker(here)
    await rig.settle(worker)
    row = await one(rig, "order")
    await here.complete(row.id, DidNotHappen(), key="evt-1")
    assert (await rig.until_ended(worker, RUN)).status == "failed"
    later.add("give back")
    handle = await here.handle(trip, RUN).rollback(who="ada", why="rain")
    await rig.settle(worker)
    assert done[-1] == "give back room", "the order did not happen, as far as anybody knows"
    await here.complete(row.id, Happened("12A"), key="evt-2")
    later.clear()
    await here.complete((await one(rig, "book.compensate", BACK)).id, Happened("given back"), key="evt-3")
    assert (await rig.until_ended(worker, BACK)).status == "succeeded"
    assert done[-1] == "give back seat"
    undone = await handle.result()
    assert len(undone.compensated) == 2 and undone.left == []
    assert await misfits(rig) == []
