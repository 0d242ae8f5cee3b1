"""What a person can accept of a divergence: at a step, once for all builds to come, and never more than that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import cast

import pytest

from outlive import Run
from outlive.app.audit import Progress, verify_run
from outlive.app.decide import adopt
from outlive.engine.adoption import Acceptance, choices
from outlive.engine.control import Control
from outlive.errors import NotAdoptable, StepFailed, WrongState
from outlive.log import kinds
from outlive.log.difference import Adoption
from outlive.log.fold import fold
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.store.survey import Surveyed
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, State, act, add, begin, carry_on, does, double, fails, look

_HOUR = timedelta(hours=1)
_begun = asyncio.Event()


async def adopts(rig: Rig, how: Adoption, at: int | None = None) -> kinds.Adopted:
    control = Control(rig.store, rig.clock, Owner("person"))
    return await adopt(control, DEFAULT_TENANT, RUN, Acceptance(how, "Ada", "we have looked at it", at))


async def offered(rig: Rig) -> list[Adoption]:
    found = fold(await rig.store.window(DEFAULT_TENANT, RunId(RUN)))
    return [one.how for one in choices(found, RUN)]


async def old(run: Run[None]) -> object:
    """The recorded code: two steps and an operation, then it waits."""
    one = await run.step(add, 1)
    two = await run.step(double, one)
    paid = await run.call(act, "it")
    await run.sleep(_HOUR)
    return [one, two, paid]


async def _paid_and_slept(run: Run[None], two: int) -> object:
    paid = await run.call(act, "it")
    await run.sleep(_HOUR)
    return [two, paid]


async def _diverged(rig: Rig, code: Body, before: Body = old) -> None:
    """A run of `before` that waits, and a build that cannot go on with it."""
    await rig.settle(await begin(rig, before, code="old"))
    rig.clock.advance(_HOUR)
    await rig.settle(await carry_on(rig, code, code="new"))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged"), row.detail


async def _ends(rig: Rig, code: Body, *, evicting: bool = True) -> str | None:
    """Drive it to its end by the build that had diverged, unloading it after each record; what it gives."""
    rig.evict = evicting
    row = await rig.until_ended(await carry_on(rig, code, code="new"), RUN)
    assert row.status == "succeeded", row.detail
    assert [one async for one in verify_run(cast(Surveyed, rig.store), DEFAULT_TENANT, RUN, Progress())] == []
    return (await rig.entries(RUN))[-1].payload


async def dropped(run: Run[None]) -> object:
    """It does not double any more, and ends with another step."""
    one = await run.step(add, 1)
    paid = await run.call(act, "it")
    await run.sleep(_HOUR)
    return [one, paid, await run.step(double, 50)]


async def test_a_recorded_step_is_skipped(rig: Rig) -> None:
    await _diverged(rig, dropped)
    assert await offered(rig) == ["skip"]
    fact = await adopts(rig, "skip")
    assert (fact.how, fact.shown, fact.who, fact.why) == ("skip", "double(x=2)", "Ada", "we have looked at it")
    assert (await rig.row(RUN)).status == "ready"
    assert await _ends(rig, dropped) == "\"[2, 'did it', 100]\""
    assert does.steps == ["add 1", "double 2", "double 50"]
    assert rig.sent == [("act", {"what": "it"})]


async def inserted(run: Run[None]) -> object:
    one = await run.step(add, 1)
    more = [await run.step(double, 10), await run.step(double, 20)]
    two = await run.step(double, one)
    paid = await run.call(act, "it")
    await run.sleep(_HOUR)
    return [one, more, two, paid, await run.step(double, 30)]


async def test_new_steps_are_let_in_before_a_recorded_one_of_the_same_name(rig: Rig) -> None:
    await _diverged(rig, inserted)
    assert await offered(rig) == ["skip", "insert", "take-old", "run-again"]
    await adopts(rig, "insert")
    await rig.settle(await carry_on(rig, inserted, code="new"))
    row = await rig.row(RUN)
    assert row.reason == "diverged", "only the first was adopted"
    assert "double(x=20)" in row.detail
    await adopts(rig, "insert")
    assert await _ends(rig, inserted) == "\"[2, [20, 40], 4, 'did it', 60]\""
    assert does.steps == ["add 1", "double 2", "double 10", "double 20", "double 30"]
    keys = [entry.key for entry in await rig.entries(RUN) if entry.kind == "step"]
    assert len(set(keys)) == 5


async def test_a_step_that_was_let_in_is_let_in_once(rig: Rig) -> None:
    async def twice(run: Run[None]) -> object:
        one = await run.step(add, 1)
        more = [await run.step(double, 10), await run.step(double, 10)]
        return [more, await _paid_and_slept(run, await run.step(double, one))]

    await _diverged(rig, twice)
    await adopts(rig, "insert")
    await rig.settle(await carry_on(rig, twice, code="new"))
    assert (await rig.row(RUN)).reason == "diverged"
    assert does.steps == ["add 1", "double 2", "double 10"]


async def endless() -> None:
    does.steps.append("endless")
    _begun.set()
    await asyncio.Event().wait()


async def gives_up() -> None:
    await _begun.wait()
    raise ValueError("no")


async def test_a_branch_that_was_cancelled_stays_so_behind_a_step_that_may_be_skipped(rig: Rig) -> None:
    """What is left to be skipped does not keep the cancellation from being told: nothing begins anew."""
    _begun.clear()

    def failing(branch: Callable[[Run[None]], Awaitable[None]]) -> Body:
        async def body(run: Run[None]) -> object:
            with suppress(StepFailed):
                await run.gather(branch(run), run.step(gives_up))
            await run.sleep(_HOUR)
            return None

        return body

    async def branch(run: Run[None]) -> None:
        await run.step(double, 2)
        await run.step(endless)

    async def branch_without(run: Run[None]) -> None:
        await run.step(double, 3)
        await run.step(endless)

    old_branch, branch_without.__name__ = branch, "branch"
    await _diverged(rig, failing(branch_without), failing(old_branch))
    await adopts(rig, "skip")
    assert await _ends(rig, failing(branch_without), evicting=False) == '"None"'
    assert does.steps == ["double 2", "endless"]


async def test_before_an_operation_a_step_is_let_in_and_the_operation_is_still_asked_for(rig: Rig) -> None:
    async def checks_first(run: Run[None]) -> object:
        one = await run.step(add, 1)
        two = await run.step(double, one)
        await run.step(double, 7)
        return await _paid_and_slept(run, two)

    await _diverged(rig, checks_first)
    assert await offered(rig) == ["insert"]
    await adopts(rig, "insert")
    assert await _ends(rig, checks_first) == "\"[4, 'did it']\""
    assert rig.sent == [("act", {"what": "it"})]


async def other_arguments(run: Run[None]) -> object:
    one = await run.step(add, 5)
    paid = [await run.step(double, 2), await run.call(act, "it")]
    await run.sleep(_HOUR)
    return [one, *paid]


async def test_the_old_result_is_taken_for_other_arguments(rig: Rig) -> None:
    await _diverged(rig, other_arguments)
    await adopts(rig, "take-old")
    assert await _ends(rig, other_arguments) == "\"[2, 4, 'did it']\""
    assert does.steps == ["add 1", "double 2"]


async def test_a_step_is_run_again_with_other_arguments(rig: Rig) -> None:
    await _diverged(rig, other_arguments)
    await adopts(rig, "run-again")
    assert await _ends(rig, other_arguments) == "\"[6, 4, 'did it']\""
    assert does.steps == ["add 1", "double 2", "add 5"]


async def test_the_old_result_is_taken_under_another_name(rig: Rig) -> None:
    async def renamed(run: Run[None]) -> object:
        one = await run.options(name="plus").step(add, 1)
        two = await run.step(double, one)
        return await _paid_and_slept(run, two)

    await _diverged(rig, renamed)
    await adopts(rig, "take-old")
    assert await _ends(rig, renamed) == "\"[4, 'did it']\""


@pytest.mark.parametrize("how", ["take-old", "skip"])
async def test_the_old_build_goes_on_after_an_adoption_that_recorded_nothing_new(rig: Rig, how: Adoption) -> None:
    """Rolling back still heals: what was adopted is allowed, not asked for."""
    await _diverged(rig, other_arguments if how == "take-old" else dropped)
    await adopts(rig, how)
    row = await rig.until_ended(await carry_on(rig, old, code="old"), RUN)
    assert row.status == "succeeded"
    assert does.steps == ["add 1", "double 2"]


async def test_a_step_that_was_let_in_is_recorded_work_like_any_other(rig: Rig) -> None:
    """A build that does not ask for it has diverged: nobody has accepted that it is dropped."""
    await _diverged(rig, inserted)
    await adopts(rig, "insert")
    await rig.settle(await carry_on(rig, inserted, code="new"))
    await rig.settle(await carry_on(rig, old, code="old"))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert "the log has double(x=10)" in row.detail
    await adopts(rig, "skip")
    assert (await rig.until_ended(await carry_on(rig, old, code="old"), RUN)).status == "succeeded"


async def no_operation(run: Run[None]) -> object:
    return await run.step(double, await run.step(add, 1))


async def another_operation(run: Run[None]) -> object:
    return [await run.step(double, await run.step(add, 1)), await run.call(act, "another")]


async def no_wait(run: Run[None]) -> object:
    return [await run.step(double, await run.step(add, 1)), await run.call(act, "it"), await run.step(add, 9)]


@pytest.mark.parametrize(
    ("code", "how", "says"),
    [
        (no_operation, "skip", r"entry \d+ is act\(what=\"it\"\): what a tool did stays recorded"),
        (another_operation, "skip", "what a tool did stays recorded"),
        (another_operation, "take-old", "what a tool did stays recorded"),
        (another_operation, "run-again", "what a tool did stays recorded"),
        (another_operation, "insert", r"the code asks for act\(what=\"another\"\), which is no step"),
        (no_wait, "skip", r"sleep\(1:00:00\): what the run waited for stays recorded"),
        (dropped, "insert", r"the code asks for act\(what=\"it\"\), which is no step"),
    ],
)
async def test_what_acted_or_was_told_is_never_adopted(rig: Rig, code: Body, how: Adoption, says: str) -> None:
    await _diverged(rig, code)
    before = await rig.entries(RUN)
    with pytest.raises(NotAdoptable, match=says):
        await adopts(rig, how)
    assert await rig.entries(RUN) == before
    assert (await rig.row(RUN)).status == "blocked"


async def test_what_a_read_tool_said_is_not_adopted(rig: Rig) -> None:
    async def looks(run: Run[None]) -> object:
        told = await run.call(look, "there")
        await run.sleep(_HOUR)
        return told

    await _diverged(rig, no_operation, looks)
    assert await offered(rig) == ["insert"]
    with pytest.raises(NotAdoptable, match="what a tool did stays recorded"):
        await adopts(rig, "skip")


async def test_only_where_a_build_has_diverged(rig: Rig) -> None:
    await rig.settle(await begin(rig, old, code="old"))
    with pytest.raises(WrongState, match="only a run that has diverged can be adopted"):
        await adopts(rig, "skip")
    rig.clock.advance(_HOUR)
    await rig.settle(await carry_on(rig, dropped, code="new"))
    [at] = [entry.seq for entry in await rig.entries(RUN) if entry.key == "/double/0"]
    with pytest.raises(NotAdoptable, match=f"no build has diverged at entry 1; entries where one has: {at}"):
        await adopts(rig, "skip", 1)
    assert (await adopts(rig, "skip", at)).entry == at


async def test_a_divergence_in_the_end_of_a_scope_can_only_be_skipped(rig: Rig) -> None:
    async def gathers(run: Run[None]) -> object:
        told = await run.gather(_branch(run, 2))
        await run.sleep(_HOUR)
        return told

    async def once(run: Run[None]) -> object:
        told = await run.gather(_branch(run, 1))
        await run.sleep(_HOUR)
        return told

    await _diverged(rig, once, gathers)
    assert await offered(rig) == ["skip"]
    with pytest.raises(NotAdoptable, match="the code asks for nothing in the place of double"):
        await adopts(rig, "insert")
    await adopts(rig, "skip")
    assert await _ends(rig, once) == '"(2,)"'


async def _branch(run: Run[None], steps: int) -> int:
    told = await run.step(add, 1)
    return told if steps == 1 else await run.step(double, told)


async def test_in_a_turn_it_holds_for_that_turn_and_before_the_loop_it_is_refused(rig: Rig) -> None:
    def looping(first: int, each: int) -> Body:
        async def body(run: Run[None]) -> object:
            await run.step(add, first)
            async for state in run.turns(State()):
                await run.step(double, each + state.n)
                await run.sleep(_HOUR)
                if state.n == 2:
                    return None
                state.n += 1
            return None

        return body

    await _diverged(rig, looping(1, 20), looping(1, 10))
    await adopts(rig, "run-again")
    await rig.settle(await carry_on(rig, looping(1, 20), code="new"))
    assert (await rig.row(RUN)).status == "waiting", (await rig.row(RUN)).detail
    rig.clock.advance(_HOUR)
    await rig.settle(await carry_on(rig, looping(2, 20), code="newer"))
    assert (await rig.row(RUN)).reason == "diverged"
    with pytest.raises(NotAdoptable, match="is before the loop of turns"):
        await adopts(rig, "take-old")
    assert await offered(rig) == []
    row = await rig.until_ended(await carry_on(rig, looping(1, 20), code="newest"), RUN)
    assert row.status == "succeeded"
    assert does.steps == ["add 1", "double 10", "double 20", "double 21", "double 22"]


async def test_an_old_result_that_was_an_error_or_has_another_type_is_told_as_it_is(rig: Rig) -> None:
    async def failing(run: Run[None]) -> object:
        try:
            await run.step(fails, "no")
        except Exception:  # noqa: BLE001 - whatever it is
            await run.sleep(_HOUR)
        return None

    async def other(run: Run[None]) -> object:
        try:
            return await run.step(add, 1)
        except Exception as error:  # noqa: BLE001 - whatever it is
            await run.sleep(_HOUR)
            return str(error)

    await _diverged(rig, other, failing)
    await adopts(rig, "take-old")
    assert await _ends(rig, other) == '"step fails failed: ValueError: no"'
