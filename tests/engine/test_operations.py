"""Operations: recorded before they are sent, never blindly repeated, never silently in doubt."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import cast

import pytest

from outlive import DidNotHappen, Happened, NotSent, Operation, Outlive, Retry, Run, Unclear
from outlive.app.decide import resolve
from outlive.errors import Abandoned, BadArguments, NotInDoubt, Refused, TooEarly, ToolFailed, UnknownOperation
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.run import Head
from outlive.store.port import Append, Store
from tests.engine.rig import Mortal, Rig
from tests.engine.scenes import acts, control, decide, lost, pays
from tests.engine.subject import (
    RUN,
    Answer,
    act,
    base,
    begin,
    does,
    look,
    note_down,
    on_thread,
    put,
    reset,
)


async def test_the_intent_is_in_the_log_before_the_tool_runs(rig: Rig) -> None:
    committed: list[str] = []
    seen: list[list[str]] = []

    class Watched(Mortal):
        async def append(self, append: Append, *, now: int | None = None) -> Head:
            head = await rig.store.append(append, now=now)
            committed.extend(draft.kind for draft in append.drafts)
            return head

    async def tool(op: Operation[None]) -> str:
        seen.append(list(committed))  # before anything is awaited: what was there when the tool began
        (row,) = await rig.operations(RUN)
        assert (row.status, row.key, row.id) == ("pending", op.key, op.id)
        return "ok"

    does.tool = tool
    await begin(rig, acts)
    await rig.settle(rig.worker(rig.app(base), store=cast(Store, Watched(rig.store))))
    assert seen == [["intent"]]


async def test_not_sent_is_retried_with_the_same_key_as_durable_timers_and_bounded(rig: Rig) -> None:
    keys: list[str] = []

    async def tool(op: Operation[None]) -> str:
        keys.append(op.key)
        raise NotSent("the other side refuses")

    async def body(run: Run[None]) -> object:
        try:
            return await run.call(act, "it")
        except ToolFailed as error:
            return f"{error.type}: {error.message}"

    does.tool = tool
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert row.status == "succeeded"
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert (await rig.kinds(RUN)).count("suspended") == 2
    assert (await rig.operations(RUN))[0].status == "failed"


async def test_retry_after_of_the_other_side_is_honoured(rig: Rig) -> None:
    class Busy(NotSent):
        retry_after = 90

    async def tool(op: Operation[None]) -> str:
        raise Busy("429")

    does.tool = tool
    await rig.settle(await begin(rig, acts))
    wake_at = (await rig.row(RUN)).wake_at
    assert wake_at is not None
    assert 89_000 < wake_at - rig.clock.now() <= 90_000


async def test_an_external_call_without_an_answer_is_unknown_and_blocks(rig: Rig) -> None:
    does.tool = lost
    worker = await begin(rig, acts)
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert 'act(what="it")' in row.detail
    await rig.pass_time(worker, timedelta(days=3))
    assert len(rig.sent) == 1, "time alone never repeats it"


async def test_an_unserialisable_result_leaves_the_effect_in_doubt(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        return object()  # type: ignore[return-value]  # the misuse under test

    does.tool = tool
    await rig.settle(await begin(rig, acts))
    (operation,) = await rig.operations(RUN)
    assert operation.status == "unknown"
    assert "NotSerialisable" in operation.error or "NotSerialisable" in (await rig.lines(RUN))[-2].text


async def test_a_look_up_that_says_it_happened_settles_it(rig: Rig) -> None:
    async def answer(op: Operation[None]) -> Answer:
        assert op.arguments == {"what": "inv-7"}
        return Happened("charge-1", note="found by key")

    does.tool, does.look_up = lost, answer
    row = await rig.until_ended(await begin(rig, pays), RUN)
    assert row.status == "succeeded"
    (operation,) = await rig.operations(RUN)
    assert (operation.status, operation.how, operation.outcome) == ("succeeded", "lookup", '"charge-1"')
    assert len(rig.sent) == 1


async def test_did_not_happen_is_believed_only_when_no_request_can_be_on_its_way(rig: Rig) -> None:
    asked: list[int] = []

    async def answer(op: Operation[None]) -> Answer:
        asked.append(rig.clock.now())
        return DidNotHappen()

    calls = 0

    async def tool(op: Operation[None]) -> str:
        nonlocal calls
        calls += 1
        return await lost(op) if calls == 1 else "paid"

    does.tool, does.look_up = tool, answer
    worker = await begin(rig, pays)
    began = rig.clock.now()
    await rig.settle(worker)
    (operation,) = await rig.operations(RUN)
    # The send window (the lease but for its margin), the time-out of the call (20 s) and settle_after (5 s).
    assert operation.not_before - began == 28_000 + 20_000 + 5_000
    await rig.pass_time(worker, timedelta(seconds=52))
    assert len(rig.sent) == 1
    await rig.pass_time(worker, timedelta(seconds=1))
    assert len(rig.sent) == 2
    assert (await rig.row(RUN)).status == "succeeded"
    assert [line.text for line in await rig.lines(RUN) if line.kind == "lookup"][0].endswith("may still be on its way")


async def test_unclear_look_ups_are_bounded_and_then_a_person_decides(rig: Rig) -> None:
    async def answer(op: Operation[None]) -> Answer:
        raise TimeoutError("the ledger is down")

    does.tool, does.look_up = lost, answer
    row = await rig.until_ended(await begin(rig, pays), RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert "10 look-ups gave no answer" in row.detail
    assert (await rig.kinds(RUN)).count("lookup") == 10


async def test_a_look_up_whose_outcome_does_not_fit_is_unclear(rig: Rig) -> None:
    async def answer(op: Operation[None]) -> Answer:
        return Happened(12)  # type: ignore[arg-type]  # the misuse under test

    does.tool, does.look_up = lost, answer
    await rig.settle(await begin(rig, pays))
    assert (await rig.operations(RUN))[0].status == "unknown"


# ---- a person decides


async def test_a_person_says_it_happened(rig: Rig) -> None:
    does.tool = lost
    worker = await begin(rig, acts)
    await rig.settle(worker)
    with pytest.raises(BadArguments, match="JSON of its result type"):
        await decide(rig, "happened", "12")
    await decide(rig, "happened", '"by hand"')
    row = await rig.until_ended(worker, RUN)
    assert row.status == "succeeded"
    (resolution,) = [line for line in await rig.lines(RUN) if line.kind == "resolution"]
    assert "happened, says ada: she looked" in resolution.text
    assert len(rig.sent) == 1
    with pytest.raises(NotInDoubt):
        await decide(rig, "abandon")
    with pytest.raises(UnknownOperation):
        await resolve(control(rig), base.registry, DEFAULT_TENANT, RUN, "op-zzz", "abandon", who="a", why="b")


async def test_a_person_says_it_did_not_happen_but_not_too_early(rig: Rig) -> None:
    calls = 0

    async def tool(op: Operation[None]) -> str:
        nonlocal calls
        calls += 1
        return await lost(op) if calls == 1 else "acted"

    does.tool = tool
    worker = await begin(rig, acts)
    await rig.settle(worker)
    with pytest.raises(TooEarly):
        await decide(rig, "did-not-happen")
    rig.clock.advance(timedelta(minutes=2))
    await decide(rig, "did-not-happen")
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    assert len(rig.sent) == 2


async def test_a_person_abandons_it(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            return await run.call(act, "it")
        except Abandoned as error:
            return error.reason

    does.tool = lost
    worker = await begin(rig, body)
    await rig.settle(worker)
    await decide(rig, "abandon")
    row = await rig.until_ended(worker, RUN)
    assert row.status == "succeeded"
    assert (await rig.operations(RUN))[0].status == "abandoned"


# ---- other effects


async def test_an_idempotent_call_is_repeated_under_its_key_within_its_window(rig: Rig) -> None:
    keys: list[str] = []

    async def tool(op: Operation[None]) -> str:
        keys.append(op.key)
        return await lost(op) if len(keys) < 3 else "put"

    async def body(run: Run[None]) -> object:
        return await run.call(put, "it")

    does.tool = tool
    assert (await rig.until_ended(await begin(rig, body), RUN)).status == "succeeded"
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_a_read_tool_is_repeated_and_leaves_one_entry(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await run.call(look, "it")

    tries = 0

    async def tool(op: Operation[None]) -> str:
        nonlocal tries
        tries += 1
        return await lost(op) if tries == 1 else "seen"

    does.tool = tool
    assert (await rig.until_ended(await begin(rig, body), RUN)).status == "succeeded"
    assert [kind for kind in await rig.kinds(RUN) if kind in ("intent", "attempt", "step")] == ["attempt", "step"]


async def test_a_transactional_tool_writes_with_its_outcome_or_not_at_all(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await run.call(note_down, "it")

    tries = 0

    async def tool(op: Operation[None]) -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ValueError("after the insert")
        return "noted"

    does.tool = tool
    assert (await rig.until_ended(await begin(rig, body), RUN)).status == "succeeded"
    async with rig.store.transaction() as transaction:
        assert await transaction.execute("select count(*) from notes") == [(1,)]
    assert (await rig.operations(RUN))[0].status == "succeeded"


async def test_what_a_tool_may_not_do_is_refused_with_the_reason(rig: Rig) -> None:
    said: list[str] = []

    async def tool(op: Operation[None]) -> str:
        try:
            await op.note(a="b")
        except Refused as error:
            said.append(str(error))
        try:
            _ = op.connection
        except Refused as error:
            said.append(str(error))
        return "ok"

    async def body(run: Run[None]) -> object:
        await run.call(look, "it")
        return await run.call(note_down, "it")

    does.tool = tool
    await rig.until_ended(await begin(rig, body), RUN)
    assert "read tool" in said[0]
    assert "declare effect='transactional'" in said[1]
    assert "op.connection" in said[2]


async def test_notes_are_durable_before_the_call_goes_on(rig: Rig) -> None:
    found: list[dict[str, str]] = []

    async def tool(op: Operation[None]) -> str:
        await op.note(intent="i-1")
        assert (await rig.kinds(RUN))[-1] == "note"
        return await lost(op)

    async def answer(op: Operation[None]) -> Answer:
        found.append(op.notes)
        return Happened("ok")

    does.tool, does.look_up = tool, answer
    await rig.until_ended(await begin(rig, pays), RUN)
    assert found == [{"intent": "i-1"}]
    assert (await rig.operations(RUN))[0].notes == {"intent": "i-1"}


# ---- what tools may declare


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"settle_after": timedelta(0)}, "settle_after"),
        ({"timeout": timedelta(0)}, "timeout or retry"),
        ({"retry": Retry(attempts=0)}, "timeout or retry"),
        ({"effect": "read", "reconcile": lambda op: None}, "never in doubt"),
    ],
)
def test_a_policy_that_could_not_be_kept_is_refused(policy: dict[str, object], says: str) -> None:
    app: Outlive[None] = Outlive()
    with pytest.raises(Refused, match=says):
        app.tool(**policy)(_tool)  # type: ignore[call-overload]  # the misuse under test


async def _tool(op: Operation[None], what: str) -> str:
    return what


async def test_a_tool_can_be_tested_alone() -> None:
    reset()

    class Op:
        arguments = {"what": "x"}

    assert await act.test(Op(), "x") == "did x"


async def test_a_tool_on_a_thread_is_over_when_its_thread_has_ended(rig: Rig) -> None:
    """A time-out cannot stop a thread: while it runs the run is not released, and what it says late is its outcome."""
    release = threading.Event()
    does.blocking = release

    async def body(run: Run[None]) -> object:
        return await run.options(timeout=timedelta(milliseconds=20)).call(on_thread, "it")

    worker = await begin(rig, body)
    await worker.claim()
    idle = asyncio.ensure_future(worker.idle())
    done, _ = await asyncio.wait([idle], timeout=0.1)
    assert not done, "the time-out is over, the thread is not"
    release.set()
    await idle
    (operation,) = await rig.operations(RUN)
    assert (operation.status, operation.outcome) == ("succeeded", '"did it on a thread"')


def test_unclear_carries_its_note() -> None:
    assert Unclear("why").note == "why"


async def test_cancelling_oneself_inside_a_tool_is_an_error_like_any_other(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        raise asyncio.CancelledError

    does.tool = tool
    await rig.settle(await begin(rig, acts))
    assert (await rig.operations(RUN))[0].status == "unknown"
