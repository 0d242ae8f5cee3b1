"""Doubt: what a crash leaves, what evidence says about it, and what a run may not do meanwhile."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from outlive import DidNotHappen, Operation, Retry, Run
from outlive.engine.inbox import EVIDENCE
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Message
from tests.engine.awaiting import look_into_inbox
from tests.engine.rig import Rig
from tests.engine.scenes import acts, control, crash_in_flight, lost, pays
from tests.engine.subject import RUN, Answer, act, base, begin, charge, does, put, subject


async def test_an_idempotent_call_past_its_window_is_treated_as_external(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await run.call(put, "it")

    await crash_in_flight(rig, body)
    rig.clock.advance(timedelta(hours=2))
    does.tool = lost
    second = rig.worker(rig.app(base))
    await rig.take_over(second)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert len(rig.sent) == 1, "the other side has forgotten the key: it is not repeated"


async def test_after_a_crash_an_external_operation_is_in_doubt_before_user_code_runs(rig: Rig) -> None:
    await crash_in_flight(rig, acts)
    entered: list[str] = []

    async def body(run: Run[None]) -> object:
        entered.append((await rig.operations(RUN))[0].status)
        return await run.call(act, "it")

    does.body = body
    await rig.take_over(rig.worker(rig.app(base)))
    assert entered[0] == "unknown"
    assert len(rig.sent) == 1
    assert (await rig.row(RUN)).reason == "operation in doubt"


async def test_a_lost_worker_costs_no_attempt(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await run.options(retry=Retry(attempts=1)).call(charge, "inv-7")

    await crash_in_flight(rig, body)

    async def answer(op: Operation[None]) -> Answer:
        return DidNotHappen()

    async def tool(op: Operation[None]) -> str:
        return "paid"

    does.tool, does.look_up = tool, answer
    worker = rig.worker(rig.app(base))
    await rig.take_over(worker)
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    assert len(rig.sent) == 2


async def _evidence(rig: Rig, payload: str = '"late"', attempt: int = 1) -> None:
    (operation,) = await rig.operations(RUN)
    body = (
        f'{{"operation":"{operation.id}","attempt":{attempt},"epoch":1,"answer":"succeeded","payload":{_quoted(payload)},'
        f'"error":null}}'
    )
    message = Message(DEFAULT_TENANT, RunId(RUN), EVIDENCE, f"{operation.id}:{attempt}", body)
    assert await rig.store.post(message, now=rig.clock.now())


def _quoted(text: str) -> str:
    return json.dumps(text)


async def test_evidence_of_a_zombie_settles_what_is_in_doubt(rig: Rig) -> None:
    await crash_in_flight(rig, acts)
    worker = rig.worker(rig.app(base))
    await rig.take_over(worker)
    await _evidence(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    (operation,) = await rig.operations(RUN)
    assert (operation.status, operation.how, operation.outcome) == ("succeeded", "evidence", '"late"')


@pytest.mark.parametrize(("payload", "duplicates"), [('"paid twice"', 1), ('"paid"', 0)])
async def test_evidence_against_a_verdict_of_absence_is_a_duplicate_that_blocks(
    rig: Rig, payload: str, duplicates: int
) -> None:
    await crash_in_flight(rig, pays)

    async def answer(op: Operation[None]) -> Answer:
        return DidNotHappen()

    async def tool(op: Operation[None]) -> str:
        return "paid"

    async def then_more(run: Run[None]) -> object:
        await run.call(charge, "inv-7")
        await _evidence(rig, payload)
        await run.step(_nothing)
        return "done"

    does.tool, does.look_up, does.body = tool, answer, then_more
    worker = rig.worker(rig.app(base))
    await rig.take_over(worker)
    await rig.until_ended(worker, RUN)
    # The run had ended before the evidence was read, or the owner was told by a renewal: here the sweep takes it in.
    await rig.settle(worker)
    (operation,) = await rig.operations(RUN)
    assert operation.duplicates == duplicates
    (said,) = [line for line in await rig.lines(RUN) if line.kind == "evidence"]
    assert said.text.endswith("duplicate" if duplicates else "confirms")


async def test_a_run_that_is_told_while_it_runs_of_an_effect_too_many_does_not_end_well(rig: Rig) -> None:
    await crash_in_flight(rig, pays)

    async def answer(op: Operation[None]) -> Answer:
        return DidNotHappen()

    async def tool(op: Operation[None]) -> str:
        return "paid"

    told: list[str] = []

    async def told_at_the_end(run: Run[None]) -> object:
        paid = await run.call(charge, "inv-7")
        if told:
            return paid
        told.append(paid)
        await _evidence(rig, '"paid before"')
        (drive,) = worker._drives.values()
        drive.grip.on_unread()  # what a renewal does when it finds something in the inbox
        while await rig.store.unread(DEFAULT_TENANT, RunId(RUN)):
            pass
        return paid

    does.tool, does.look_up, does.body = tool, answer, told_at_the_end
    worker = rig.worker(rig.app(base))
    await rig.take_over(worker)
    row = await rig.until_ended(worker, RUN)
    assert (row.status, row.reason) == ("blocked", "duplicate effect")
    assert "may have acted twice" in row.detail

    # A person acknowledges it; the recorded outcome stands.
    await control(rig).retry(row, who="ada", why="refunded by hand")
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    assert len(rig.sent) == 2


async def _nothing() -> None:
    return None


async def test_a_branch_in_doubt_blocks_the_run_although_another_won(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        await run.first(quick=run.step(_nothing), other=run.call(act, "in doubt"))
        return "success, it says"

    does.tool = lost
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")


async def test_a_run_does_not_end_by_its_own_failure_while_an_operation_is_in_doubt(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0.05)
        return await lost(op)

    async def body(run: Run[None]) -> object:
        async with asyncio.timeout(0.01):
            return await run.call(act, "in doubt")

    does.tool = tool
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")


async def test_an_error_that_no_database_takes_is_written_all_the_same(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        await op.note(odd="\ud800\0")
        raise ValueError("half a pair: \ud800, and \0", float("nan"), ["\ud800"])

    does.tool = tool
    await rig.settle(await begin(rig, acts))
    (operation,) = await rig.operations(RUN)
    assert operation.status == "unknown"
    assert "half a pair" in [line.text for line in await rig.lines(RUN) if line.kind == "unknown"][0]


async def test_a_deploy_cannot_make_a_repetition_of_what_was_external(rig: Rig) -> None:
    await crash_in_flight(rig, acts)
    was = act.policy
    act.policy = replace(was, effect="idempotent")
    try:
        worker = rig.worker(rig.app(base))
        await rig.take_over(worker)
    finally:
        act.policy = was
    assert (await rig.row(RUN)).reason == "operation in doubt"
    assert len(rig.sent) == 1


async def test_what_somebody_who_was_faster_has_said_of_a_call_in_flight_stays_its_outcome(either: Rig) -> None:
    """The worker before has its answer while the call is repeated under its key: that is what the agent is given."""
    rig = either

    async def body(run: Run[None]) -> object:
        return await run.call(put, "it")

    await crash_in_flight(rig, body)

    async def repeats(op: Operation[None]) -> str:
        await _evidence(rig, '"early"')
        await look_into_inbox(rig, second)
        return "late"

    does.tool = repeats
    second = rig.worker(rig.app(base))
    await rig.take_over(second)
    (operation,) = await rig.operations(RUN)
    assert (operation.status, operation.how, operation.outcome) == ("succeeded", "evidence", '"early"')
    assert "outcome" not in await rig.kinds(RUN)
    assert await rig.app(base).handle(subject, RUN).result() == "early"
