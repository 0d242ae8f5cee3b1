"""What hostile or merely careless code may not do to a run: hide an effect, repeat one, or get stuck without a word."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from outlive import DidNotHappen, NotSent, Operation, Outlive, Retry, Run
from outlive.engine import inbox
from outlive.errors import Refused, StepFailed, ToolFailed, WrongState
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.signals import Unwind
from outlive.store.port import Message
from tests.engine.rig import LEASE, Rig, rig_at
from tests.engine.scenes import acts, control, crash_in_flight, decision, lost, pays
from tests.engine.subject import RUN, Answer, Declined, State, act, add, base, begin, does, fails, put
from tests.engine.test_worker import grip_at

Body = Callable[[Run[None]], Awaitable[object]]

# ---- values beside turns and transactions


@pytest.mark.parametrize("place", ["before the loop", "at the end of a turn"])
async def test_a_value_beside_a_turn_stays_in_the_window_that_drew_it(rig: Rig, place: str) -> None:
    drawn: list[str] = []

    async def body(run: Run[None]) -> object:
        if place == "before the loop":
            drawn.append(str(run.uuid()))
        async for state in run.turns(State()):
            if state.n == 3:
                return state.seen
            state.n += 1
            await run.step(add, state.n)
            if place == "at the end of a turn":
                state.seen.append(str(run.uuid()))
        return "never"

    rig.evict = True
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert row.status == "succeeded", row.detail
    assert len(set(drawn)) <= 1


async def test_a_step_sees_no_value_that_is_not_committed(rig: Rig) -> None:
    seen: list[list[str]] = []

    async def tool(op: Operation[None]) -> str:
        seen.append(await rig.kinds(RUN))
        return "ok"

    async def body(run: Run[None]) -> object:
        run.uuid()
        return await run.call(act, "with the value")

    does.tool = tool
    await rig.settle(await begin(rig, body))
    assert "value" in seen[0]


# ---- outcomes that are none


class Lost(OSError):
    """Something of the network."""


class Expired(Declined):
    """A declared outcome, more exactly."""


async def test_a_time_out_of_ours_is_none_of_the_outcomes_that_a_tool_declares(rig: Rig) -> None:
    was = act.policy
    act.policy = replace(was, not_sent=(OSError,), raises=(OSError,), timeout=timedelta(milliseconds=20))

    async def tool(op: Operation[None]) -> str:
        await asyncio.Event().wait()
        return "never"

    does.tool = tool
    try:
        await rig.settle(await begin(rig, acts))
    finally:
        act.policy = was
    assert (await rig.row(RUN)).reason == "operation in doubt"
    assert len(rig.sent) == 1


async def test_a_look_up_that_raises_settles_nothing(rig: Rig) -> None:
    async def answer(op: Operation[None]) -> Answer:
        raise Declined("the ledger is down, it says")

    does.tool, does.look_up = lost, answer
    await rig.settle(await begin(rig, pays))
    assert (await rig.operations(RUN))[0].status == "unknown"


async def test_a_subclass_of_a_declared_exception_is_that_outcome(rig: Rig) -> None:
    caught: list[str] = []

    async def tool(op: Operation[None]) -> str:
        raise Expired("card", 12)

    async def body(run: Run[None]) -> object:
        try:
            await run.call(act, "it")
        except Declined as error:
            caught.append(f"{type(error).__name__} {error.args}")
        return [await run.step(add, 1)]

    does.tool = tool
    rig.evict = True
    assert (await rig.until_ended(await begin(rig, body), RUN)).status == "succeeded"
    assert set(caught) == {"Declined ('card', 12)"}
    assert len(caught) > 1, "it was replayed too"


class Evil(Exception):
    """It cannot even be looked at."""

    @property
    def retry_after(self) -> float:
        raise LookupError("no")

    def __str__(self) -> str:
        raise LookupError("no")


@pytest.mark.parametrize("error", [Evil(), SystemExit(3), GeneratorExit(), KeyboardInterrupt(), Exception(10**5000)])
async def test_whatever_a_tool_raises_is_recorded_and_told_to_no_agent(rig: Rig, error: BaseException) -> None:
    async def tool(op: Operation[None]) -> str:
        raise error

    async def body(run: Run[None]) -> object:
        try:
            return await run.call(act, "it")
        except Exception:  # noqa: BLE001 - what people write
            return await run.call(act, "another way")

    does.tool = tool
    await rig.settle(await begin(rig, body))
    assert (await rig.row(RUN)).reason == "operation in doubt"
    assert [arguments["what"] for _, arguments in rig.sent] == ["it"]


async def test_an_agent_that_exits_ends_its_run_not_the_worker(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        raise SystemExit(9)

    await rig.settle(await begin(rig, body))
    row = await rig.row(RUN)
    assert row.status == "failed"
    assert "sys.exit(9)" in row.detail


def ends_an_iteration(x: int) -> int:
    return next(iter(()))


async def test_a_stop_iteration_on_a_thread_is_an_error(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            return await run.step(ends_an_iteration, 1)
        except StepFailed as error:
            return error.message

    await rig.settle(await begin(rig, body))
    assert "StopIteration" in str((await rig.entries(RUN))[-1].payload)


async def test_a_failure_names_the_line_that_raised(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        raise LookupError("a bug")

    await rig.settle(await begin(rig, body))
    assert "(at test_honesty.py:" in (await rig.row(RUN)).detail


async def test_a_call_that_was_never_awaited_fails_the_run(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        kept.append(run.call(act, "forgotten"))
        return "paid, it says"

    kept: list[Awaitable[str]] = []
    await rig.settle(await begin(rig, body))
    row = await rig.row(RUN)
    assert row.status == "failed"
    assert "never awaited" in row.detail
    assert "test_honesty.py" in row.detail
    kept[0].close()  # type: ignore[attr-defined]  # a coroutine: so that nobody warns


def turn(x: int) -> int:
    does.steps.append("turn")
    return x


async def test_a_step_may_be_called_turn(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        await run.step(turn, 0)
        async for state in run.turns(State()):
            await run.step(turn, state.n)
            if state.n == 2:
                break
            state.n += 1
        return "done"

    rig.evict = True
    assert (await rig.until_ended(await begin(rig, body), RUN)).status == "succeeded"
    assert len(does.steps) == 4


async def test_a_turn_does_not_end_over_a_doubt(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async for state in run.turns(State()):
            if state.n == 1:
                return "success, it says"
            try:
                await run.gather(run.call(put, "answer lost"), run.step(fails, "sibling"))
            except StepFailed:
                pass
            state.n += 1
        return "never"

    does.tool = lost
    worker = await begin(rig, body)
    row = await rig.until_ended(worker, RUN)
    (operation,) = await rig.operations(RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert operation.status == "unknown"


async def test_a_call_that_has_ended_sends_and_notes_nothing_more(rig: Rig) -> None:
    kept: list[Operation[None]] = []

    async def tool(op: Operation[None]) -> str:
        kept.append(op)
        return "ok"

    does.tool = tool
    await rig.settle(await begin(rig, acts))
    with pytest.raises(NotSent, match="the call has ended"):
        kept[0].guard()
    with pytest.raises(Refused, match="after the call has ended"):
        await kept[0].note(late="x")


# ---- people and other processes


async def test_a_decision_about_one_attempt_says_nothing_of_another(rig: Rig) -> None:
    """A person said *did not happen* of attempt 1; meanwhile a look-up said so too and attempt 2 is on its way."""
    sends = 0

    async def tool(op: Operation[None]) -> str:
        nonlocal sends
        sends += 1
        if sends == 1:
            return await lost(op)
        await rig.store.post(decision(op.id, 1, "did-not-happen"))
        (drive,) = worker._drives.values()
        drive.grip.on_unread()
        while await rig.store.unread(DEFAULT_TENANT, RunId(RUN)):
            pass
        assert (await rig.operations(RUN))[0].status == "pending"
        return "paid"

    async def answer(op: Operation[None]) -> Answer:
        return DidNotHappen()

    does.tool, does.look_up = tool, answer
    worker = await begin(rig, pays)
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    assert sends == 2


async def test_what_somebody_knows_is_heard_before_it_is_sent_again(rig: Rig) -> None:
    async def answer(op: Operation[None]) -> Answer:
        if rig.clock.now() >= (await rig.operations(RUN))[0].not_before:
            await rig.store.post(decision(op.id, 1, "happened"))
        return DidNotHappen()

    does.tool, does.look_up = lost, answer
    await rig.until_ended(await begin(rig, pays), RUN)
    assert len(rig.sent) >= 1


async def test_retry_reopens_nothing_that_has_ended(rig: Rig) -> None:
    does.tool = lost
    worker = await begin(rig, acts)
    await rig.settle(worker)
    blocked = await rig.row(RUN)
    await rig.store.post(decision((await rig.operations(RUN))[0].id, 1, "happened"))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    with pytest.raises(WrongState, match="has succeeded"):
        await control(rig).retry(blocked, who="ada", why="an old list")
    assert (await rig.kinds(RUN)).count("ended") == 1


@pytest.mark.parametrize("body", ['{"operation":' + "[" * 100_000, "[]", '{"operation":"op-none"}', "\\"])
async def test_no_row_of_the_inbox_stops_a_run(rig: Rig, body: str) -> None:
    worker = await begin(rig, acts)
    await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), inbox.EVIDENCE, "k", body))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), inbox.EVIDENCE, "k2", body))
    await rig.settle(worker)
    assert await rig.store.unread(DEFAULT_TENANT, RunId(RUN)) == []


async def test_evidence_is_read_before_a_run_counts_as_poison(tmp_path: Path) -> None:
    async with rig_at(tmp_path, max_lapses=1) as rig:
        await crash_in_flight(rig, acts)
        (operation,) = await rig.operations(RUN)
        said = {
            "operation": operation.id,
            "attempt": 1,
            "epoch": 1,
            "answer": "succeeded",
            "payload": '"ok"',
            "error": None,
        }
        body = json.dumps(said)
        await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), inbox.EVIDENCE, "k", body))
        worker = rig.worker(rig.app(base))
        await rig.take_over(worker)
        assert (await rig.row(RUN)).status == "succeeded"


async def test_a_run_that_nobody_here_serves_is_given_back(rig: Rig) -> None:
    await crash_in_flight(rig, acts)
    other = rig.worker(rig.app(Outlive[None]()))
    for _ in range(3 * int(LEASE.total_seconds())):
        await other.claim()
        rig.clock.advance(timedelta(seconds=1))
    row = await rig.row(RUN)
    assert (row.status, row.owner) == ("ready", None)
    assert [operation.status for operation in await rig.operations(RUN)] == ["unknown"]


# ---- time


async def test_a_jump_of_the_clock_does_not_make_a_no_believable(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(op: Operation[None]) -> Answer:
        return DidNotHappen()

    does.tool, does.look_up = lost, answer
    worker = await begin(rig, pays)
    await rig.settle(worker)
    stands_still = rig.clock.boottime()
    monkeypatch.setattr(rig.clock, "boottime", lambda: stands_still)
    await rig.pass_time(worker, timedelta(hours=1))
    assert len(rig.sent) == 1
    assert (await rig.operations(RUN))[0].status == "unknown"


async def test_a_hold_that_nobody_renews_ends_with_its_lease() -> None:
    from outlive.testing.clock import ManualClock

    clock = ManualClock()
    grip = grip_at(clock, 10, kept=False)
    clock.advance(timedelta(seconds=11))
    with pytest.raises(Unwind):
        await grip.ensure()


# ---- what a tool may declare


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"effect": "externl"}, "say one of read, idempotent, external, transactional"),
        ({"raises": "ValueError"}, "a tuple of exception classes"),
        ({"raises": (Exception,)}, "nothing could be in doubt"),
        ({"raises": (Declined, type("Declined", (Exception,), {}))}, "two classes of one name"),
        ({"timeout": 30}, "say a timedelta"),
        ({"name": "a/b"}, "printable, without /"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(policy: dict[str, object], says: str) -> None:
    app: Outlive[None] = Outlive()
    with pytest.raises(Refused, match=says):
        app.tool(**policy)(_tool)  # type: ignore[call-overload]  # the misuse under test


def test_a_transactional_tool_awaits_its_connection() -> None:
    with pytest.raises(Refused, match="make it `async def`"):
        Outlive[None]().tool(effect="transactional")(_plain)


async def _tool(op: Operation[None], what: str) -> str:
    return what


def _plain(op: Operation[None], what: str) -> str:
    return what


async def test_a_secret_that_is_missing_means_that_nothing_was_sent(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        return await op.secret("bank/token")

    async def body(run: Run[None]) -> object:
        try:
            return await run.options(retry=Retry(attempts=1)).call(act, "it")
        except ToolFailed as error:
            return error.message

    does.tool = tool
    await rig.settle(await begin(rig, body))
    assert (await rig.row(RUN)).status == "succeeded"
    assert "no secret 'bank/token'" in str((await rig.entries(RUN))[-1].payload)


async def test_a_changed_log_is_not_replayed(rig: Rig) -> None:
    import sqlite3

    does.tool = lost
    await rig.settle(await begin(rig, acts))
    with sqlite3.connect(str(rig.store._path)) as direct:  # type: ignore[attr-defined]  # the file of this store
        direct.execute("update entry set body = replace(body, 'lost', 'LOST') where kind = 'unknown'")
    await control(rig).retry(await rig.row(RUN), who="ada", why="to see")
    await rig.settle(rig.worker(rig.app(base), code="second"))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "undecodable")
    assert "does not fit the chain" in row.detail


async def test_other_peoples_log_lines_are_scrubbed_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from tests.engine.test_secrets import CANARY, Vault

    async def tool(op: Operation[None]) -> str:
        logging.getLogger("somebody.else").warning("Bearer %s", await op.secret("bank/pin"))
        return "ok"

    async with rig_at(tmp_path, secrets=Vault()) as rig:
        does.tool = tool
        await rig.settle(await begin(rig, acts))
    assert "Bearer [secret bank/pin]" in caplog.text
    assert CANARY not in caplog.text
