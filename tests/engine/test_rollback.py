"""Rollback: what a run has done is undone by a run of its own, newest first, each once, however its workers die."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlive import DidNotHappen, Happened, NotSent, Operation, Outlive, Run
from tests.engine import undo
from tests.engine.rig import Rig
from tests.engine.undo import (
    ALL,
    BACK,
    RUN,
    UNDONE,
    ask,
    begin,
    crash_in,
    decide,
    ended,
    loses,
    one,
    refuses,
    retry,
    rolled_back,
    shop,
    statuses,
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    undo.reset()


async def test_a_worker_that_dies_between_the_refund_and_its_record_refunds_once(either: Rig) -> None:
    rig, _ = either, await ended(either)
    await ask(rig)
    await crash_in(rig, "after refund")
    assert shop.count("refund book") == 1
    worker = rig.worker(rig.app(undo.app))
    await rig.take_over(worker)
    row = await rolled_back(rig, worker)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert shop.count("refund book") == 1, "nobody knows whether it has acted: it is not sent again"
    assert shop.count("release book") == 0, "and nothing older is passed"
    assert (await one(rig, "charge")).status == "succeeded"
    await decide(rig, await one(rig, "charge.compensate", BACK), "happened", "null")
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == UNDONE
    assert (await one(rig, "charge")).status == "compensated"


async def test_operations_are_undone_newest_first_and_say_so(either: Rig) -> None:
    rig, worker = either, await ended(either)
    log = await rig.entries(RUN)
    handle = await ask(rig)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == UNDONE
    assert await statuses(rig) == {
        "reserve": "compensated", "charge": "compensated", "mail": "succeeded", "ship": "compensated",
    }  # fmt: skip
    by = {row.compensates: row.id for row in await rig.operations(BACK)}
    assert {row.id: row.compensated_by for row in await rig.operations(RUN) if row.compensated_by} == by
    assert await rig.entries(RUN) == log, "the log of the run that is rolled back is not reopened"
    result = await handle.result()
    rows = {row.tool: row.id for row in await rig.operations(RUN)}
    assert result.compensated == [rows["ship"], rows["charge"], rows["reserve"]]
    assert [(left.operation, left.why) for left in result.left] == [(rows["mail"], "tool mail has no compensation")]


async def test_a_compensation_gets_what_was_recorded(rig: Rig) -> None:
    worker = await ended(rig)
    row = await one(rig, "charge")
    await ask(rig)
    await rolled_back(rig, worker)
    original = shop.originals["refund"]
    assert (original.id, original.key, original.run_id, original.tool) == (row.id, row.key, RUN, "charge")
    assert original.arguments == {"what": "book"}
    assert original.outcome == undo.Receipt(number="r-book", cents=4200)
    assert (await one(rig, "reserve")).notes == {"shelf": "7"}
    keys = [next(iter(shop.keys[name])) for name in ("charge", "refund")]
    assert keys[0] != keys[1], "the other side can tell a refund from its charge"


@pytest.mark.parametrize("moment", [f"{when} {what}" for when in ("before", "after") for what in ("recall", "release")])
async def test_a_worker_that_dies_at_a_compensation_that_can_be_asked_about_undoes_it_once(
    rig: Rig, moment: str
) -> None:
    await ended(rig)
    await ask(rig)
    await crash_in(rig, moment)
    worker = rig.worker(rig.app(undo.app))
    await rig.take_over(worker)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == UNDONE


async def test_a_run_is_undone_once_however_often_that_is_asked_for(rig: Rig) -> None:
    worker = await ended(rig)
    assert (await ask(rig)).id == (await ask(rig, why="again")).id == BACK
    await rolled_back(rig, worker)
    second = await ask(rig)
    assert second.id == f"{BACK}-2"
    assert (await rolled_back(rig, worker, second.id)).status == "succeeded"
    assert shop.done == UNDONE


async def test_a_run_that_goes_on_is_cancelled_first(either: Rig) -> None:
    rig = either

    async def waits(run: Run[None]) -> object:
        await run.call(undo.charge, "book")
        await run.sleep(timedelta(days=30))
        return await run.call(undo.ship, "book")

    worker = await begin(rig, waits)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "waiting"
    await ask(rig)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert (await rig.row(RUN)).status == "cancelled"
    assert shop.done == ["charge book", "refund book"]


async def test_what_is_in_doubt_is_looked_up_before_anything_older_is_undone(either: Rig) -> None:
    rig = either
    shop.hooks["after ship"] = loses  # cannot be looked up
    shop.hooks["after charge"] = loses

    async def body(run: Run[None]) -> object:
        await run.call(undo.reserve, "book")
        return await run.call(undo.charge, "book")

    worker = await begin(rig, body)
    await rig.settle(worker)
    await ask(rig)
    await rolled_back(rig, worker, RUN)
    assert (await rig.row(RUN)).status == "cancelled"
    assert (await one(rig, "charge")).status == "unknown"
    shop.answers["charge"] = Happened(undo.Receipt(number="looked up", cents=1))
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == ["reserve book", "charge book", "refund book", "release book"]
    assert shop.originals["refund"].outcome == undo.Receipt(number="looked up", cents=1)
    assert "resolution" in await rig.kinds(RUN), "what was found out is in the log of the run whose operation it is"


async def test_what_only_a_person_knows_blocks_and_goes_on_when_it_is_known(either: Rig) -> None:
    rig = either
    shop.hooks["after ship"] = loses
    worker = await begin(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).reason == "operation in doubt"
    await ask(rig)
    row = await rolled_back(rig, worker)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    doubtful = await one(rig, "ship")
    assert f"operation {doubtful.id} of run {RUN}" in row.detail
    assert "still to undo" in row.detail and (await one(rig, "charge")).id in row.detail
    assert shop.done == ALL
    await decide(rig, doubtful, "happened", '"shipped"')
    assert (await rolled_back(rig, worker)).status == "succeeded", "nobody has to let it be tried again"
    assert shop.done == UNDONE


async def test_what_did_not_happen_is_not_undone(rig: Rig) -> None:
    shop.hooks["before ship"] = loses
    worker = await begin(rig)
    await rig.settle(worker)
    await ask(rig)
    await rolled_back(rig, worker)
    doubtful = await one(rig, "ship")
    rig.clock.advance(timedelta(minutes=1))
    await decide(rig, doubtful, "did-not-happen")
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == [*ALL[:3], "refund book", "release book"]


async def test_a_compensation_that_fails_blocks_and_lists_what_is_left(either: Rig) -> None:
    rig, worker = either, await ended(either)
    shop.hooks["before refund"] = refuses(3)
    await ask(rig)
    row = await rolled_back(rig, worker)
    assert (row.status, row.reason) == ("blocked", "compensation failed")
    assert "NotSent: closed" in row.detail
    assert (await one(rig, "reserve")).id in row.detail
    assert (await one(rig, "ship")).id not in row.detail
    assert (await statuses(rig))["ship"] == "compensated"
    await retry(rig)
    assert (await rolled_back(rig, worker)).status == "succeeded", "it has as many tries again"
    assert shop.done == UNDONE


async def test_a_look_up_waits_until_a_no_can_be_believed(rig: Rig) -> None:
    shop.hooks["before charge"] = loses
    worker = await begin(rig)
    await rig.settle(worker)
    await ask(rig)
    await rolled_back(rig, worker, RUN)
    doubtful = await one(rig, "charge")
    asked: list[int] = []
    shop.answers["charge"] = DidNotHappen()
    shop.asked = lambda: asked.append(rig.clock.now())
    assert doubtful.not_before > rig.clock.now()
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert asked and asked[0] >= doubtful.not_before
    assert (await one(rig, "charge")).status == "absent"
    assert shop.done == ["reserve book", "release book"]


async def test_every_rollback_says_the_same_key_to_the_other_side(rig: Rig) -> None:
    worker, keys = await ended(rig), set[str]()

    async def refuses_and_notes(op: Operation[None]) -> None:
        keys.add(op.key)
        raise NotSent("closed")

    shop.hooks["before refund"] = refuses_and_notes
    await ask(rig)
    assert (await rolled_back(rig, worker)).reason == "compensation failed"
    await rig.app(undo.app).handle(undo.order, BACK).cancel(who="ada", why="later")
    second = await ask(rig)
    assert (await rolled_back(rig, worker, second.id)).reason == "compensation failed"
    assert len(keys) == 1


async def test_a_log_that_was_changed_is_not_believed(rig: Rig) -> None:
    worker = await ended(rig)
    undo.write(rig, f"update entry set payload = '\"other\"' where run_id = '{RUN}' and kind = 'outcome'")
    await ask(rig)
    row = await rolled_back(rig, worker)
    assert (row.status, row.reason) == ("blocked", "compensation failed")
    assert f"run {RUN}" in row.detail
    assert shop.done == ALL


async def test_a_build_without_the_tool_passes_nothing(rig: Rig) -> None:
    worker = await ended(rig)
    await ask(rig)
    without = rig.worker(_without(rig, "charge"))
    row = await rolled_back(rig, without)
    assert (row.status, row.reason) == ("blocked", "compensation failed")
    assert "no tool charge is registered in this build" in row.detail
    assert shop.count("recall book") == 1 and shop.count("release book") == 0
    await retry(rig)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == UNDONE


def _without(rig: Rig, tool: str) -> Outlive[None]:
    made: Outlive[None] = Outlive(clock=rig.clock)
    made.registry.agents = undo.app.registry.agents
    made.registry.tools = {name: one for name, one in undo.app.registry.tools.items() if name != tool}
    return made


async def test_a_tool_that_was_renamed_is_undone_as_it_is_called_now(rig: Rig) -> None:
    await ended(rig)
    renamed: Outlive[None] = Outlive(clock=rig.clock)
    renamed.registry.tools = {name: one for name, one in undo.app.registry.tools.items() if name != "charge"}
    renamed.tool(name="bill", compensate=undo.refund)(undo.charge.fn)
    renamed.agent(name="order", renamed={"charge": "bill"})(undo.order.fn)
    await ask(rig)
    assert (await rolled_back(rig, rig.worker(renamed))).status == "succeeded"
    assert shop.done == UNDONE
