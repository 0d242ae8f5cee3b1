"""The database has less than it acknowledged: what was sent in lost entries is not sent again, and a person decides.

The replica that was behind is a copy of the file, made at some point of the agent's code and switched to at another.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, cast

import pytest

from outlive import NotSent, Operation, Run
from outlive.engine.definition import AgentSpec
from outlive.errors import CommitUnknown
from outlive.log import kinds
from outlive.log.fold import Fold, fold
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import DidNotHappen, Happened
from outlive.model.run import Head
from outlive.store.port import Append, Message, Store
from tests.engine.lagging import Database, resolve, retry, sends, start
from tests.engine.rig import Rig
from tests.engine.subject import (
    RUN,
    Answer,
    State,
    act,
    add,
    base,
    begin,
    carry_on,
    charge,
    does,
    note_down,
    subject,
)


async def test_what_succeeded_in_lost_entries_is_kept_and_the_run_waits_for_a_person(
    rig: Rig, database: Database
) -> None:
    async def body(run: Run[None]) -> object:
        first = await run.step(add, 1)
        database.fall_behind()
        second = await run.call(act, "it")
        await database.fail_over()
        return [first, second, await run.step(add, 2)]

    worker = await start(rig, database, body)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost")
    (operation,) = await rig.operations(RUN)
    assert "entries 3-4" in row.detail
    assert f'{operation.id} act(what="it"): it had succeeded' in row.detail
    assert (operation.status, operation.how, operation.outcome) == ("succeeded", "evidence", '"did it"')
    (line,) = [line for line in await rig.lines(RUN) if line.kind == "entries lost"]
    assert "entries 3-4" in line.text
    assert '"kind": "intent"' in str(line.payload)

    await rig.pass_time(worker, timedelta(days=2))
    assert (await rig.row(RUN)).status == "blocked"
    await retry(rig)
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert row.status == "succeeded", row
    assert sends(rig) == ["it"]
    assert (await rig.lines(RUN))[-1].payload == "\"[2, 'did it', 3]\""


@pytest.mark.parametrize("decision", ["happened", "did-not-happen", "abandon"])
async def test_a_person_decides_about_what_nobody_saw_answered(
    rig: Rig, database: Database, decision: Literal["happened", "did-not-happen", "abandon"]
) -> None:
    async def tool(op: Operation[None]) -> str:
        await database.fail_over()
        raise TimeoutError("no answer")

    async def body(run: Run[None]) -> object:
        database.fall_behind()
        return await run.call(act, "it")

    does.tool = tool
    worker = await start(rig, database, body)
    (operation,) = await rig.operations(RUN)
    assert operation.status == "unknown"
    rig.clock.advance(timedelta(minutes=5))
    await resolve(rig, operation.id, decision)
    does.tool = does.__class__().tool
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert row.status == ("failed" if decision == "abandon" else "succeeded"), row
    assert sends(rig) == (["it", "it"] if decision == "did-not-happen" else ["it"])


async def test_a_retry_before_a_decision_asks_again_and_sends_nothing(rig: Rig, database: Database) -> None:
    async def tool(op: Operation[None]) -> str:
        await database.fail_over()
        raise TimeoutError("no answer")

    async def body(run: Run[None]) -> object:
        database.fall_behind()
        return await run.call(act, "it")

    does.tool = tool
    worker = await start(rig, database, body)
    await retry(rig)
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert sends(rig) == ["it"]


@pytest.mark.parametrize("answer", [Happened("found"), DidNotHappen()])
async def test_after_a_retry_a_look_up_decides(rig: Rig, database: Database, answer: Answer) -> None:
    async def tool(op: Operation[None]) -> str:
        await database.fail_over()
        raise TimeoutError("no answer")

    async def look_up(op: Operation[None]) -> Answer:
        return answer

    async def body(run: Run[None]) -> object:
        database.fall_behind()
        return await run.call(charge, "it")

    does.tool, does.look_up = tool, look_up
    worker = await start(rig, database, body)
    assert sends(rig) == ["it"]
    await retry(rig)
    does.tool = does.__class__().tool
    row = await rig.until_ended(worker, RUN)
    assert row.status == "succeeded"
    assert sends(rig) == (["it"] if isinstance(answer, Happened) else ["it", "it"])


async def test_an_answer_that_comes_after_the_block_finds_the_operation(rig: Rig, database: Database) -> None:
    """The old worker's evidence is about an operation that only its own record of the loss has made known."""
    known: list[bool] = []

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(database, name)

        async def post(self, message: Message, *, now: int | None = None) -> bool:
            known.append(bool(await rig.operations(RUN)))
            return await rig.store.post(message, now=now)

    async def tool(op: Operation[None]) -> str:
        await database.fail_over()
        worker._keeper.renew_once()
        return "answered late"

    async def body(run: Run[None]) -> object:
        database.fall_behind()
        return [await run.call(act, "it"), await run.call(act, "more")]

    does.tool = tool
    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, Watched()))
    await rig.settle(worker)
    assert known == [True]
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost"), "an answer is no decision"
    (operation,) = await rig.operations(RUN)
    assert (operation.status, operation.how) == ("succeeded", "evidence")
    assert sends(rig) == ["it"]
    await rig.settle(await carry_on(rig, body, code="first"))
    assert sends(rig) == ["it"]


@pytest.mark.parametrize("more", [False, True])
async def test_a_message_does_not_let_it_go_on(rig: Rig, database: Database, more: bool) -> None:
    """It wakes the run, which replays, and stops where it would act, or end."""

    async def tool(op: Operation[None]) -> str:
        database.fall_behind()
        return "did it"

    async def body(run: Run[None]) -> object:
        done = await run.call(act, "it")
        await database.fail_over()
        return [done, await run.call(act, "more")] if more else done

    does.tool = tool
    worker = await start(rig, database, body)
    assert (await rig.row(RUN)).reason == "entries lost"
    await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), "hello", "k", "{}"), now=rig.clock.now())
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost")
    assert sends(rig) == ["it"]


async def test_what_is_in_doubt_and_not_met_again_keeps_the_run_from_ending(rig: Rig, database: Database) -> None:
    async def tool(op: Operation[None]) -> str:
        await database.fail_over()
        raise TimeoutError("no answer")

    async def body(run: Run[None]) -> object:
        database.fall_behind()
        return await run.call(act, "it")

    async def another(run: Run[None]) -> object:
        return "done without it"

    does.tool = tool
    await start(rig, database, body)
    await retry(rig)
    worker = await carry_on(rig, another)
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    (operation,) = await rig.operations(RUN)
    await resolve(rig, operation.id, "happened")
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"


async def test_a_worker_that_claims_its_own_run_once_more_ends_its_first_attempt(rig: Rig, database: Database) -> None:
    async def tool(op: Operation[None]) -> str:
        await database.fail_over()
        rig.clock.advance(timedelta(seconds=31))
        assert await worker.claim() == 1
        return "answered late"

    async def body(run: Run[None]) -> object:
        return await run.call(act, "it")

    does.tool = tool
    await begin(rig, body)
    database.fall_behind()
    worker = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost")
    assert sends(rig) == ["it"]


async def test_operations_of_lost_turns_are_met_again_in_their_turns(rig: Rig, database: Database) -> None:
    async def body(run: Run[None]) -> object:
        async for state in run.turns(State()):
            state.seen.append(await run.call(act, f"turn {state.n}"))
            if state.n == 0:
                database.fall_behind()
            if state.n == 2:
                await database.fail_over()
                return state.seen
            state.n += 1
        return None

    worker = await start(rig, database, body)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost")
    assert sends(rig) == ["turn 0", "turn 1", "turn 2"]
    await retry(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert sends(rig) == ["turn 0", "turn 1", "turn 2"]
    assert {one.status for one in await rig.operations(RUN)} == {"succeeded"}
    seen = (await rig.lines(RUN))[-1].payload or ""
    assert [f"did turn {n}" in seen for n in range(3)] == [True] * 3


@pytest.mark.parametrize("evict", [True, False])
async def test_lost_operations_are_met_again_under_the_present_name_of_their_tool(
    rig: Rig, database: Database, evict: bool
) -> None:
    """Both have been sent under the old name; a deploy between the loss and the retry must not send them again."""

    async def old(run: Run[None]) -> object:
        database.fall_behind()
        done = [await run.call(act, "one"), await run.call(act, "two")]
        await database.fail_over()
        return [done, await run.step(add, 3)]

    async def new(run: Run[None]) -> object:
        return [await run.call(charge, "one"), await run.call(charge, "two"), await run.step(add, 3)]

    await start(rig, database, old)
    assert (await rig.row(RUN)).reason == "entries lost"
    await retry(rig)
    rig.evict = evict  # or each record is replayed by the next attempt
    worker = await carry_on(rig, new, code="new")
    worker.agents = {"subject": AgentSpec("subject", "2", subject.fn, renamed={"act": "charge"})}
    await rig.until_ended(worker, RUN)
    assert (await rig.row(RUN)).status == "succeeded"
    assert sends(rig) == ["one", "two"]
    assert {(one.tool, one.status) for one in await rig.operations(RUN)} == {("act", "succeeded")}


async def test_another_call_in_the_place_of_a_lost_one_diverges(rig: Rig, database: Database) -> None:
    """A lost step is made again and may give something else; what was sent with the old value is not passed over."""

    async def body(run: Run[None]) -> object:
        database.fall_behind()
        given = await run.step(add, 2 if database.failed_over else 1)
        done = await run.call(act, f"it {given}")
        await database.fail_over()
        return [done, await run.step(add, 3)]

    worker = await start(rig, database, body)
    await retry(rig)
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert 'act(what="it 2") in entries that were lost' in row.detail
    assert sends(rig) == ["it 2"]


async def test_an_effect_in_the_database_is_lost_with_its_record_and_made_again(rig: Rig, database: Database) -> None:
    async def body(run: Run[None]) -> object:
        database.fall_behind()
        done = await run.call(note_down, "it")
        await database.fail_over()
        return [done, await run.step(add, 1)]

    worker = await start(rig, database, body)
    assert (await rig.row(RUN)).reason == "entries lost"
    await retry(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    async with rig.store.transaction() as transaction:
        assert await transaction.execute("select what from notes") == [("it",)]


async def test_an_attempt_that_was_lost_after_one_that_is_known(rig: Rig, database: Database) -> None:
    async def tool(op: Operation[None]) -> str:
        if op.attempt == 1:
            raise NotSent("not yet")
        return "did it"

    async def body(run: Run[None]) -> object:
        done = await run.call(act, "it")
        await database.fail_over()
        return [done, await run.step(add, 1)]

    does.tool = tool
    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "waiting"
    database.fall_behind()
    await rig.pass_time(worker, timedelta(seconds=10))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost")
    (operation,) = await rig.operations(RUN)
    assert (operation.status, operation.how) == ("succeeded", "evidence")
    await retry(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert sends(rig) == ["it", "it"]


async def test_an_unknown_commit_on_a_log_that_has_lost_entries_adds_nothing(rig: Rig, database: Database) -> None:
    """Claiming again would find its token: it must also find what was acknowledged before."""

    class Cut:
        def __getattr__(self, name: str) -> object:
            return getattr(database, name)

        async def append(self, append: Append, *, now: int | None = None) -> Head:
            if database.behind and not database.failed_over and append.drafts[0].kind == "step":
                await database.fail_over()
                raise CommitUnknown(store="cut")
            return await rig.store.append(append, now=now)

    async def body(run: Run[None]) -> object:
        database.fall_behind()
        done = await run.call(act, "it")
        return [done, await run.step(add, 1)]

    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, Cut()))
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost")
    assert "step" not in await rig.kinds(RUN)
    await retry(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert sends(rig) == ["it"]


async def test_what_the_engine_knows_live_is_what_a_new_worker_reads(rig: Rig, database: Database) -> None:
    live: list[Fold] = []

    async def body(run: Run[None]) -> object:
        async for state in run.turns(State()):
            if state.n == 0:
                database.fall_behind()
            if state.n < 2:
                state.seen.append(await run.call(act, f"turn {state.n}"))
            elif not database.failed_over:
                await database.fail_over()
                await run.step(add, 1)
            else:
                return state.seen
            if database.failed_over:
                drive = next(iter(worker._drives.values()))
                assert drive.attempt is not None
                live.append(drive.attempt.fold)
                read = fold(await rig.store.window(DEFAULT_TENANT, RunId(RUN)))
                assert read.orphans == live[-1].orphans
                assert read.operations == live[-1].operations
            state.n += 1
        return None

    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(worker)
    await retry(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(live) == 2
    assert any(line.kind == kinds.MetAgain.KIND for line in await rig.lines(RUN))
