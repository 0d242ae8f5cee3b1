"""Rules in code about steps: the engine writes what a person would have written, and the run goes on at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from outlive import Run
from outlive.app.audit import Progress, verify_run
from outlive.engine.adoption import by_rule
from outlive.engine.authority import DatabaseTime
from outlive.engine.definition import AgentSpec
from outlive.engine.rehearsal import Rehearsed, Subject, rehearse
from outlive.engine.worker import Worker
from outlive.errors import Diverged
from outlive.harness.function import FunctionHarness
from outlive.log import kinds
from outlive.log.fold import fold
from outlive.model.clock import SystemClock
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.survey import Surveyed
from outlive.versions import Adopts
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, State, act, add, base, begin, does, double, put, subject

HOUR = timedelta(hours=1)


def of(rig: Rig, body: Body, rules: Mapping[str, Adopts], *, version: str = "3", code: str = "new") -> Worker:
    """A worker of a release that has these rules."""
    does.body = body
    worker = rig.worker(rig.app(base), code=code)
    worker.agents = {"subject": AgentSpec("subject", version, subject.fn, adopts=rules)}
    return worker


async def waits(rig: Rig, body: Body) -> None:
    """A run that version 1 has begun, and whose wait is over."""
    await rig.settle(await begin(rig, body, code="old"))
    assert (await rig.row(RUN)).status == "waiting", (await rig.row(RUN)).detail
    rig.clock.advance(HOUR)


async def ends(rig: Rig, worker: Worker) -> str | None:
    row = await rig.until_ended(worker, RUN)
    assert row.status == "succeeded", row.detail
    assert [one async for one in verify_run(cast(Surveyed, rig.store), DEFAULT_TENANT, RUN, Progress())] == []
    return (await rig.entries(RUN))[-1].payload


async def adopted(rig: Rig) -> list[tuple[str, str, str, str]]:
    facts = [kinds.read(one) for one in await rig.entries(RUN)]
    return [(one.how, one.shown, one.who, one.why) for one in facts if isinstance(one, kinds.Adopted)]


async def diverges(rig: Rig, worker: Worker, says: str = "") -> None:
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert says in row.detail
    assert await adopted(rig) == []


async def old(run: Run[None]) -> object:
    one = await run.step(add, 1)
    two = await run.step(double, one)
    paid = await run.call(act, "it")
    await run.sleep(HOUR)
    return [one, two, paid]


async def _rest(run: Run[None], *given: object) -> object:
    paid = await run.call(act, "it")
    await run.sleep(HOUR)
    return [*given, paid]


async def dropped(run: Run[None]) -> object:
    return await _rest(run, await run.step(add, 1))


async def renamed(run: Run[None]) -> object:
    one = await run.options(name="plus").step(add, 1)
    return await _rest(run, one, await run.options(name="twice").step(double, one))


async def replaced(run: Run[None]) -> object:
    one = await run.step(add, 5)
    return await _rest(run, one, await run.step(double, 2))


async def checks(run: Run[None]) -> object:
    """Two new steps, one of them right before what has acted."""
    await run.options(name="check").step(double, 10)
    one = await run.step(add, 1)
    two = await run.step(double, one)
    await run.options(name="check").step(double, 30)
    return await _rest(run, one, two)


WHY = "release 3"
CASES: dict[str, tuple[Body, Adopts, list[str], str, list[str]]] = {
    "removed": (dropped, Adopts(removed=("double",), why=WHY), ["skip"], "[2, 'did it']", []),
    "renamed": (
        renamed, Adopts(renamed={"add": "plus", "double": "twice"}, why=WHY), ["take-old"] * 2, "[2, 4, 'did it']", [],
    ),
    "replaced": (
        replaced, Adopts(replaced={"add": "add"}, why=WHY), ["run-again"], "[6, 4, 'did it']", ["add 5"],
    ),
    "added": (
        checks, Adopts(added=("check",), why=WHY), ["insert"] * 2, "[2, 4, 'did it']", ["double 10", "double 30"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("evict", [False, True])
@pytest.mark.parametrize("case", CASES)
async def test_what_a_rule_says_of_a_step_is_adopted_at_once(either: Rig, case: str, evict: bool) -> None:
    rig, (body, rule, ways, result, steps) = either, CASES[case]
    await waits(rig, old)
    rig.evict = evict
    assert await ends(rig, of(rig, body, {"1": rule})) == f'"{result}"'
    told = await adopted(rig)
    assert [how for how, *_ in told] == ways
    assert {(who, why) for *_, who, why in told} == {("subject version 3", WHY)}
    assert does.steps == ["add 1", "double 2", *steps]
    assert rig.sent == [("act", {"what": "it"})]
    assert "blocked" not in await rig.kinds(RUN)


async def test_all_kinds_of_changes_at_once(rig: Rig) -> None:
    async def other(run: Run[None]) -> object:
        await run.options(name="check").step(double, 10)
        one = await run.options(name="plus").step(add, 1)
        return await _rest(run, one)

    await waits(rig, old)
    rule = Adopts(renamed={"add": "plus"}, removed=("double",), added=("check",))
    assert await ends(rig, of(rig, other, {"1": rule})) == "\"[2, 'did it']\""
    assert [how for how, *_ in await adopted(rig)] == ["insert", "take-old", "skip"]


@pytest.mark.parametrize("case", CASES)
async def test_a_rule_is_never_applied_to_runs_of_another_version(rig: Rig, case: str) -> None:
    body, rule, *_ = CASES[case]
    await waits(rig, old)
    await diverges(rig, of(rig, body, {"2": rule}))


async def test_the_old_build_goes_on_after_what_a_rule_has_skipped_or_taken(rig: Rig) -> None:
    for body, rule in ((dropped, CASES["removed"][1]), (renamed, CASES["renamed"][1])):
        await waits(rig, old)
        worker = of(rig, body, {"1": rule})
        await worker.claim()
        await worker.idle()
        assert await adopted(rig)
        row = await rig.until_ended(of(rig, old, {}, version="1", code="old"), RUN)
        assert row.status == "succeeded"
        return


async def other_tool(run: Run[None]) -> object:
    one = await run.step(add, 1)
    two = await run.step(double, one)
    return [one, two, await run.call(put, "it")]


async def step_for_tool(run: Run[None]) -> object:
    one = await run.step(add, 1)
    two = await run.step(double, one)
    return [one, two, await run.options(name="note").step(double, 9)]


async def no_wait(run: Run[None]) -> object:
    one = await run.step(add, 1)
    two = await run.step(double, one)
    return [one, two, await run.call(act, "it")]


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (other_tool, Adopts(renamed={"act": "put"})),
        (other_tool, Adopts(replaced={"act": "put"})),
        (other_tool, Adopts(removed=("act",), added=("put",))),
        (step_for_tool, Adopts(removed=("act",), replaced={"double": "note"})),
        (step_for_tool, Adopts(renamed={"act": "note"})),
        (no_wait, Adopts(removed=("sleep(1:00:00)", "sleep"))),
    ],
)
async def test_what_acted_or_was_waited_for_is_never_adopted_by_a_rule(either: Rig, body: Body, rule: Adopts) -> None:
    await waits(either, old)
    await diverges(either, of(either, body, {"1": rule}), "the log has")
    assert either.sent == [("act", {"what": "it"})]


async def test_a_new_step_before_what_has_acted_does_not_let_that_go(rig: Rig) -> None:
    await waits(rig, old)
    await rig.settle(of(rig, step_for_tool, {"1": Adopts(added=("note",))}))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert "the log has act(" in row.detail and "the end of the agent" in row.detail
    assert [how for how, *_ in await adopted(rig)] == ["insert"]


async def test_a_renamed_step_with_other_arguments_is_for_people_to_decide(rig: Rig) -> None:
    async def other(run: Run[None]) -> object:
        return await _rest(run, await run.options(name="plus").step(add, 7))

    await waits(rig, old)
    await diverges(rig, of(rig, other, {"1": Adopts(renamed={"add": "plus"})}), "plus(x=7")


async def test_code_that_asks_for_something_else_each_time_is_tried_once(rig: Rig) -> None:
    tries: list[int] = []

    async def fickle(run: Run[None]) -> object:
        tries.append(len(tries))
        await run.options(name="check").step(double, 100 + len(tries))
        return await old(run)

    await waits(rig, old)
    await rig.settle(of(rig, fickle, {"1": Adopts(added=("check",))}))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert len(tries) == 2
    assert does.steps == ["add 1", "double 2"]


@pytest.mark.parametrize("how", ["renamed", "replaced"])
async def test_so_is_a_step_that_takes_the_place_of_another(rig: Rig, how: str) -> None:
    tries: list[int] = []

    async def fickle(run: Run[None]) -> object:
        tries.append(len(tries))
        return await _rest(run, await run.options(name="plus").step(add, 1 if how == "renamed" else len(tries)))

    rule = Adopts(renamed={"add": "plus"}) if how == "renamed" else Adopts(replaced={"add": "plus"})
    await waits(rig, old)
    await rig.settle(of(rig, fickle, {"1": rule}))
    assert (await rig.row(RUN)).reason == "diverged"
    assert len(tries) <= 3
    assert not [one for one in does.steps if one not in ("add 1", "double 2")]


async def _priced(run: Run[None], name: str, what: int) -> int:
    return await run.options(name=name).step(double, what)


async def test_branches_that_are_known_by_the_name_of_their_step_stay_as_they_are(rig: Rig) -> None:
    """What opens branches is no step: `renamed` of the agent knows such names, a rule does not."""

    def gathers(name: str) -> Body:
        async def body(run: Run[None]) -> object:
            told = await run.gather(run.options(name=name).step(double, 3), run.step(add, 1))
            await run.sleep(HOUR)
            return told

        return body

    await waits(rig, gathers("price"))
    await diverges(rig, of(rig, gathers("quote"), {"1": Adopts(renamed={"price": "quote"})}), "gather(quote")


async def test_in_branches_and_turns_a_rule_holds_for_what_is_recorded_there(rig: Rig) -> None:
    def looping(name: str) -> Body:
        async def body(run: Run[None]) -> object:
            async for state in run.turns(State()):
                told = await run.gather(_priced(run, name, 3 + state.n), run.step(add, state.n))
                await run.sleep(HOUR)
                state.n, state.seen = state.n + 1, [*state.seen, str(told)]
                if state.n == 2:
                    return state.seen
            return None

        return body

    await waits(rig, looping("price"))
    rule = Adopts(renamed={"price": "quote"})
    assert await ends(rig, of(rig, looping("quote"), {"1": rule})) == "\"['(6, 1)', '(8, 2)']\""
    assert [how for how, *_ in await adopted(rig)] == ["take-old"]
    assert does.steps == ["double 3", "add 0", "double 4", "add 1"]


async def test_what_is_recorded_after_a_rule_was_applied_is_of_the_new_version(rig: Rig) -> None:
    """A later release's rule for version 1 says nothing of it; the one for version 3 does."""

    async def longer(run: Run[None]) -> object:
        one = await run.options(name="plus").step(add, 1)
        two = await run.step(double, one)
        paid = await run.call(act, "it")
        await run.sleep(HOUR)
        last = await run.options(name="double").step(double, 50)
        await run.sleep(HOUR)
        return [one, two, paid, last]

    async def later(run: Run[None]) -> object:
        one = await run.options(name="plus").step(add, 1)
        await _rest(run)
        await run.sleep(HOUR)
        return one

    await waits(rig, old)
    await rig.settle(of(rig, longer, {"1": Adopts(renamed={"add": "plus"})}))
    assert (await rig.row(RUN)).status == "waiting", (await rig.row(RUN)).detail
    rig.clock.advance(HOUR)
    only_one = {"1": Adopts(removed=("double",))}
    await rig.settle(of(rig, later, only_one, version="4", code="four"))
    row = await rig.row(RUN)
    assert row.reason == "diverged" and "double(x=50)" in row.detail
    both = {**only_one, "3": Adopts(removed=("double",))}
    assert await ends(rig, of(rig, later, both, version="4", code="four, mended")) == '"2"'


@pytest.mark.parametrize("case", CASES)
async def test_a_rehearsal_goes_on_as_the_rules_let_an_attempt_go_on(rig: Rig, case: str) -> None:
    """It holds where that would go on live, and says what was adopted; nothing is written."""
    body, rule, ways, *_ = CASES[case]
    await waits(rig, old)
    before = await rig.entries(RUN)
    ended = await rehearsed(of(rig, body, {"1": rule}))
    assert ended.how == "held", ended.report
    assert [one.split(" adopts ")[1].split()[0] for one in ended.changed] == ways[: len(ended.changed)]
    assert ended.changed
    assert (await rehearsed(of(rig, body, {"2": rule}))).how == "diverged"
    assert await rig.entries(RUN) == before


async def rehearsed(worker: Worker) -> Rehearsed:
    row = await worker.store.run(DEFAULT_TENANT, RunId(RUN))
    assert row is not None
    log = fold(await worker.store.window(DEFAULT_TENANT, row.id))
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    kit = replace(worker.kit, clock=SystemClock(), time=DatabaseTime(SystemClock()))
    of = Subject(row, log, await worker.store.key(DEFAULT_TENANT))
    return await rehearse(kit, FunctionHarness(), worker.agents["subject"], of, limit_s=30, enough=never)


async def test_the_rule_is_a_pure_function_of_the_log_and_the_divergence(rig: Rig) -> None:
    await waits(rig, old)
    log = fold(await rig.store.window(DEFAULT_TENANT, RunId(RUN)))
    [call] = [one for one in log.current[""].calls if one.name == "double"]
    diverged = Diverged(has="", asks="act", line="", seq=call.seq, call=("", "operation", "act", "0"))
    agent = AgentSpec("subject", "3", subject.fn, adopts={"1": Adopts(removed=("double",))})
    item = by_rule(agent, log, diverged)
    assert item is not None and isinstance(item.fact, kinds.Adopted)
    assert (item.fact.how, item.fact.entry, item.key) == ("skip", call.seq, "/double/0")
    assert by_rule(AgentSpec("subject", "3", subject.fn), log, diverged) is None
    assert by_rule(agent, log, None) is None
    assert by_rule(agent, log, Diverged(has="a state", asks="another", line="", seq=call.seq)) is None
