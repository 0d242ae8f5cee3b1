"""What has its outcome later when its run ends, is paused or restarted; and what cannot have it later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from outlive import DidNotHappen, Happened, Operation, Run
from outlive.engine.definition import Tool
from outlive.engine.worker import Worker
from outlive.errors import BadArguments, NotForkable, TooEarly, UnknownOperation, WrongState
from outlive.model.ids import DEFAULT_TENANT, RunId
from tests.engine.awaiting import HOUR, in_an_hour, notices, operation, tell, verdicts, waiting
from tests.engine.rig import Rig
from tests.engine.scenes import acts, control, decide, pays
from tests.engine.subject import RUN, Answer, Body, act, base, begin, does, look, note_down, subject


async def cancelled(rig: Rig, body: Body = acts) -> Worker:
    worker = await waiting(rig, body)
    await rig.app(base).handle(subject, RUN).cancel(who="ada", why="enough")
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    return worker


async def test_a_cancelled_run_leaves_it_in_doubt_and_takes_what_is_told_as_evidence(either: Rig) -> None:
    await cancelled(either)
    assert (await operation(either)).status == "unknown"
    assert "unknown operation" in await notices(either)
    with pytest.raises(TooEarly):
        await tell(either, DidNotHappen())
    await tell(either, Happened("paid"), key="evt-2")
    done = await operation(either)
    assert (done.status, done.how, done.outcome) == ("succeeded", "completion", '"paid"')
    assert (await either.row(RUN)).status == "cancelled"
    await tell(either, DidNotHappen(), key="evt-3")
    assert await verdicts(either) == ["settles", "contradicts"]


async def test_that_it_did_not_happen_settles_what_an_ended_run_has_left(either: Rig) -> None:
    await cancelled(either)
    either.clock.advance(timedelta(milliseconds=(await operation(either)).not_before - either.clock.now()))
    await tell(either, DidNotHappen())
    assert (await operation(either)).status == "absent"


async def test_what_can_be_looked_up_is_when_its_run_is_cancelled(rig: Rig) -> None:
    async def answer(op: Operation[None]) -> Answer:
        return Happened("found")

    does.look_up = answer
    worker = await waiting(rig, pays)
    does.look_up = answer
    await rig.app(base).handle(subject, RUN).cancel(who="ada", why="enough")
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert (await operation(rig)).how == "lookup"


async def test_a_deadline_leaves_it_in_doubt(either: Rig) -> None:
    does.body, does.tool = acts, in_an_hour
    app = either.app(base)
    await app.start(subject, "task", id=RUN, deadline=HOUR / 2)
    worker = either.worker(app)
    await either.settle(worker)
    assert (await operation(either)).status == "later"
    await either.pass_time(worker, HOUR / 2)
    assert (await either.row(RUN)).status == "expired"
    assert (await operation(either)).status == "unknown"


async def test_a_terminated_run_leaves_it_in_doubt(either: Rig) -> None:
    await waiting(either)
    await either.app(base).handle(subject, RUN).terminate(who="ada")
    assert (await operation(either)).status == "unknown"
    assert (await either.kinds(RUN))[-2:] == ["unknown", "ended"]


async def test_a_paused_run_takes_it_in_when_it_is_resumed(rig: Rig) -> None:
    worker = await waiting(rig)
    handle = rig.app(base).handle(subject, RUN)
    await handle.pause(who="ada")
    await tell(rig, Happened("paid"))
    await rig.settle(worker)
    assert (await rig.row(RUN)).paused_at is not None
    await handle.resume(who="ada")
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"


async def test_a_branch_that_has_won_waits_for_what_the_other_has_sent(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await run.first(slow=run.call(act, "it"), fast=run.sleep(timedelta(minutes=1)))

    worker = await waiting(rig, body)
    await rig.pass_time(worker, timedelta(minutes=1))
    assert (await rig.row(RUN)).status == "waiting"
    assert (await operation(rig)).status == "later"
    await tell(rig, Happened("paid"))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"


async def test_a_person_can_decide_before_it_is_told(rig: Rig) -> None:
    worker = await waiting(rig)
    await decide(rig, "abandon")
    await rig.settle(worker)
    assert (await operation(rig)).status == "abandoned"


async def test_a_restart_does_not_repeat_what_is_to_come(rig: Rig) -> None:
    """Its run is paused, and may go on: whether it happens is not known, so the restart waits for a person."""
    worker = await waiting(rig)
    handle = rig.app(base).handle(subject, RUN)
    await handle.pause(who="ada")
    with pytest.raises(NotForkable) as refused:
        await handle.fork(at=3, who="ada")
    assert "it is later" in str(refused.value)
    again = await handle.fork(at=0, who="ada")
    await rig.settle(worker)
    row = await rig.row(again.id)
    assert (row.status, row.reason) == ("blocked", "done elsewhere")
    assert len(rig.sent) == 1


@pytest.mark.parametrize(("tool", "says"), [(look, "read"), (note_down, "transactional")])
async def test_what_has_its_outcome_when_it_ends_cannot_have_it_later(
    rig: Rig, tool: Tool[[str], str], says: str
) -> None:
    async def body(run: Run[None]) -> object:
        return await run.call(tool, "it")

    worker = await begin(rig, body)
    does.tool = in_an_hour
    row = await rig.until_ended(worker, RUN)
    assert row.status == "failed"
    assert f"a {says} tool has its outcome when it ends" in row.detail


@pytest.mark.parametrize("until", [timedelta(seconds=-1), datetime(2001, 1, 1, tzinfo=UTC), datetime(2101, 1, 1)])
async def test_a_time_that_is_over_or_has_no_zone_is_refused(rig: Rig, until: timedelta | datetime) -> None:
    refused: list[Exception] = []

    async def tool(op: Operation[None]) -> str:
        try:
            return op.pending(until=until)
        except Exception as error:
            refused.append(error)
            raise

    worker = await begin(rig, acts)
    does.tool = tool
    await rig.settle(worker)
    assert [type(error).__name__ for error in refused] == ["Refused"]


async def test_a_look_up_cannot_say_that_it_comes_later(rig: Rig) -> None:
    worker = await waiting(rig, pays)

    async def answer(op: Operation[None]) -> Answer:
        return op.pending(until=HOUR)

    does.look_up = answer
    await rig.pass_time(worker, HOUR)
    (said,) = [line.data["note"] for line in await rig.lines(RUN) if line.kind == "lookup"]
    assert "not a look-up" in str(said)


async def test_what_cannot_be_taken_is_said_to_who_tells_it(either: Rig) -> None:
    await waiting(either)
    app = either.app(base)
    id = (await operation(either)).id
    with pytest.raises(UnknownOperation) as unknown:
        await app.complete("op-none", Happened("x"), key="evt-1")
    assert str(unknown.value) == "there is no operation 'op-none'"
    with pytest.raises(BadArguments) as wrong:
        await app.complete(id, Happened(17), key="evt-1")
    assert "act" in str(wrong.value) and "str" in str(wrong.value)
    for key in ("", "a\nb", "k" * 201):
        with pytest.raises(BadArguments, match="the key"):
            await app.complete(id, Happened("x"), key=key)
    with pytest.raises(BadArguments, match="attempt=0"):
        await app.complete(id, Happened("x"), key="evt-1", attempt=0)
    assert await either.store.unread(DEFAULT_TENANT, RunId(RUN)) == []


async def test_a_control_claim_takes_in_what_was_told_of_a_run_that_nobody_drives(either: Rig) -> None:
    await waiting(either)
    await tell(either, Happened("paid"))
    await control(either).take_in(DEFAULT_TENANT, RunId(RUN))
    assert (await operation(either)).status == "succeeded"
    assert (await either.row(RUN)).status == "ready"
    with pytest.raises(WrongState):
        await control(either).retry(await either.row(RUN), who="ada", why="it is not blocked")
