"""Outcomes that come later: told early, in time, late, twice, wrongly, or never."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from outlive import DidNotHappen, Happened, Operation, Run
from outlive.app.explain import explain
from outlive.app.operate import report
from outlive.model.ids import DEFAULT_TENANT, OperationId, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.store.port import Message
from outlive.store.survey import Seen
from tests.engine.awaiting import HOUR, look_into_inbox, notices, operation, puts, tell, verdicts, waiting
from tests.engine.rig import Rig
from tests.engine.scenes import acts, crash_in_flight, decide, lost, pays
from tests.engine.subject import RUN, Answer, State, act, add, base, begin, does, look, subject


async def test_a_run_waits_as_a_row_for_what_the_other_side_tells(either: Rig) -> None:
    worker = await waiting(either)
    row = await either.row(RUN)
    assert (row.status, row.owner, row.wake_at) == ("waiting", None, either.clock.now() + 3_600_000)
    assert row.reason == 'the outcome of act(what="it")'
    assert await either.kinds(RUN) == ["started", "intent", "later", "suspended"]
    explained = explain(Seen(row, False, frozenset()), {}, either.clock.now())
    assert (explained.kind, explained.why) == ("timer", row.reason)
    (shown,) = (await report(either.store, "default", RUN)).later
    assert shown.error.startswith("waits for its outcome until 20")

    await tell(either, Happened("paid"))
    await either.settle(worker)
    assert (await either.row(RUN)).status == "succeeded"
    done = await operation(either)
    assert (done.status, done.how, done.outcome, done.attempt) == ("succeeded", "completion", '"paid"', 1)
    assert len(either.sent) == 1
    assert await verdicts(either) == ["settles"]
    assert await either.app(base).handle(subject, RUN).result() == "paid"


async def test_it_waits_until_an_instant_too(rig: Rig) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)

    async def tool(op: Operation[None]) -> str:
        return op.pending(until=at)

    worker = await begin(rig, acts)
    does.tool = tool
    await rig.settle(worker)
    assert (await rig.row(RUN)).wake_at == at.timestamp() * 1000


async def test_another_worker_of_another_build_goes_on_with_it(rig: Rig) -> None:
    await waiting(rig)
    await tell(rig, Happened("paid"))
    await rig.settle(rig.worker(rig.app(base), code="another"))
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(rig.sent) == 1


async def test_a_worker_that_dies_after_it_is_recorded_is_no_reason_for_doubt(rig: Rig) -> None:
    """Another branch keeps the run in memory when its worker dies."""
    in_flight = asyncio.Event()

    async def tool(op: Operation[None]) -> str:
        if op.arguments["what"] == "later":
            return op.pending(until=HOUR)
        in_flight.set()
        await asyncio.Event().wait()
        return "never"

    async def body(run: Run[None]) -> object:
        async def after() -> str:
            for number in range(3):  # what is on its way in the other branch is recorded before the last of them
                await run.step(add, number)
            return await run.call(look, "hangs")

        return await run.gather(run.call(act, "later"), after())

    await begin(rig, body)
    does.tool = tool
    await rig.crash(rig.mortal(rig.app(base)), in_flight)

    async def looks(op: Operation[None]) -> str:
        return "seen"

    does.tool = looks
    await rig.take_over(rig.worker(rig.app(base)))
    assert (await operation(rig)).status == "later"
    await tell(rig, Happened("paid"))
    worker = rig.worker(rig.app(base))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert [what for what, _ in rig.sent].count("act") == 1


async def test_what_is_told_while_the_call_is_in_flight_counts_once_it_is_recorded(either: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        await either.app(base).complete(op.id, Happened("told early"), key="evt-1")
        await look_into_inbox(either, worker)
        return op.pending(until=HOUR)

    worker = await begin(either, acts)
    does.tool = tool
    await either.settle(worker)
    assert (await either.row(RUN)).status == "succeeded"
    assert await either.app(base).handle(subject, RUN).result() == "told early"
    # The run was not even unloaded.
    assert await either.kinds(RUN) == ["started", "intent", "later", "completion", "ended"]


@pytest.mark.parametrize("answers", [True, False])
async def test_what_is_told_of_a_call_in_flight_stays_unread_until_then(rig: Rig, answers: bool) -> None:
    """The owner is told of it, and leaves it where it is: what the call itself says comes first."""
    sending, go_on = asyncio.Event(), asyncio.Event()

    async def tool(op: Operation[None]) -> str:
        sending.set()
        await go_on.wait()
        if answers:
            return "answered"
        raise ConnectionResetError("the answer was lost")

    worker = await begin(rig, acts)
    does.tool = tool
    await worker.claim()
    await sending.wait()
    await tell(rig, Happened("told"))
    await look_into_inbox(rig, worker)
    assert (await operation(rig)).status == "pending"
    assert len(await rig.store.unread(DEFAULT_TENANT, RunId(RUN))) == 1
    go_on.set()
    await worker.idle()
    await rig.settle(worker)
    done = await operation(rig)
    expected = ("call", '"answered"', ["contradicts"]) if answers else ("completion", '"told"', ["settles"])
    assert (done.how, done.outcome, await verdicts(rig)) == expected


async def test_the_same_key_counts_once_and_another_with_the_same_outcome_is_no_news(either: Rig) -> None:
    worker = await waiting(either)
    for _ in range(2):
        await tell(either, Happened("paid"))
    await tell(either, DidNotHappen())  # under the same key: whatever it says
    await tell(either, Happened("paid"), key="evt-2")
    await either.settle(worker)
    assert await verdicts(either) == ["settles", "confirms"]
    assert (await either.row(RUN)).status == "succeeded"
    await tell(either, Happened("paid"))
    await tell(either, Happened("paid"), key="evt-3")
    assert await verdicts(either) == ["settles", "confirms", "confirms"]
    assert await notices(either) == []


async def test_a_contrary_outcome_is_said_to_somebody_and_changes_nothing(either: Rig) -> None:
    worker = await waiting(either)
    await tell(either, Happened("paid"))
    await either.settle(worker)
    await tell(either, DidNotHappen(), key="evt-2")
    await tell(either, Happened("paid twice"), key="evt-3")
    assert await verdicts(either) == ["settles", "contradicts", "contradicts"]
    assert await notices(either) == ["contradiction", "contradiction"]
    done = await operation(either)
    assert (done.status, done.outcome, done.duplicates) == ("succeeded", '"paid"', 0)


async def test_it_did_not_happen_is_believed_at_once_and_bounded_by_the_retries(either: Rig) -> None:
    worker = await waiting(either)
    for number in range(3):
        assert len(either.sent) == number + 1
        await tell(either, DidNotHappen(), key=f"evt-{number}")
        await either.settle(worker)
    row = await either.row(RUN)
    assert (row.status, "ToolFailed" in row.detail) == ("failed", True)
    assert (await operation(either)).status == "failed"
    assert await verdicts(either) == ["settles"] * 3


async def test_that_it_did_not_happen_costs_an_idempotent_tool_an_attempt_too(rig: Rig) -> None:
    worker = await waiting(rig, puts)
    for number in range(3):
        await tell(rig, DidNotHappen(), key=f"evt-{number}")
        await rig.settle(worker)
    assert (await rig.row(RUN)).status == "failed"
    assert len(rig.sent) == 3


async def test_of_two_words_that_are_read_at_once_the_second_may_take_back_the_first(either: Rig) -> None:
    """Nothing is sent between them."""
    worker = await waiting(either)

    async def tool(op: Operation[None]) -> str:
        return "paid again"

    does.tool = tool
    await tell(either, DidNotHappen())
    await tell(either, Happened("paid"), key="evt-2")
    await either.settle(worker)
    assert await verdicts(either) == ["settles", "settles"]
    assert len(either.sent) == 1


async def test_happened_of_an_attempt_that_was_sent_again_is_a_duplicate_that_blocks(either: Rig) -> None:
    worker = await waiting(either)
    await tell(either, DidNotHappen())
    await either.settle(worker)
    assert (await operation(either)).attempt == 2
    await either.app(base).complete((await operation(either)).id, Happened("paid"), key="evt-2", attempt=1)
    await either.app(base).complete((await operation(either)).id, DidNotHappen(), key="evt-3", attempt=1)
    await either.settle(worker)
    assert await verdicts(either) == ["settles", "duplicate", "no news"]
    assert (await operation(either)).status == "later"
    await tell(either, Happened("paid again"), key="evt-4")
    await either.settle(worker)
    row = await either.row(RUN)
    assert (row.status, row.reason) == ("blocked", "duplicate effect")
    assert await notices(either) == ["duplicate effect", "blocked"]


async def test_happened_after_the_call_has_failed_is_a_duplicate(either: Rig) -> None:
    worker = await waiting(either)
    for number in range(3):
        await tell(either, DidNotHappen(), key=f"evt-{number}")
        await either.settle(worker)
    await tell(either, Happened("paid"), key="evt-9")
    assert (await verdicts(either))[-1] == "duplicate"
    assert (await operation(either)).duplicates == 1
    assert await notices(either) == ["duplicate effect"]


@pytest.mark.parametrize("told", [True, False])
async def test_when_its_time_is_over_a_person_decides_or_it_is_told_late(either: Rig, told: bool) -> None:
    worker = await waiting(either)
    await either.pass_time(worker, HOUR)
    row, doubtful = await either.row(RUN), await operation(either)
    assert (row.status, row.reason, doubtful.status) == ("blocked", "operation in doubt", "unknown")
    assert await notices(either) == ["unknown operation", "blocked"]
    (shown,) = (await report(either.store, "default", RUN)).in_doubt
    assert shown.error.startswith("no outcome has come until")
    if told:
        await tell(either, Happened("paid late"))
    else:
        await decide(either, "happened", '"paid late"')
    await either.settle(worker)
    assert (await either.row(RUN)).status == "succeeded"
    assert (await operation(either)).how == ("completion" if told else "person")


async def test_when_its_time_is_over_it_is_looked_up(either: Rig) -> None:
    worker = await waiting(either, pays)

    async def answer(op: Operation[None]) -> Answer:
        return Happened("found")

    does.look_up = answer
    await either.pass_time(worker, HOUR)
    assert (await either.row(RUN)).status == "succeeded"
    assert (await operation(either)).how == "lookup"


async def test_a_look_up_after_its_time_is_believed_at_once_because_the_request_is_long_over(rig: Rig) -> None:
    worker = await waiting(rig, pays)

    async def answer(op: Operation[None]) -> Answer:
        return DidNotHappen()

    async def tool(op: Operation[None]) -> str:
        return "paid at last"

    does.look_up, does.tool = answer, tool
    await rig.pass_time(worker, HOUR)
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(rig.sent) == 2


async def test_what_came_just_before_its_time_was_over_counts(rig: Rig) -> None:
    worker = await waiting(rig)
    rig.clock.advance(HOUR)
    await tell(rig, Happened("just in time"))
    await rig.settle(worker)
    assert await verdicts(rig) == ["settles"]
    assert "unknown" not in await rig.kinds(RUN)


async def test_an_idempotent_call_whose_time_is_over_is_sent_again_under_its_key(rig: Rig) -> None:
    async def half(op: Operation[None]) -> str:
        keys.append(op.key)
        return op.pending(until=HOUR / 2) if len(keys) == 1 else "put"

    keys: list[str] = []
    worker = await begin(rig, puts)
    does.tool = half
    await rig.settle(worker)
    await rig.pass_time(worker, HOUR / 2)
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(keys) == 2 and len(set(keys)) == 1


async def test_a_completion_settles_what_is_in_doubt(either: Rig) -> None:
    worker = await begin(either, acts)
    does.tool = lost
    await either.settle(worker)
    assert (await either.row(RUN)).status == "blocked"
    await tell(either, Happened("paid"))
    await either.settle(worker)
    assert (await either.row(RUN)).status == "succeeded"
    assert (await operation(either)).how == "completion"


async def test_did_not_happen_of_what_is_in_doubt_is_kept_until_it_can_be_believed(either: Rig) -> None:
    worker = await begin(either, acts)
    does.tool = lost
    await either.settle(worker)

    async def tool(op: Operation[None]) -> str:
        return "paid"

    does.tool = tool
    await tell(either, DidNotHappen())
    await either.settle(worker)
    assert await verdicts(either) == ["too early"]
    row = await either.row(RUN)
    assert (row.status, row.wake_at) == ("waiting", (await operation(either)).not_before)
    assert len(either.sent) == 1
    await either.pass_time(worker, timedelta(milliseconds=(row.wake_at or 0) - either.clock.now()))
    assert (await either.row(RUN)).status == "succeeded"
    assert len(either.sent) == 2
    assert [line.data["how"] for line in await either.lines(RUN) if line.kind == "absent"] == ["completion"]


@pytest.mark.parametrize("happened", [True, False])
async def test_what_was_told_before_its_worker_was_lost_is_not(rig: Rig, happened: bool) -> None:
    await crash_in_flight(rig, acts)

    async def tool(op: Operation[None]) -> str:
        return "paid"

    does.tool = tool
    await tell(rig, Happened("paid") if happened else DidNotHappen())
    worker = rig.worker(rig.app(base))
    await rig.take_over(worker)
    await rig.until_ended(worker, RUN)
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(rig.sent) == (1 if happened else 2)
    assert await verdicts(rig) == ["settles" if happened else "too early"]


async def test_what_is_told_while_its_turn_ends_harms_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in the turn of its operation, and gets its place in the next one."""
    reading, go_on, operation_of = asyncio.Event(), asyncio.Event(), rig.store.operation

    async def slowly(tenant: Tenant, id: OperationId) -> OperationRow | None:
        reading.set()
        await go_on.wait()
        return await operation_of(tenant, id)

    async def is_told(op: Operation[None]) -> str:
        first = (await rig.operations(RUN))[0].id
        await rig.app(base).complete(first, Happened("did it"), key="evt-1")
        evidence = f'{{"operation":"{first}","attempt":1,"epoch":1,"answer":"raised","payload":null,"error":null}}'
        await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), "evidence", "k", evidence), now=rig.clock.now())
        monkeypatch.setattr(rig.store, "operation", slowly)
        await asyncio.to_thread(worker._keeper.renew_once)
        await reading.wait()
        return "told"

    async def body(run: Run[None]) -> object:
        async for state in run.turns(State()):
            if state.n == 0:
                await run.call(act, "it")
                await run.call(look, "whether it is told")
                state.n = 1
            else:
                run.random()
                go_on.set()
                await look_into_inbox(rig, worker)
                return "done"
        return "never"

    worker = await begin(rig, body)

    async def tool(op: Operation[None]) -> str:
        return "did it" if op.arguments["what"] == "it" else await is_told(op)

    does.tool = tool
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert await verdicts(rig) == ["confirms"]
    assert "value" in await rig.kinds(RUN), "what was about to be recorded is not lost"
