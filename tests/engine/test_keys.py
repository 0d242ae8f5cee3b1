"""Business keys: one action of a tenant, whichever run does it. What a second run gets depends on the first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from outlive import Happened, Run
from outlive.engine.later import COMPLETION, Word, written
from outlive.errors import Abandoned, Compensated, KeyConflict, ToolFailed
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Message
from outlive.store.sqlite import SQLiteStore
from outlive.testing.faults import FaultyStore
from tests.engine import keyed
from tests.engine.keyed import (
    Body,
    Declined,
    asked,
    bank,
    begin,
    booked,
    calls,
    charge,
    clerk,
    crash_in_flight,
    decide,
    declined,
    deduped,
    key,
    later,
    lost,
    not_sent,
    operation,
    plain,
    refuses,
)
from tests.engine.rig import Rig

DONE = '"receipt of INV-7"'


@pytest.fixture(autouse=True)
def fresh() -> None:
    keyed.reset()


def catches(body: Body, *errors: type[Exception]) -> Body:
    """A body that gives what it has caught as its result."""

    async def body_(run: Run[None], name: str) -> object:
        try:
            return await body(run, name)
        except errors as error:
            return f"{type(error).__name__}: {error}"

    return body_


async def result(rig: Rig, run: str) -> str | None:
    """The result of a run that has ended well."""
    row = await rig.row(run)
    assert row.status == "succeeded", (row.status, row.reason, row.detail)
    return (await rig.entries(run))[-1].payload


async def tell(rig: Rig, run: str, payload: str = DONE) -> None:
    """The other side tells that it happened."""
    row = await operation(rig, run)
    word = Word(row.id, row.attempt, "k", "happened", payload)
    await rig.store.post(Message(DEFAULT_TENANT, RunId(run), COMPLETION, "k", written(word)), now=rig.clock.now())


# ---- what has an outcome


@pytest.mark.parametrize("tool", [asked, deduped, booked], ids=lambda tool: tool.name)
async def test_a_second_run_has_the_outcome_of_the_first(either: Rig, tool: Any) -> None:
    worker = await begin(either, "a", body=calls(tool))
    await either.settle(worker)
    await begin(either, "b", body=calls(tool))
    await either.settle(worker)
    assert await result(either, "a") == await result(either, "b") == DONE
    assert bank.charged == ["INV-7"] and len(either.sent) == 1
    assert await either.kinds("b") == ["started", "shared", "ended"]
    first, second = await operation(either, "a"), await operation(either, "b")
    assert (second.status, second.how, second.outcome) == ("succeeded", "shared", DONE)
    assert (second.shared_run, second.shared_operation) == ("a", first.id)
    assert second.key == first.key == bank.keys[0] and second.business_key == first.business_key != ""
    row = await key(either)
    assert (row.mark.status, row.mark.shown, row.mark.outcome) == ("succeeded", "charge/INV-7", DONE)
    assert (row.mark.run, row.mark.operation) == ("a", first.id)


@pytest.mark.parametrize("tool", [charge, booked], ids=lambda tool: tool.name)
async def test_a_declared_exception_is_shared(either: Rig, tool: Any) -> None:
    body = catches(keyed.pays if tool is charge else calls(tool), Declined)
    bank.hook = declined
    worker = await begin(either, "a", body=body)
    await either.settle(worker)
    await begin(either, "b", body=body)
    await either.settle(worker)
    assert await result(either, "a") == await result(either, "b") == '"Declined: no money"'
    assert len(either.sent) == 1
    assert {(await operation(either, run)).status for run in "ab"} == {"raised"}


async def test_replay_gives_what_was_shared_and_asks_nobody(either: Rig) -> None:
    worker = await begin(either, "a")
    await either.settle(worker)

    async def body(run: Run[None], name: str) -> object:
        got = await run.call(charge, "INV-7", 4200)
        await run.sleep(timedelta(hours=1))
        return got

    await begin(either, "b", body=body)
    await either.settle(worker)
    async with either.store.transaction() as transaction:
        # What the key stands for does not matter any more.
        assert await transaction.execute("select 1") == [(1,)]
    before = bank.evaluated
    await either.pass_time(worker, timedelta(hours=1))
    assert await result(either, "b") == DONE and bank.evaluated == before


async def test_the_second_call_of_one_run_shares_and_branches_wait_for_each_other(either: Rig) -> None:
    async def body(run: Run[None], name: str) -> object:
        both = await run.gather(run.call(charge, "INV-7", 4200), run.call(charge, "INV-7", 4200))
        return [*both, await run.call(charge, "INV-7", 4200)]

    worker = await begin(either, "a", body=body)
    await either.settle(worker)
    assert bank.charged == ["INV-7"]
    assert await result(either, "a") == '"' + str([DONE.strip('"')] * 3).replace('"', '\\"') + '"'
    assert sorted(row.how for row in await either.operations("a")) == ["call", "shared", "shared"]


# ---- what has none as yet


@pytest.mark.parametrize("tool", [asked, deduped], ids=lambda tool: tool.name)
async def test_a_second_run_waits_as_a_row_for_the_one_in_flight(either: Rig, tool: Any) -> None:
    bank.hook = later
    worker = await begin(either, "a", body=calls(tool))
    await either.settle(worker)
    await begin(either, "b", "c", body=calls(tool))
    await either.settle(worker)
    first = await operation(either, "a")
    for run in "bc":
        row = await either.row(run)
        assert (row.status, row.owner, row.wake_at) == ("waiting", None, None)
        assert row.reason == f"business key charge/INV-7: operation {first.id} of run a"
        assert await either.kinds(run) == ["started", "suspended"]
    assert set((await key(either)).waiters) == {"b", "c"}
    await tell(either, "a")
    await either.settle(worker)
    assert [await result(either, run) for run in "abc"] == [DONE] * 3
    assert len(either.sent) == 1


async def test_what_is_retried_is_waited_for_and_what_failed_frees_the_key_for_one(either: Rig) -> None:
    bank.hook = refuses(2)
    worker = await begin(either, "a", body=catches(calls(asked), ToolFailed))
    await either.settle(worker)
    assert (await operation(either, "a")).status == "retrying"
    await begin(either, "b", "c", body=calls(asked))
    await either.settle(worker)
    assert {(await either.row(run)).status for run in "bc"} == {"waiting"}
    assert (await key(either)).mark.status == "open"
    await either.until_ended(worker, "a")
    assert "ToolFailed" in str(await result(either, "a"))
    for run in "bc":
        await either.until_ended(worker, run)
    assert sorted([(await operation(either, run)).how for run in "bc"]) == ["call", "shared"]
    assert bank.charged == ["INV-7"] and await result(either, "b") == await result(either, "c") == DONE


async def test_a_crash_in_flight_is_waited_for_until_a_person_is_needed(either: Rig) -> None:
    await begin(either, "a")
    await crash_in_flight(either)
    worker = await begin(either, "b")
    await either.settle(worker)
    assert (await either.row("b")).status == "waiting"
    await either.take_over(worker)
    assert (await either.row("a")).reason == "operation in doubt"
    row, first = await either.row("b"), await operation(either, "a")
    assert (row.status, row.reason) == ("blocked", "in doubt elsewhere")
    assert row.detail == f"business key charge/INV-7: in doubt in run a, operation {first.id}"
    assert len(bank.charged) == 1
    await decide(either, "a", "happened", DONE)
    await either.settle(worker)
    assert await result(either, "a") == await result(either, "b") == DONE
    assert len(bank.charged) == 1


async def test_doubt_that_settles_itself_is_waited_for(either: Rig) -> None:
    bank.hook = lost
    worker = await begin(either, "a", body=calls(asked))
    await either.settle(worker)
    await begin(either, "b", body=calls(asked))
    await either.settle(worker)
    assert [(await either.row(run)).status for run in "ab"] == ["waiting", "waiting"]
    bank.answer = Happened("looked up")
    await either.until_ended(worker, "a")
    await either.settle(worker)
    assert await result(either, "b") == '"looked up"' and len(bank.charged) == 1


@pytest.mark.parametrize("ends", [False, True])
async def test_did_not_happen_lets_the_run_that_has_the_key_try_again(either: Rig, ends: bool) -> None:
    await begin(either, "a", body=keyed.pays)
    await crash_in_flight(either)
    worker = await begin(either, "b")
    await either.take_over(worker)
    bank.charged.clear()  # that request was never received
    if ends:
        await either.app(keyed.app).handle(clerk, "a").cancel(who="ada", why="enough")
        await either.settle(worker)
        assert (await either.row("b")).reason == "in doubt elsewhere"
    either.clock.advance(timedelta(hours=1))
    await decide(either, "a", "did-not-happen")
    await either.until_ended(worker, "b")
    assert await result(either, "b") == DONE and bank.charged == ["INV-7"]
    assert (await operation(either, "b")).how == ("call" if ends else "shared")
    assert (await either.row("a")).status == ("cancelled" if ends else "succeeded")


async def test_what_was_abandoned_is_so_for_all(either: Rig) -> None:
    await begin(either, "a", body=catches(keyed.pays, Abandoned))
    await crash_in_flight(either)
    worker = await begin(either, "b", body=catches(keyed.pays, Abandoned))
    await either.take_over(worker)
    await decide(either, "a", "abandon")
    await either.settle(worker)
    await begin(either, "c", body=catches(keyed.pays, Abandoned))
    await either.settle(worker)
    first = await operation(either, "a")
    assert await result(either, "b") == await result(either, "c") == await result(either, "a")
    assert first.id in str(await result(either, "b")) and "she looked" in str(await result(either, "b"))
    assert await either.operations("b") == [] and len(bank.charged) == 1


async def test_a_run_that_is_told_to_end_gives_its_key_back_and_holds_nothing_up(either: Rig) -> None:
    bank.hook = not_sent
    worker = await begin(either, "a", body=calls(asked))
    await either.settle(worker)
    await begin(either, "b", "c", body=calls(asked))
    await either.settle(worker)
    bank.hook = None
    for run in "ba":  # one that waits, then the one that has the key
        await either.app(keyed.app).handle(clerk, run).cancel(who="ada", why="enough")
        await either.settle(worker)
    assert [(await either.row(run)).status for run in "abc"] == ["cancelled", "cancelled", "succeeded"]
    assert await result(either, "c") == DONE and bank.charged == ["INV-7"]


async def test_a_branch_that_loses_gives_its_key_back(either: Rig) -> None:
    async def body(run: Run[None], name: str) -> object:
        winner, _ = await run.first(pays=run.call(asked, "INV-7"), waits=run.sleep(timedelta(seconds=2)))
        await run.sleep(timedelta(hours=1))
        return winner

    bank.hook = not_sent
    worker = await begin(either, "a", body=body)
    await either.settle(worker)
    await begin(either, "b", body=calls(asked))
    await either.settle(worker)
    assert (await either.row("b")).status == "waiting"
    bank.hook = None
    await either.pass_time(worker, timedelta(seconds=2))
    await either.settle(worker)
    assert (await either.row("a")).status == "waiting" and await result(either, "b") == DONE
    await either.pass_time(worker, timedelta(hours=1))
    assert await result(either, "a") == '"waits"' and bank.charged == ["INV-7"]


async def test_a_terminated_run_whose_log_cannot_be_read_gives_its_key_back(rig: Rig) -> None:
    bank.hook = not_sent
    worker = await begin(rig, "a", body=calls(asked))
    await rig.settle(worker)
    await begin(rig, "b", body=calls(asked))
    await rig.settle(worker)
    bank.hook = None
    assert isinstance(rig.store, SQLiteStore)
    await rig.store._write(
        lambda database, _: database.execute("update entry set kind = 'nonsense' where run_id = 'a' and seq = 1")
    )
    await rig.app(keyed.app).handle(clerk, "a").terminate(who="ada", why="enough")
    await rig.settle(worker)
    assert await result(rig, "b") == DONE and bank.charged == ["INV-7"]


async def test_pausing_a_run_that_waits_keeps_its_place(either: Rig) -> None:
    bank.hook = later
    worker = await begin(either, "a", body=calls(asked))
    await either.settle(worker)
    await begin(either, "b", body=calls(asked))
    await either.settle(worker)
    handle = either.app(keyed.app).handle(clerk, "b")
    await handle.pause(who="ada", why="a moment")
    await tell(either, "a")
    await either.settle(worker)
    assert (await either.row("b")).paused_at is not None
    await handle.resume(who="ada", why="go on")
    await either.settle(worker)
    assert await result(either, "b") == DONE and len(either.sent) == 1


# ---- what is something else


async def test_other_arguments_under_one_key_are_a_conflict_also_on_replay(either: Rig) -> None:
    worker = await begin(either, "a")
    await either.settle(worker)
    told: list[KeyConflict] = []

    async def body(run: Run[None], name: str) -> object:
        try:
            return await run.call(charge, "INV-7", 1)
        except KeyConflict as conflict:
            told.append(conflict)
        await run.sleep(timedelta(hours=1))
        return "conflict"

    await begin(either, "b", body=body)
    await either.settle(worker)
    await either.pass_time(worker, timedelta(hours=1))
    assert await result(either, "b") == '"conflict"' and len(either.sent) == 1
    first = await operation(either, "a")
    live, again = told
    assert str(live) == str(again) and (live.key, live.run, live.operation) == ("charge/INV-7", "a", first.id)
    assert "other arguments of charge" in live.why
    assert await either.operations("b") == []


async def test_two_tools_under_one_key_are_a_conflict_that_says_what_to_do(either: Rig) -> None:
    worker = await begin(either, "a")
    await either.settle(worker)
    await begin(either, "b", body=catches(calls(deduped), KeyConflict))
    await either.settle(worker)
    assert "charge has it, not deduped: let a key begin with what it is of, as in deduped/…" in str(
        await result(either, "b")
    )
    assert len(either.sent) == 1


async def test_a_key_of_the_call_makes_any_tool_do_it_once(either: Rig) -> None:
    async def body(run: Run[None], name: str) -> object:
        return await run.options(effect_key="plain/INV-7").call(plain, "INV-7")

    worker = await begin(either, "a", "b", body=body)
    await either.settle(worker)
    assert await result(either, "a") == await result(either, "b") == DONE
    assert bank.charged == ["INV-7"] and (await key(either)).mark.shown == "plain/INV-7"


@pytest.mark.parametrize("text", ["", "  ", "x" * 501, "\ud800", "a\0b", 7])
async def test_what_is_no_key_is_an_error_that_names_the_tool(rig: Rig, text: str) -> None:
    async def body(run: Run[None], name: str) -> object:
        return await run.options(effect_key=text).call(plain, "INV-7")

    worker = await begin(rig, "a", body=body)
    await rig.settle(worker)
    row = await rig.row("a")
    assert row.status == "failed" and row.detail.startswith("Refused: the business key of plain")
    assert rig.sent == []


async def test_what_has_been_undone_is_told_and_the_code_decides(either: Rig) -> None:
    worker = await begin(either, "a")
    await either.settle(worker)
    await either.app(keyed.app).handle(clerk, "a").rollback(who="ada", why="the customer is gone")
    await either.settle(worker)
    assert bank.undone == ["INV-7"] and (await key(either)).mark.status == "compensated"

    async def body(run: Run[None], name: str) -> object:
        try:
            return await run.call(charge, "INV-7", 4200)
        except Compensated as undone:
            assert undone.run == "a"
            return await run.options(effect_key=f"{undone.key}/again").call(charge, "INV-7", 4200)

    await begin(either, "b", "c", body=body)
    await either.settle(worker)
    assert await result(either, "b") == await result(either, "c") == DONE
    assert bank.charged == ["INV-7", "INV-7"] and len(set(bank.keys)) == 2


async def test_a_rollback_leaves_what_another_run_has_done(either: Rig) -> None:
    worker = await begin(either, "a")
    await either.settle(worker)
    await begin(either, "b")
    await either.settle(worker)
    handle = await either.app(keyed.app).handle(clerk, "b").rollback(who="ada", why="the customer is gone")
    await either.settle(worker)
    first = await operation(either, "a")
    [left] = (await handle.result()).left
    assert left.why == f"run a has done it, under the same business key, as {first.id}"
    assert bank.undone == [] and first.status == "succeeded" and (await key(either)).mark.status == "succeeded"


async def test_the_recorded_key_counts_for_what_is_sent_again(either: Rig) -> None:
    """The function gives something else after a deploy: what was sent is sent again under the key that it had."""
    bank.hook = not_sent
    worker = await begin(either, "a", body=calls(asked))
    await either.settle(worker)
    before = await operation(either, "a")
    bank.hook, bank.bodies["a"] = None, calls(keyed.asked_anew)
    await either.until_ended(either.worker(either.app(keyed.deployed)), "a")
    after = await operation(either, "a")
    assert (after.status, after.business_key, after.key) == ("succeeded", before.business_key, before.key)
    assert (await key(either)).mark.shown == "charge/INV-7"


async def test_a_renamed_tool_is_the_same_one(either: Rig) -> None:
    worker = await begin(either, "a")
    await either.settle(worker)

    async def body(run: Run[None], name: str) -> object:
        return await run.call(keyed.settle, "INV-7", 4200)

    bank.bodies["b"] = body
    app = either.app(keyed.deployed)
    await app.start(keyed.clerk_anew, "b", id="b")
    await either.settle(either.worker(app))
    assert await result(either, "b") == DONE and len(bank.charged) == 1


async def test_a_fork_shares_what_its_parent_has_done(either: Rig) -> None:
    worker = await begin(either, "a")
    await either.settle(worker)
    await either.app(keyed.app).handle(clerk, "a").fork(at=0, id="b", who="ada", why="again", repeat_effects=True)
    bank.bodies["a"] = keyed.pays
    await either.settle(worker)
    assert await result(either, "b") == DONE and bank.charged == ["INV-7"]
    assert (await operation(either, "b")).how == "shared"


async def test_calls_without_a_key_ask_the_store_nothing_more(rig: Rig) -> None:
    counting = FaultyStore(rig.store)
    await begin(rig, "a", body=calls(plain))
    await rig.settle(rig.worker(rig.app(keyed.app), store=counting))
    assert await result(rig, "a") == DONE
    assert counting.counts["append"] > 0 and counting.counts["business_key"] == counting.counts["await_key"] == 0
    assert all(made.append is None or (made.append.take, made.append.marks) == (None, ()) for made in counting.made)


async def test_a_person_may_say_of_a_run_that_has_ended(either: Rig) -> None:
    """The outcome comes when nobody drives the run any more: whoever waits has it all the same."""
    await begin(either, "a")
    await crash_in_flight(either)
    worker = await begin(either, "b")
    await either.take_over(worker)
    await either.app(keyed.app).handle(clerk, "a").terminate(who="ada", why="enough")
    await either.settle(worker)
    assert (await either.row("b")).status == "blocked"
    await decide(either, "a", "happened", DONE)
    await either.settle(worker)
    assert await result(either, "b") == DONE and len(bank.charged) == 1
