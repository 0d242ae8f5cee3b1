"""Somebody is told of what only a person can settle: in the commit that says it, once for each time that it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal, cast

import pytest

from outlive import Operation, Outlive, Run
from outlive.duty.letter import line
from outlive.engine.cancelling import Request
from outlive.engine.control import Control
from outlive.engine.notices import noticed
from outlive.engine.worker import owner_name
from outlive.log import kinds
from outlive.log.fold import Fold, step
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.notice import Notification
from outlive.model.run import Authority, Head, Status
from outlive.store.telling import Telling
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import Hold, operation
from tests.engine.rig import Rig, rig_at
from tests.engine.scenes import acts, crash_in_flight
from tests.engine.subject import RUN, base, begin, does

app: Outlive[None] = Outlive()
Acts = Literal["idempotent", "external", "transactional"]


@app.tool(timeout=timedelta(milliseconds=10))
async def charge(op: Operation[None], what: str) -> str:
    raise TimeoutError(what)


@app.agent()
async def charges(run: Run[None], what: str) -> str:
    return await run.call(charge, what)


@app.agent()
async def asks(run: Run[None], what: str) -> str:
    return await run.ask(f"is {what} right?", str, role="tax", timeout=timedelta(days=1))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig_at(tmp_path, max_lapses=1) as made:
        yield made


async def told(rig: Rig) -> list[Notification]:
    store = rig.store
    assert isinstance(store, Telling)
    found = await store.notifications(DEFAULT_TENANT, undelivered=True, limit=100)
    return [one.notification for one in reversed(found)]


def control(rig: Rig) -> Control:
    return Control(rig.store, rig.clock, owner_name(rig.clock))


async def test_an_unknown_outcome_and_the_block_for_it_are_told_each_time_that_they_happen(rig: Rig) -> None:
    here = rig.app(app)
    await here.start(charges, "INV-7", id="run")
    await rig.until_ended(rig.worker(here), "run")
    unknown, blocked = await told(rig)
    row = await rig.row("run")
    [operation] = await rig.operations("run")
    assert (unknown.kind, unknown.facts["operation"], unknown.facts["tool"]) == (
        "unknown operation",
        operation.id,
        "charge",
    )
    assert (blocked.kind, blocked.facts) == ("blocked", {"reason": row.reason, "detail": row.detail})
    entries = await rig.store.entries(DEFAULT_TENANT, RunId("run"))
    assert [entries[one.seq].kind for one in (unknown, blocked)] == ["unknown", "blocked"]
    await control(rig).retry(row, who="Ada", why="the bank is back")
    await rig.until_ended(rig.worker(here), "run")
    assert [one.kind for one in await told(rig)] == ["unknown operation", "blocked", "blocked"]


async def test_poison_is_told_by_its_name_with_the_doubt_that_it_leaves(rig: Rig) -> None:
    await crash_in_flight(rig, acts)
    await rig.take_over(rig.worker(rig.app(base)))
    assert (await rig.row(RUN)).reason == "poison"
    unknown, poison = await told(rig)
    assert (unknown.kind, poison.kind, poison.facts["reason"]) == ("unknown operation", "poison", "poison")


async def test_what_a_cancelled_run_leaves_in_doubt_is_told(rig: Rig) -> None:
    """Its call is still in flight when its grace is over."""
    in_flight, answers = asyncio.Event(), asyncio.Event()

    async def slow(op: Operation[None]) -> str:
        in_flight.set()
        await answers.wait()
        return "did"

    worker = await begin(rig, acts)
    does.tool = slow
    await worker.claim()
    await in_flight.wait()
    await control(rig).cancel(await rig.row(RUN), Request("cancel", "ada", "enough", 0), key="k")
    [drive] = worker._drives.values()
    drive.grip.unread()
    assert drive.attempt is not None
    while drive.attempt.fold.cancelling is None:
        await rig.row(RUN)
    await drive.attempt._over()
    while not (await rig.row(RUN)).ended:
        await rig.row(RUN)
    answers.set()
    await worker.idle()
    [notice] = await told(rig)
    [operation] = await rig.operations(RUN)
    assert (notice.kind, notice.facts["operation"]) == ("unknown operation", operation.id)
    entries = await rig.store.entries(DEFAULT_TENANT, RunId(RUN))
    assert entries[notice.seq].kind == "unknown"


def sent(effect: Acts) -> Fold:
    """A run with an operation that may have been sent."""
    made = Fold()
    intent = kinds.Intent(
        name="charge", operation="op-1", effect=effect, idempotency_key="k", attempt=1, send_by=9, first_sent_at=1,
        timeout_ms=1,
    )  # fmt: skip
    step(made, 0, intent, "", "charge/1", None)
    return made


DOUBT = kinds.InDoubt(operation="op-1", attempt=1, why="its worker was lost", not_before=9)
TWICE = kinds.Evidence(operation="op-1", attempt=1, epoch=1, answer="succeeded", verdict="duplicate")
CONFIRMS = replace(TWICE, verdict="confirms")
LOST = kinds.EntriesLost(first=3, last=4)
BLOCKED = kinds.Blocked(reason="entries lost", detail="entries 3-4")
DIVERGED = kinds.Blocked(reason="diverged", detail="it asks for more", code="b2")
EXPIRED = kinds.Ended(status="expired")


@pytest.mark.parametrize(
    ("effect", "facts", "change", "found"),
    [
        ("external", [DOUBT], None, [(0, "unknown operation")]),
        ("idempotent", [DOUBT], None, []),
        ("idempotent", [DOUBT], "ready", []),
        ("idempotent", [DOUBT, EXPIRED], "expired", [(0, "unknown operation")]),
        ("external", [CONFIRMS, TWICE], None, [(1, "duplicate effect")]),
        ("external", [DOUBT, LOST, BLOCKED], "blocked", [(0, "unknown operation"), (2, "entries lost")]),
        ("external", [LOST], "succeeded", [(0, "entries lost")]),
        ("external", [DIVERGED], "blocked", [(0, "blocked")]),
        ("external", [DIVERGED], "ready", []),
        ("external", [EXPIRED], "expired", []),
    ],
)
def test_what_is_told(effect: Acts, facts: list[kinds.Fact], change: Status | None, found: list[object]) -> None:
    notices = noticed([(fact, None) for fact in facts], sent(effect), change, (), ManualClock())
    assert [(one.place, one.kind) for one in notices] == found
    assert len({one.id for one in notices}) == len(notices)


def test_of_a_log_that_cannot_be_read_the_records_say_what_is_in_doubt() -> None:
    row = operation(Hold(Authority(DEFAULT_TENANT, RunId("r"), 1, ""), Head(0, b"")))
    [notice] = noticed([(EXPIRED, None)], Fold(), "expired", (replace(row, status="unknown"),), ManualClock())
    assert (notice.kind, notice.facts["operations"]) == ("unknown operation", [{"operation": row.id, "tool": "charge"}])


async def test_a_question_is_told_to_its_role(rig: Rig) -> None:
    here = rig.app(app)
    await here.start(asks, "it", id="run")
    worker = rig.worker(here)
    await rig.settle(worker)
    await rig.pass_time(worker, timedelta(hours=1))
    [question] = await told(rig)
    assert (question.kind, question.role, question.facts["question"]) == ("question", "tax", "is it right?")
    says = f"asks tax: is it right?; answer: outlive answer run {question.facts['question_id']} ANSWER"
    assert says in line(question)


@pytest.mark.parametrize("how", ["answered", "over", "ended"])
async def test_a_question_that_was_answered_is_told_to_nobody_any_more(either: Rig, how: str) -> None:
    here, store = either.app(app), cast(Telling, either.store)
    await here.start(asks, "it", id="run")
    worker = either.worker(here)
    await either.settle(worker)
    [question] = await store.unrouted("new", after=0, limit=9)
    assert not await store.is_moot(question, now=either.clock.now())
    if how == "answered":
        await here.handle(asks, "run").answer(str(question.facts["question_id"]), "yes", who="tess")
    elif how == "over":
        either.clock.advance(timedelta(days=30))
    else:
        await here.handle(asks, "run").terminate(who="tess")
    assert await store.is_moot(question, now=either.clock.now())
