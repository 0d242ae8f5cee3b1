"""Who asks for a rollback: the agent itself, its failure, a person; and who may not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation, Outlive, Run, Tool
from outlive.engine import undoing
from outlive.engine.definition import OnFailure
from outlive.errors import BadArguments, Refused, RunFailed, WrongState
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.run import NewRun, RunRow
from tests.engine import undo
from tests.engine.awaiting import look_into_inbox
from tests.engine.rig import Rig
from tests.engine.undo import BACK, RUN, ask, begin, careful, ended, loses, one, order, rolled_back, shop


@pytest.fixture(autouse=True)
def fresh() -> None:
    undo.reset()


async def gives_up(run: Run[None]) -> object:
    await run.call(undo.charge, "book")
    await run.rollback("nothing is left on the shelf")


async def stumbles(run: Run[None]) -> object:
    await run.call(undo.charge, "book")
    raise LookupError("no such shelf")


async def test_an_agent_asks_for_the_rollback_of_its_own_run(either: Rig) -> None:
    rig, worker = either, await begin(either, gives_up)
    await rolled_back(rig, worker, RUN)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == ["charge book", "refund book"]
    with pytest.raises(RunFailed) as failed:
        await rig.app(undo.app).handle(order, RUN).result()
    assert (failed.value.type, failed.value.message) == ("RolledBack", "nothing is left on the shelf")
    assert "rolling back" in await rig.kinds(RUN)
    lines = [line.text for line in await rig.lines(BACK)]
    assert any("book" in line for line in lines)


async def test_clean_up_in_the_agent_does_not_act_after_it_has_asked_for_its_rollback(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            await run.rollback("enough")
        except BaseException:
            await run.call(undo.charge, "more")
            raise

    worker = await begin(rig, body)
    await rolled_back(rig, worker, RUN)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == []


async def test_a_worker_that_dies_after_it_was_asked_for_has_asked_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies between the rollback and the end of the run: the rollback waits, and the run is driven to its end."""
    worker = await begin(rig, gives_up)
    started = asyncio.Event()
    start = rig.store.start

    async def starts(run: NewRun, *, now: int | None = None, within: object = None) -> RunRow:
        row = await start(run, now=now, within=within)
        started.set()
        await asyncio.Event().wait()
        return row

    monkeypatch.setattr(rig.store, "start", starts)
    await rig.crash(rig.mortal(rig.app(undo.app)), started)
    monkeypatch.undo()
    assert (await rig.row(RUN)).status == "running"
    assert (await rig.row(BACK)).status == "ready"
    await rig.take_over(worker)
    await rolled_back(rig, worker, RUN)
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == ["charge book", "refund book"]
    assert [row.id for row in await rig.store.rollbacks(DEFAULT_TENANT, RunId(RUN))] == [BACK]


async def test_code_that_does_not_ask_any_more_diverges(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollback is there; a release that goes on instead must not be undone behind its back."""
    await begin(rig, gives_up)
    started, start = asyncio.Event(), rig.store.start

    async def starts(run: NewRun, *, now: int | None = None, within: object = None) -> RunRow:
        row = await start(run, now=now, within=within)
        started.set()
        await asyncio.Event().wait()
        return row

    monkeypatch.setattr(rig.store, "start", starts)
    await rig.crash(rig.mortal(rig.app(undo.app)), started)
    monkeypatch.undo()

    async def goes_on(run: Run[None]) -> object:
        return await run.call(undo.charge, "book")

    shop.body = goes_on
    await rig.take_over(rig.worker(rig.app(undo.app), code="later"))
    assert (await rig.row(RUN)).reason == "diverged"


async def test_the_failure_of_a_careful_agent_undoes_what_it_did(either: Rig) -> None:
    rig, worker = either, await begin(either, stumbles, agent=careful)
    assert (await rolled_back(rig, worker, RUN)).status == "failed"
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == ["charge book", "refund book"]
    assert "no such shelf" in ((await rig.entries(BACK))[0].payload or "")


async def test_the_failure_of_another_agent_undoes_nothing(rig: Rig) -> None:
    worker = await begin(rig, stumbles)
    assert (await rolled_back(rig, worker, RUN)).status == "failed"
    assert await rig.store.run(DEFAULT_TENANT, RunId(BACK)) is None


async def test_a_careful_agent_that_did_nothing_has_nothing_to_undo(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        raise LookupError("at once")

    worker = await begin(rig, body, agent=careful)
    assert (await rolled_back(rig, worker, RUN)).status == "failed"
    assert await rig.store.run(DEFAULT_TENANT, RunId(BACK)) is None


async def test_a_failure_that_did_not_come_to_pass_undoes_nothing(rig: Rig) -> None:
    """The rollback was there, then the worker died, and the code that was deployed meanwhile does not fail."""

    async def succeeds(run: Run[None]) -> object:
        return await run.call(undo.charge, "book")

    worker = await ended(rig, succeeds)
    await undoing.after_failure(rig.store, rig.clock, await rig.row(RUN), "as it seemed")
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert shop.done == ["charge book"]
    assert (await one(rig, "charge")).status == "succeeded"


async def test_a_person_who_asks_while_a_failure_may_not_come_to_pass_is_not_put_off(either: Rig) -> None:
    """The rollback of a failure does nothing unless the run fails; whoever asks wants it undone in any case."""

    async def waits(run: Run[None]) -> object:
        await run.call(undo.charge, "book")
        await run.sleep(timedelta(days=30))
        return await run.call(undo.ship, "book")

    rig, worker = either, await begin(either, waits)
    await rig.settle(worker)
    await undoing.after_failure(rig.store, rig.clock, await rig.row(RUN), "as it seemed")
    await rig.settle(worker)
    asked = await ask(rig)
    assert (await ask(rig, why="again")).id == asked.id
    assert (await rolled_back(rig, worker, asked.id)).status == "succeeded"
    assert (await rig.row(RUN)).status == "cancelled"
    assert shop.done == ["charge book", "refund book"]
    assert (await rig.row(BACK)).ended


async def test_a_person_who_asks_cancels_a_run_that_cannot_end_although_it_has_asked_itself(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async def asks() -> None:
            await run.rollback("enough")

        return await run.gather(run.call(undo.ship, "book"), asks())

    shop.hooks["after ship"] = loses
    worker = await begin(rig, body)
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    asked = await ask(rig)
    assert (await rig.until_ended(worker, RUN)).status == "cancelled"
    assert (await rolled_back(rig, worker)).reason == "operation in doubt"
    later = await rig.row(asked.id)
    assert (later.status, later.reason) == ("waiting", f"the end of run {BACK}"), "one works at a time"
    await undo.decide(rig, await one(rig, "ship"), "happened", '"ok"')
    assert (await rolled_back(rig, worker)).status == "succeeded"
    assert (await rolled_back(rig, worker, asked.id)).status == "succeeded"
    assert shop.done == ["ship book", "recall book"]


@pytest.mark.parametrize("heard", [False, True])
async def test_a_rollback_that_is_about_to_be_cancelled_is_given_to_nobody(rig: Rig, heard: bool) -> None:
    worker, sending, go_on = await ended(rig), asyncio.Event(), asyncio.Event()

    async def hangs(op: Operation[None]) -> None:
        sending.set()
        await go_on.wait()

    shop.hooks["before recall"] = hangs
    await ask(rig)
    await worker.claim()
    await sending.wait()
    await rig.app(undo.app).handle(order, BACK).cancel(who="ada", why="too early")
    if heard:
        await look_into_inbox(rig, worker)
        assert "cancelling" in await rig.kinds(BACK)
    second = await ask(rig)
    assert second.id == f"{BACK}-2"
    go_on.set()
    await worker.idle()
    assert (await rolled_back(rig, worker, second.id)).status == "succeeded"
    assert (await rig.row(BACK)).status == ("cancelled" if heard else "succeeded")
    assert shop.done == undo.UNDONE


async def test_a_rollback_is_not_rolled_back(rig: Rig) -> None:
    worker = await ended(rig)
    await ask(rig)
    await rolled_back(rig, worker)
    with pytest.raises(WrongState, match="it is a rollback itself"):
        await ask(rig, BACK)


@pytest.mark.parametrize(("who", "why"), [("", "why"), ("ada", " "), ("ada", "x" * 5000)])
async def test_who_asks_says_who_and_why(rig: Rig, who: str, why: str) -> None:
    await ended(rig)
    with pytest.raises(BadArguments, match="the reason is a text"):
        await rig.app(undo.app).handle(order, RUN).rollback(who=who, why=why)


async def test_an_id_that_somebody_else_has_is_left_alone(rig: Rig) -> None:
    worker = await ended(rig)
    await begin(rig, id=BACK)
    assert (await ask(rig)).id == f"{BACK}-2"
    assert (await rolled_back(rig, worker, f"{BACK}-2")).status == "succeeded"


async def test_a_run_that_blocks_when_it_is_cancelled_is_undone_when_it_has_ended(rig: Rig) -> None:
    shop.hooks["after ship"] = loses
    worker = await begin(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "blocked"
    await ask(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"


# ---- declarations


async def undoes(op: Operation[None]) -> None:
    """What is declared below."""


async def takes_more(op: Operation[None], what: str) -> None:
    """Nobody would say what."""


async def stumbles_again(run: Run[None], task: str) -> str:
    raise LookupError(task)


def test_what_cannot_compensate_is_refused_when_it_is_declared() -> None:
    one: Outlive[None] = Outlive()
    harmless = one.tool(effect="read", name="harmless")(undoes)
    own = one.tool(effect="transactional", name="own")(undoes)
    answers = one.tool(name="answers", raises=(LookupError,))(undoes)
    more = one.tool(name="more")(takes_more)
    deep = one.tool(name="deep", compensate=undoes)(undoes)
    for given, why in (
        (harmless, "it is read"), (own, "it is transactional"), (answers, "it declares raises="),
        (more, "it takes its operation alone"), (takes_more, "it takes its operation alone"),
        (deep, "it is compensated itself"), ("undo", "say a function of an operation"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=why):
            one.tool(name="acts", compensate=cast("Tool[[], object]", given))(undoes)
    with pytest.raises(Refused, match="a read tool has done nothing"):
        one.tool(name="acts", effect="read", compensate=undoes)(undoes)
    with pytest.raises(Refused, match="say one of nothing, rollback"):
        one.agent(name="loose", on_failure=cast("OnFailure", "undo"))(stumbles_again)
    assert one.tool(name="acts", compensate=undoes)(undoes).compensation is not None


async def test_only_what_compensates_has_an_original(rig: Rig) -> None:
    async def peeks(op: Operation[None]) -> None:
        _ = op.original

    shop.hooks["before charge"] = peeks
    worker = await begin(rig)
    await rig.settle(worker)
    assert "only what compensates another operation has it" in str([line.text for line in await rig.lines(RUN)])


async def test_a_rollback_that_was_cancelled_can_be_asked_for_again(rig: Rig) -> None:
    worker = await ended(rig)
    shop.hooks["before refund"] = undo.refuses(3)
    await ask(rig)
    assert (await rolled_back(rig, worker)).reason == "compensation failed"
    await rig.app(undo.app).handle(order, BACK).cancel(who="ada", why="later")
    assert (await rig.row(BACK)).status == "cancelled"
    assert shop.count("recall book") == 1
    second = await ask(rig)
    rig.clock.advance(timedelta(minutes=1))
    assert (await rolled_back(rig, worker, second.id)).status == "succeeded"
    assert shop.done == undo.UNDONE, "what the first one has undone is not undone again"
