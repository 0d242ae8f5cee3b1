"""What is around a rollback: approvals, forks, an earlier rollback, evidence, eviction, the audit, bundles."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlive import Happened, Run
from outlive.app.audit import Progress, verify_all
from outlive.app.carry import bundle_of, take_in
from outlive.engine.worker import Worker
from outlive.errors import BadArguments, NotForkable, Refused, WrongState
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Message
from outlive.store.sqlite import SQLiteStore
from tests.engine import undo
from tests.engine.rig import Rig, rig_at
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
    order,
    rolled_back,
    shop,
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    undo.reset()


async def moves(run: Run[None]) -> object:
    await run.call(undo.charge, "book")
    return await run.call(undo.transfer, "money")


@pytest.mark.parametrize(("approves", "left"), [(True, 0), (False, 1)])
async def test_a_compensation_is_approved_first_if_its_rule_says_so(either: Rig, approves: bool, left: int) -> None:
    rig, worker = either, await ended(either, moves)
    handle = await ask(rig)
    await rig.settle(worker)
    assert (await rig.row(BACK)).status == "waiting"
    assert shop.done == ["charge book", "transfer money"], "nothing older is passed meanwhile"
    [asked] = await rig.app(undo.app).approvals.list()
    assert (asked.tool, asked.run) == ("allowed", BACK)
    decide = rig.app(undo.app).approvals
    await (decide.approve if approves else decide.reject)(asked.id, who="cfo", role="finance", why="seen")
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert ("allowed money" in shop.done) == approves
    assert shop.count("refund book") == 1
    assert len((await handle.result()).left) == left


async def test_an_approval_that_nobody_has_given_in_time_is_asked_for_again(either: Rig) -> None:
    """Nobody has decided that it is left: what is older is not passed because nobody has looked."""
    rig, worker = either, await ended(either, moves)
    handle = await ask(rig)
    await rig.settle(worker)
    approvals = rig.app(undo.app).approvals
    [first] = await approvals.list()
    await rig.pass_time(worker, timedelta(days=1))
    assert (await rig.row(BACK)).status == "waiting"
    assert shop.done == ["charge book", "transfer money"]
    [second] = await approvals.list()
    assert second.id != first.id
    await approvals.approve(second.id, who="cfo", role="finance", why="seen")
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == ["charge book", "transfer money", "allowed money", "refund book"]
    assert (await handle.result()).left == []


async def test_what_undoes_something_takes_no_other_arguments(rig: Rig) -> None:
    worker = await ended(rig, moves)
    await ask(rig)
    await rig.settle(worker)
    approvals = rig.app(undo.app).approvals
    [asked] = await approvals.list()
    with pytest.raises(BadArguments, match="the edited arguments do not fit"):
        await approvals.approve(asked.id, who="cfo", role="finance", why="less", arguments={"cents": 1})
    await approvals.approve(asked.id, who="cfo", role="finance", why="all of it")
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.count("allowed money") == 1


async def test_a_rollback_that_is_evicted_at_every_step_does_the_same(either: Rig) -> None:
    rig = either
    rig.evict = True
    worker = await ended(rig)
    await ask(rig)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == UNDONE


async def test_a_later_rollback_waits_for_what_the_first_has_left_in_doubt(either: Rig) -> None:
    rig, worker = either, await ended(either)
    await ask(rig)
    await crash_in(rig, "after refund")
    await rig.take_over(worker)
    await rolled_back(rig, worker)
    await rig.app(undo.app).handle(order, BACK).cancel(who="ada", why="the wrong one")
    second = await ask(rig)
    row = await rolled_back(rig, worker, second.id)
    doubtful = await one(rig, "charge.compensate", BACK)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert f"operation {doubtful.id} of run {BACK}" in row.detail
    await decide(rig, doubtful, "happened", "null")
    assert (await rolled_back(rig, worker, second.id)).status == "succeeded"
    assert shop.done == UNDONE
    assert (await one(rig, "charge")).compensated_by == doubtful.id


async def test_evidence_that_comes_late_lets_a_rollback_go_on(rig: Rig) -> None:
    """The worker that had lost the run has its answer after all; what it says is believed."""
    shop.hooks["after ship"] = loses
    worker = await begin(rig)
    await rig.settle(worker)
    await ask(rig)
    assert (await rolled_back(rig, worker)).reason == "operation in doubt"
    doubtful = await one(rig, "ship")
    body = (
        f'{{"operation":"{doubtful.id}","attempt":1,"epoch":1,"answer":"succeeded","payload":"\\"ok\\"","error":null}}'
    )
    await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), "evidence", "k", body), now=rig.clock.now())
    await rig.settle(worker)  # it is taken in by whoever looks after ended runs
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == UNDONE


async def test_a_look_up_that_a_crash_has_cut_off_is_told_once_more(rig: Rig) -> None:
    shop.hooks["after charge"] = loses
    worker = await begin(rig, undo.buys)
    await rig.settle(worker)
    await ask(rig)
    await rolled_back(rig, worker, RUN)
    shop.answers["charge"] = Happened(undo.Receipt(number="n", cents=1))
    del shop.hooks["after charge"]
    rig.evict = True  # after the look-up is in the log, and before its answer is told
    worker = rig.worker(rig.app(undo.app))
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == [*ALL[:2], "refund book", "release book"]


async def in_doubt(rig: Rig) -> Worker:
    """A rollback that has asked in vain."""
    shop.hooks["after charge"] = loses
    worker = await begin(rig)
    await rig.settle(worker)
    await ask(rig)
    row = await rolled_back(rig, worker)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert "10 look-ups gave no answer" in row.detail
    return worker


async def test_look_ups_are_made_again_when_somebody_lets_it_be_tried_again(either: Rig) -> None:
    rig, asked = either, list[int]()
    worker = await in_doubt(rig)
    shop.asked = lambda: asked.append(1)
    await undo.retry(rig)
    assert (await rolled_back(rig, worker)).reason == "operation in doubt"
    assert len(asked) == 10, "as often as before"
    shop.answers["charge"] = Happened(undo.Receipt(number="n", cents=1))
    await undo.retry(rig)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert len(asked) == 11
    assert shop.done == [*ALL[:2], "refund book", "release book"]


async def test_look_ups_that_give_no_answer_leave_it_to_a_person(rig: Rig) -> None:
    worker = await in_doubt(rig)
    await decide(rig, await one(rig, "charge"), "happened", '{"number":"n","cents":1}')
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == [*ALL[:2], "refund book", "release book"]


# ---- forks


async def test_a_restart_does_again_what_was_undone_under_another_key(either: Rig) -> None:
    rig, worker = either, await ended(either)
    await ask(rig)
    await rolled_back(rig, worker)
    fork = await rig.app(undo.app).handle(order, RUN).fork(who="ada", at=0, id="again")
    row = await rig.until_ended(worker, fork.id)
    assert (row.status, row.reason) == ("blocked", "done elsewhere"), "the mail was not undone"
    assert shop.done == [*UNDONE, "reserve book", "charge book"]
    assert len(shop.keys["charge"]) == 2, "the other side must not answer with the charge that was refunded"


async def test_what_was_held_is_undone_in_the_order_in_which_it_was_sent(either: Rig) -> None:
    rig = either

    async def charges(run: Run[None]) -> object:
        return await run.call(undo.charge, "book")

    async def both(run: Run[None]) -> object:
        return await run.gather(run.call(undo.charge, "book"), run.call(undo.reserve, "shelf"))

    worker = await ended(rig, charges)
    shop.body = both
    fork = await rig.app(undo.app).handle(order, RUN).fork(who="ada", at=0, id="again")
    assert (await rig.until_ended(worker, fork.id)).reason == "done elsewhere"
    assert shop.done == ["charge book", "reserve shelf"]
    await decide(rig, await one(rig, "charge", "again"), "repeat")
    assert (await rig.until_ended(worker, fork.id)).status == "succeeded"
    back = await ask(rig, "again")
    assert (await rolled_back(rig, worker, back.id)).status == "succeeded"
    assert shop.done == ["charge book", "reserve shelf", "charge book", "refund book", "release shelf"]


async def test_a_fork_does_not_begin_behind_what_was_undone(rig: Rig) -> None:
    worker = await ended(rig)
    handle = rig.app(undo.app).handle(order, RUN)
    before = await handle.fork(who="ada", id="before")
    assert (await rig.row(before.id)).fork_seq
    await ask(rig)
    await rolled_back(rig, worker)
    row = await one(rig, "reserve")
    with pytest.raises(NotForkable, match=f"operation {row.id} has been undone there") as refused:
        await handle.fork(who="ada", at=row.seq + 2)
    assert refused.value.nearest < row.seq
    late = await handle.fork(who="ada", id="late")
    assert (await rig.row(late.id)).fork_seq == refused.value.nearest
    with pytest.raises(NotForkable, match="has been undone there"):
        await rig.app(undo.app).handle(order, before.id).cancel(who="ada")
        await rig.app(undo.app).handle(order, before.id).fork(who="ada", at=row.seq + 2)


async def test_a_run_that_is_being_rolled_back_is_not_forked(rig: Rig) -> None:
    worker = await ended(rig)
    await ask(rig)
    with pytest.raises(WrongState, match=f"run {BACK} is rolling it back"):
        await rig.app(undo.app).handle(order, RUN).fork(who="ada", at=0)
    await rolled_back(rig, worker)
    with pytest.raises(WrongState, match="a rollback cannot be forked"):
        await rig.app(undo.app).handle(order, BACK).fork(who="ada", at=0)


async def test_the_outcome_of_what_was_undone_is_not_reused(rig: Rig) -> None:
    worker = await ended(rig)
    fork = await rig.app(undo.app).handle(order, RUN).fork(who="ada", at=0, id="again")
    assert (await rig.until_ended(worker, fork.id)).reason == "done elsewhere"
    held = await one(rig, "reserve", "again")
    await ask(rig)
    await rolled_back(rig, worker)
    with pytest.raises(Refused, match="is compensated, so it has no outcome"):
        await decide(rig, held, "reuse")


# ---- what says so


async def misfits(rig: Rig) -> list[str]:
    store = rig.store
    assert isinstance(store, SQLiteStore)
    return [f"{one.run}, {one.what}: {one.why}" async for one in verify_all(store, DEFAULT_TENANT, Progress())]


async def test_the_audit_finds_what_says_that_it_was_undone_and_was_not(rig: Rig) -> None:
    worker = await ended(rig)
    await ask(rig)
    await rolled_back(rig, worker)
    assert await misfits(rig) == []
    charge, mail = await one(rig, "charge"), await one(rig, "mail")
    undo.write(
        rig, f"update operation set status = 'compensated', compensated_by = '{charge.id}' where id = '{mail.id}'"
    )
    assert [said for said in await misfits(rig) if str(mail.id) in said and "has not compensated it" in said]
    undo.write(rig, f"update operation set status = 'succeeded', compensated_by = '' where id = '{mail.id}'")
    undo.write(rig, f"update operation set status = 'succeeded', compensated_by = '' where id = '{charge.id}'")
    assert [said for said in await misfits(rig) if f"{charge.id} of run {RUN} is succeeded, not compensated" in said]
    undo.write(rig, f"update run set rolls_back = null where id = '{BACK}'")
    assert [said for said in await misfits(rig) if "rolls_back" in said]


async def test_a_rollback_and_what_it_has_undone_are_carried_to_another_store(
    rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    worker = await ended(rig)
    await ask(rig)
    await rolled_back(rig, worker)
    assert isinstance(rig.store, SQLiteStore)
    async with rig_at(tmp_path_factory.mktemp("other")) as other:
        assert isinstance(other.store, SQLiteStore)
        for run in (RUN, BACK):
            lines = [line.encode() async for line in bundle_of(rig.store, DEFAULT_TENANT, run, with_key=True)]
            assert (await take_in(other.store, lines, None)).added
        assert await other.operations(RUN) == await rig.operations(RUN)
        assert (await other.row(BACK)).rolls_back == RUN
        assert await misfits(other) == []


async def test_what_was_undone_stays_so_although_its_own_run_hears_of_it_again(rig: Rig) -> None:
    worker = await ended(rig)
    await ask(rig)
    await rolled_back(rig, worker)
    charge = await one(rig, "charge")
    body = f'{{"operation":"{charge.id}","attempt":2,"epoch":9,"answer":"succeeded","payload":"1","error":null}}'
    await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), "evidence", "k", body), now=rig.clock.now())
    await rig.settle(worker)
    await rig.pass_time(worker, timedelta(minutes=1))
    row = await one(rig, "charge")
    assert (row.status, row.duplicates) == ("compensated", 1), "it has acted twice, and was undone once"
    assert await misfits(rig) == []


async def test_a_fork_does_not_begin_behind_the_wish_for_a_rollback(rig: Rig) -> None:
    """It would fail at once, for a reason that is its parent's."""

    async def body(run: Run[None]) -> object:
        await run.call(undo.mail, "book")
        await run.rollback("enough")

    worker = await ended(rig, body)
    await rolled_back(rig, worker)
    fork = await rig.app(undo.app).handle(order, RUN).fork(who="ada")
    kind = [entry.kind for entry in await rig.entries(RUN)][(await rig.row(fork.id)).fork_seq or 0]
    assert kind == "outcome"
