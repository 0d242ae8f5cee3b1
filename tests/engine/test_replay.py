"""Ordered replay: a mismatch between log and code is a fact about this build, found before any effect."""

from __future__ import annotations

from functools import partial

import pytest

from outlive import Operation, Run
from outlive.engine.control import Control
from outlive.engine.worker import owner_name
from outlive.log import kinds
from outlive.log.codec import codec_of
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, Declined, State, act, add, base, begin, carry_on, does, double, fails


async def _lost(op: object) -> str:
    raise ConnectionError("the answer was lost")


async def two_steps_and_doubt(run: Run[None]) -> object:
    """The recorded code: it stops blocked, so that another build must replay two steps and an operation."""
    one = await run.step(add, 1)
    two = await run.step(double, one)
    return await run.call(act, f"pay {two}")


async def renamed(run: Run[None]) -> object:
    one = await run.options(name="plus").step(add, 1)
    return await run.call(act, f"pay {await run.step(double, one)}")


async def deleted(run: Run[None]) -> object:
    return await run.call(act, f"pay {await run.step(double, 2)}")


async def inserted(run: Run[None]) -> object:
    await run.step(double, 7)
    return await two_steps_and_doubt(run)


async def reordered(run: Run[None]) -> object:
    two = await run.step(double, 2)
    await run.step(add, 1)
    return await run.call(act, f"pay {two}")


async def changed_argument(run: Run[None]) -> object:
    one = await run.step(add, 1)
    two = await run.step(double, one)
    return await run.call(act, f"pay {two + 1}")


async def another_kind(run: Run[None]) -> object:
    one = await run.step(add, 1)
    await run.step(double, one)
    run.now()
    return "done"


async def returns_early(run: Run[None]) -> object:
    return await run.step(add, 1)


async def raises_early(run: Run[None]) -> object:
    await run.step(add, 1)
    raise RuntimeError("before the operation")


async def gathers(run: Run[None]) -> object:
    return await run.gather(run.step(add, 1), run.step(double, 2))


@pytest.mark.parametrize(
    ("code", "has", "asks"),
    [
        (renamed, "add(x=1", "plus(x=1"),
        (deleted, "add(x=1", "double(x=2)"),
        (inserted, "add(x=1", "double(x=7)"),
        (reordered, "add(x=1", "double(x=2)"),
        (changed_argument, 'act(what="pay 4")', 'act(what="pay 5")'),
        (another_kind, 'act(what="pay 4")', "run.now()"),
        (returns_early, "double(x=2)", "the end of the agent"),
        (raises_early, "double(x=2)", "the end of the agent"),
        (gathers, "add(x=1", "gather(add.0, double.0)"),
    ],
)
async def test_changed_code_stops_before_any_effect(rig: Rig, code: Body, has: str, asks: str) -> None:
    does.tool = _lost
    await rig.settle(await begin(rig, two_steps_and_doubt))
    assert (await rig.row(RUN)).reason == "operation in doubt"
    sent, before = list(rig.sent), await rig.kinds(RUN)
    steps = len(does.steps)

    app = rig.app(base)
    does.body = code
    await _retry(rig)
    await rig.settle(rig.worker(app, code="second"))

    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert f"the log has {has}" in row.detail
    assert f"the code asks for {asks}" in row.detail
    assert rig.sent == sent
    assert len(does.steps) == steps
    assert await rig.kinds(RUN) == [*before, "retried", "blocked"]


async def test_another_build_heals_a_divergence_by_itself(rig: Rig) -> None:
    does.tool = _lost
    await rig.settle(await begin(rig, two_steps_and_doubt))
    await _retry(rig)
    await rig.settle(await carry_on(rig, changed_argument, code="bad"))
    assert (await rig.row(RUN)).reason == "diverged"

    # The bad build does not claim it again; the build that fits does, without anybody's help.
    await rig.settle(await carry_on(rig, changed_argument, code="bad"))
    assert (await rig.row(RUN)).reason == "diverged"
    await rig.settle(await carry_on(rig, two_steps_and_doubt, code="good"))
    assert (await rig.row(RUN)).reason == "operation in doubt"


async def test_an_entry_that_cannot_be_read_blocks_the_run_until_a_build_can(rig: Rig) -> None:
    does.tool = _lost
    await rig.settle(await begin(rig, two_steps_and_doubt))
    await _retry(rig)
    newer = kinds.KINDS.pop("unknown")
    try:
        await rig.settle(await carry_on(rig, two_steps_and_doubt, code="old"))
        row = await rig.row(RUN)
        assert (row.status, row.reason) == ("blocked", "undecodable")
        assert "(unknown) cannot be read: its kind is not known" in row.detail
    finally:
        kinds.KINDS["unknown"] = newer
    await rig.settle(await carry_on(rig, two_steps_and_doubt, code="new"))
    assert (await rig.row(RUN)).reason == "operation in doubt"


async def test_an_input_that_the_code_takes_no_more_is_a_divergence_not_a_failure(rig: Rig) -> None:
    worker = await begin(rig, returns_early)
    codec = worker.agents["subject"].input
    worker.agents["subject"].input = codec_of(int)
    try:
        await rig.settle(worker)
    finally:
        worker.agents["subject"].input = codec
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert "an input that this agent does not take" in row.detail


async def test_a_run_stays_ready_while_another_live_build_may_continue_it(rig: Rig) -> None:
    does.tool = _lost
    await rig.settle(await begin(rig, two_steps_and_doubt))
    await _retry(rig)
    old = await carry_on(rig, two_steps_and_doubt, code="good")
    await old._patiently_announce()
    await rig.settle(await carry_on(rig, changed_argument, code="bad"))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("ready", "diverged")


async def _retry(rig: Rig) -> None:
    control = Control(rig.store, rig.clock, owner_name(rig.clock))
    await control.retry(await rig.row(RUN), who="a person", why="a test")


async def catches_everything(run: Run[None]) -> object:
    told = []
    for message in ("one", "two"):
        try:
            await run.step(fails, message)
        except Exception as error:  # noqa: BLE001 - what people write
            told.append(f"{type(error).__name__}|{error}|{sorted(vars(error).items())}")
    try:
        await run.call(act, "declined")
    except Declined as error:
        told.append(f"{type(error).__name__}|{error}|{error.args}|{sorted(vars(error).items())}")
    does.steps.append("\n".join(told))
    await run.call(act, "block")
    return told


async def test_what_an_agent_catches_is_the_same_live_and_on_replay(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        if op.arguments["what"] == "declined":
            error = Declined("no funds", 7)
            error.add_note("not data")
            error.left = {"cents": 12}  # type: ignore[attr-defined]  # an attribute of the test
            raise error
        raise ConnectionError("lost")

    does.tool = tool
    await rig.settle(await begin(rig, catches_everything))
    live = does.steps[-1]
    await _retry(rig)
    await rig.settle(await carry_on(rig, catches_everything))
    assert live == does.steps[-1]
    assert "StepFailed" in live
    assert "('no funds', 7)" in live
    assert "{'cents': 12}" in live


# ---- what cannot be made durable


class Holder:
    async def method(self, x: int) -> int:
        return x


def no_annotation(x):  # type: ignore[no-untyped-def]  # the misuse under test
    return x


def make_nested() -> Body:
    async def nested(x: int) -> int:
        return x

    return nested  # type: ignore[return-value]  # the misuse under test


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda x: x, "a lambda has no name"),
        (partial(add, 1), "its arguments are hidden"),
        (Holder().method, "a bound method carries state"),
        (make_nested(), "a nested function closes over state"),
        (no_annotation, "has no annotation"),
        (act, "it is a tool; use run.call"),
        (len, "not a plain function"),
    ],
)
async def test_a_callable_without_a_stable_name_is_refused_with_the_reason(rig: Rig, fn: object, says: str) -> None:
    async def body(run: Run[None]) -> object:
        return await run.step(fn, 1)  # type: ignore[call-overload]  # the misuse under test

    await rig.settle(await begin(rig, body))
    row = await rig.row(RUN)
    assert row.status == "failed"
    assert says in row.detail


async def test_a_function_is_not_a_tool(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await run.call(add, 1)  # type: ignore[arg-type]  # the misuse under test

    await rig.settle(await begin(rig, body))
    assert "not a registered tool" in (await rig.row(RUN)).detail


async def test_two_functions_of_one_name_in_a_run_are_refused(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        await run.step(add, 1)
        return await run.options(name="add").step(double, 1)

    await rig.settle(await begin(rig, body))
    assert "share the name" in (await rig.row(RUN)).detail


# ---- turns


async def in_turns(run: Run[None]) -> object:
    await run.call(act, "prologue")
    async for state in run.turns(State()):
        if state.n == 3:
            return state.seen
        state.n += 1
        state.seen.append(str(await run.step(add, state.n)))
        await run.call(act, f"turn {state.n}")
    return "never"


async def test_the_prologue_is_kept_and_the_calls_of_a_turn_leave_the_window(rig: Rig) -> None:
    rig.evict = True
    row = await rig.until_ended(await begin(rig, in_turns), RUN)
    assert row.status == "succeeded"
    assert [arguments["what"] for _, arguments in rig.sent] == ["prologue", "turn 1", "turn 2", "turn 3"]
    assert does.steps == ["add 1", "add 2", "add 3"]
    window = await rig.store.window(row.tenant, row.id)
    called = [entry.key for entry in window if entry.kind == "intent"]
    assert called == ["/act/0"], "the prologue alone: the last turn has made no call"


async def test_operations_of_turns_have_keys_of_their_own(rig: Rig) -> None:
    await rig.settle(await begin(rig, in_turns))
    keys = [operation.key for operation in await rig.operations(RUN)]
    assert len(keys) == 4
    assert len(set(keys)) == 4


async def test_a_turn_may_not_end_with_recorded_calls_unconsumed(rig: Rig) -> None:
    async def longer(run: Run[None]) -> object:
        async for state in run.turns(State()):
            await run.step(add, 1)
            await run.call(act, "block")
            state.n += 1
        return "never"

    async def shorter(run: Run[None]) -> object:
        async for state in run.turns(State()):
            await run.step(add, 1)
            state.n += 1
        return "never"

    does.tool = _lost
    await rig.settle(await begin(rig, longer))
    await _retry(rig)
    await rig.settle(await carry_on(rig, shorter))
    row = await rig.row(RUN)
    assert row.reason == "diverged"
    assert "the code asks for the end of the turn" in row.detail


async def test_another_initial_state_diverges(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async for _ in run.turns(State()):
            await run.call(act, "block")
        return "never"

    async def other(run: Run[None]) -> object:
        async for _ in run.turns(State(n=1)):
            await run.call(act, "block")
        return "never"

    does.tool = _lost
    await rig.settle(await begin(rig, body))
    await _retry(rig)
    await rig.settle(await carry_on(rig, other))
    assert "another initial state" in (await rig.row(RUN)).detail


async def test_a_run_has_one_loop_of_turns(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async for _ in run.turns(State()):
            break
        async for _ in run.turns(State()):
            break
        return "never"

    await rig.settle(await begin(rig, body))
    assert "a run has one loop of turns" in (await rig.row(RUN)).detail


async def test_a_turn_ends_in_the_root_scope_only(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async def in_branch() -> None:
            async for _ in run.turns(State()):
                break

        return await run.gather(in_branch())

    await rig.settle(await begin(rig, body))
    assert "while the branch" in (await rig.row(RUN)).detail


# ---- values


async def test_values_are_the_same_on_every_replay(rig: Rig) -> None:
    seen: list[object] = []

    async def body(run: Run[None]) -> object:
        values = (run.now(), run.random(), run.uuid())
        seen.append(values)
        await run.step(add, 1)
        await run.step(add, 2)
        return values

    rig.evict = True
    await rig.until_ended(await begin(rig, body), RUN)
    assert len(seen) > 1
    assert len(set(map(str, seen))) == 1
