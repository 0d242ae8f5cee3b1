"""What a rehearsal has found is accepted before a build runs into it, while the old one still drives the run."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from outlive import Operation, Run
from outlive.app.audit import Progress, verify_run
from outlive.app.decide import adopt
from outlive.engine.adoption import Acceptance, Step, difference
from outlive.engine.control import Control
from outlive.errors import NotAdoptable, WrongState
from outlive.log import kinds
from outlive.log.difference import Adoption
from outlive.model.ids import DEFAULT_TENANT, Owner
from outlive.store.survey import Surveyed
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, State, act, add, begin, carry_on, does, double
from tests.engine.test_adopted_steps import CASES, HOUR, old, rehearsed, renamed, waits


async def checks_once(run: Run[None]) -> object:
    """One new step: what comes behind it, no rehearsal can know."""
    one = await run.step(add, 1)
    two = await run.step(double, one)
    await run.options(name="check").step(double, 30)
    paid = await run.call(act, "it")
    await run.sleep(HOUR)
    return [one, two, paid]


NEW: dict[Adoption, Body] = {
    "skip": CASES["removed"][0], "take-old": renamed, "run-again": CASES["replaced"][0], "insert": checks_once,
}  # fmt: skip
GIVES: dict[Adoption, str] = {
    "skip": "[2, 'did it']", "take-old": "[2, 4, 'did it']", "run-again": "[6, 4, 'did it']",
    "insert": "[2, 4, 'did it']",
}  # fmt: skip


async def says(rig: Rig, how: Adoption, at: int | None, step: Step | None) -> kinds.Adopted:
    control = Control(rig.store, rig.clock, Owner("person"))
    return await adopt(control, DEFAULT_TENANT, RUN, Acceptance(how, "Ada", "rehearsed", at, step))


async def accepts_all(rig: Rig, how: Adoption, body: Body | None = None) -> int:
    """Accept whatever a rehearsal of the new code finds, in one way; how often."""
    for count in range(5):
        ended = await rehearsed(await carry_on(rig, body or NEW[how], code="new"))
        where = difference(ended.diverged)
        if where is None:
            assert ended.how == "held"
            return count
        [call] = [one for one in await rig.entries(RUN) if one.seq == where.entry]
        fact = kinds.read(call)
        assert isinstance(fact, kinds.Call)
        step = Step(fact.name) if how == "skip" else Step(where.name, where.digest)
        done = await says(rig, how, where.entry, step)
        assert (done.how, done.entry) == (how, where.entry)
    raise AssertionError("it does not come to an end")


async def ends(rig: Rig, body: Body, code: str) -> str | None:
    row = await rig.until_ended(await carry_on(rig, body, code=code), RUN)
    assert row.status == "succeeded", row.detail
    await sound(rig)
    assert rig.sent == [("act", {"what": "it"})]
    assert "blocked" not in await rig.kinds(RUN)
    return (await rig.entries(RUN))[-1].payload


async def sound(rig: Rig) -> None:
    assert [one async for one in verify_run(cast(Surveyed, rig.store), DEFAULT_TENANT, RUN, Progress())] == []


@pytest.mark.parametrize("build", ["old", "new"])
@pytest.mark.parametrize("how", NEW)
async def test_what_is_accepted_ahead_lets_the_new_build_in_and_the_old_one_go_on(
    either: Rig, how: Adoption, build: str
) -> None:
    """What may be skipped is still matched by the build that asks for it; what was let in, it does not ask for."""
    rig = either
    await waits(rig, old)
    before = await rig.row(RUN)
    assert await accepts_all(rig, how) >= 1
    after = await rig.row(RUN)
    assert (after.status, after.reason, after.wake_at) == (before.status, before.reason, before.wake_at)
    await sound(rig)
    if build == "old":
        assert await ends(rig, old, "old") == "\"[2, 4, 'did it']\""
        assert does.steps == ["add 1", "double 2"]
    else:
        assert await ends(rig, NEW[how], "new") == f'"{GIVES[how]}"'


async def test_the_old_build_may_record_more_before_the_new_one_comes(rig: Rig) -> None:
    def longer(first: bool) -> Body:
        async def body(run: Run[None]) -> object:
            one = await run.options(name="check").step(double, 9) if first else 0
            two = await run.step(add, 1)
            await run.sleep(HOUR)
            paid = await run.call(act, "it")
            await run.sleep(HOUR)
            return [one, two, paid]

        return body

    await waits(rig, longer(first=False))
    assert await accepts_all(rig, "insert", longer(first=True)) == 1
    await rig.settle(await carry_on(rig, longer(first=False), code="old"))
    assert [one[0] for one in rig.sent] == ["act"]
    assert await ends(rig, longer(first=True), "new") == "\"[18, 2, 'did it']\""


async def test_a_paused_run_and_one_that_is_blocked_stay_so(rig: Rig) -> None:
    async def lost(op: Operation[None]) -> str:
        raise ConnectionError("the answer was lost")

    async def unlucky(run: Run[None]) -> object:
        return [await run.step(add, 1), await run.call(act, "it")]

    does.tool = lost
    await rig.settle(await begin(rig, unlucky, code="old"))
    assert (await rig.row(RUN)).reason == "operation in doubt"
    [at] = [one.seq for one in await rig.entries(RUN) if one.key == "/add/0"]
    await says(rig, "skip", at, Step("add"))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert [one.status for one in await rig.operations(RUN)] == ["unknown"]
    await sound(rig)


@pytest.mark.parametrize(
    ("how", "key", "step", "why"),
    [
        ("skip", "/act/0", Step("act"), "what a tool did stays recorded"),
        ("run-again", "/act/0", Step("note", "0"), "what a tool did stays recorded"),
        ("skip", "/add/0", Step("price"), r"is add\(x=1, y=1\), and not price"),
        ("skip", None, Step("add"), "no call that the run stands behind was recorded first as entry 999"),
        ("insert", "/add/0", Step("check"), "say the digest of the arguments of check"),
    ],
)
async def test_what_could_not_be_adopted_is_refused_ahead_too(
    rig: Rig, how: Adoption, key: str | None, step: Step, why: str
) -> None:
    await waits(rig, old)
    before = await rig.entries(RUN)
    at = next((one.seq for one in before if one.key == key), 999)
    with pytest.raises(NotAdoptable, match=why):
        await says(rig, how, at, step)
    with pytest.raises(NotAdoptable, match="say at which entry"):
        await says(rig, how, None, step)
    assert await rig.entries(RUN) == before


async def test_a_run_that_is_driven_or_has_ended_is_not_adopted_ahead(rig: Rig) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def busy(op: Operation[None]) -> str:
        begun.set()
        await goes_on.wait()
        return "did it"

    does.tool = busy
    worker = await begin(rig, CASES["removed"][0], code="old")
    await worker.claim()
    await begun.wait()
    with pytest.raises(WrongState, match="only a run that nobody drives can be adopted"):
        await says(rig, "skip", 2, Step("add"))
    goes_on.set()
    await worker.idle()
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    with pytest.raises(WrongState, match="only a run that nobody drives can be adopted"):
        await says(rig, "skip", 2, Step("add"))


async def test_in_a_loop_it_holds_for_the_present_turn_and_is_refused_for_others(rig: Rig) -> None:
    def looping(each: int) -> Body:
        async def body(run: Run[None]) -> object:
            await run.step(add, 1)
            async for state in run.turns(State()):
                await run.step(double, each)
                await run.sleep(HOUR)
                if state.n == 1:
                    return None
                state.n += 1
            return None

        return body

    await waits(rig, looping(10))
    entries = await rig.entries(RUN)
    [prologue] = [one.seq for one in entries if one.key == "/add/0"]
    [turn] = [one.seq for one in entries if one.key == "/double/0"]
    with pytest.raises(NotAdoptable, match="those of the present turn can be adopted"):
        await says(rig, "skip", prologue, Step("add"))
    await says(rig, "skip", turn, Step("double"))
    await rig.settle(await carry_on(rig, looping(10), code="old"))
    with pytest.raises(NotAdoptable, match="those of the present turn can be adopted"):
        await says(rig, "skip", turn, Step("double"))
    assert await ends_well(rig, looping(10))


async def ends_well(rig: Rig, body: Body) -> bool:
    return (await rig.until_ended(await carry_on(rig, body, code="old"), RUN)).status == "succeeded"
