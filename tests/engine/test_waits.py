"""Waits: for time, for messages, for answers; before, during and after, and the same on every replay."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pydantic import BaseModel

from outlive import Run
from outlive.app.client import Handle
from outlive.engine.definition import AgentSpec
from outlive.errors import MessageRefused, Refused, TimedOut
from outlive.log import kinds
from outlive.model.ids import DEFAULT_TENANT, RunId
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, State, add, base, begin, carry_on, does, double


class Offer(BaseModel):
    """What the tests send."""

    cents: Decimal
    by: str = "ada"


def handle(rig: Rig) -> Handle[object]:
    agent = base.registry.agents["subject"]
    assert isinstance(agent, AgentSpec)
    return Handle(lambda: rig.store, rig.clock, agent, DEFAULT_TENANT, RunId(RUN))


async def said(rig: Rig) -> object:
    """What the body returned: the agent tells it as text."""
    entries = await rig.entries(RUN)
    return json.loads(entries[-1].payload or "null") if entries[-1].kind == "ended" else None


@pytest.mark.parametrize("evict", [False, True])
async def test_a_sleep_unloads_the_run_and_any_worker_wakes_it(rig: Rig, evict: bool) -> None:
    async def body(run: Run[None]) -> object:
        await run.step(add, 1)
        await run.sleep(timedelta(days=3))
        return await run.step(double, 2)

    rig.evict = evict
    worker = await begin(rig, body)
    await rig.settle(worker)
    while (row := await rig.row(RUN)).reason == "evicted":
        rig.clock.advance(timedelta(milliseconds=1))
        await rig.settle(worker)
    assert (row.status, row.reason, worker.running()) == ("waiting", "a timer", [])
    other = rig.worker(base)
    await rig.pass_time(other, timedelta(days=3) - timedelta(seconds=1))
    assert (await rig.row(RUN)).status == "waiting"
    assert (await rig.until_ended(other, RUN)).status == "succeeded"
    assert does.steps == ["add 1", "double 2"], "no recorded step is executed again"


async def test_a_sleep_until_an_instant_that_has_passed_is_over_at_once(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        await run.sleep(datetime(2001, 1, 1, tzinfo=UTC))
        return "awake"

    await rig.settle(await begin(rig, body))
    assert (await rig.kinds(RUN)) == ["started", "woken", "ended"]


@pytest.mark.parametrize(
    ("when", "why"), [(datetime(2030, 1, 1), "time zone"), (timedelta(seconds=-1), "over before it begins")]
)
async def test_what_is_no_time_to_wait_for_is_refused(rig: Rig, when: datetime | timedelta, why: str) -> None:
    async def body(run: Run[None]) -> object:
        with pytest.raises(Refused, match=why):
            await run.sleep(when)
        return None

    await rig.settle(await begin(rig, body))
    assert (await rig.row(RUN)).status == "succeeded"


@pytest.mark.parametrize("when", ["before", "during", "after a step"])
async def test_a_message_is_received_whenever_it_comes(rig: Rig, when: str) -> None:
    async def body(run: Run[None]) -> object:
        await run.step(add, 1)
        offer = await run.receive("offers", Offer)
        return [str(offer.cents), offer.by]

    worker = await begin(rig, body)
    if when == "before":
        await handle(rig).send("offers", Offer(cents=Decimal("4.20")), key="one")
    await rig.settle(worker)
    if when != "before":
        assert (await rig.row(RUN)).status == "waiting"
        assert (await rig.row(RUN)).wake_at is None
        await handle(rig).send("offers", Offer(cents=Decimal("4.20")), key="one")
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert await said(rig) == "['4.20', 'ada']"


async def test_a_message_is_stored_once_however_often_it_is_sent(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        got = [str((await run.receive("offers", Offer)).cents) for _ in range(2)]
        with pytest.raises(TimedOut, match="waited in vain"):
            await run.receive("offers", Offer, timeout=timedelta(hours=1))
        return got

    worker = await begin(rig, body)
    for cents, key in ((1, "a"), (2, "b"), (3, "a"), (1, "a")):
        await handle(rig).send("offers", Offer(cents=Decimal(cents)), key=key)
        await rig.settle(worker)
    await handle(rig).send("offers", Offer(cents=Decimal(9)), key="a")
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    assert await said(rig) == "['1', '2']"


async def test_what_comes_too_late_for_the_time_out_stays_for_the_next_call(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            await run.receive("offers", Offer, timeout=timedelta(minutes=5))
        except TimedOut:
            return str((await run.receive("offers", Offer)).cents)
        return "in time"

    worker = await begin(rig, body)
    await rig.settle(worker)
    await rig.pass_time(worker, timedelta(minutes=6))
    await handle(rig).send("offers", Offer(cents=Decimal(7)), key="late")
    await rig.settle(worker)
    assert await said(rig) == "7"


async def test_a_message_that_does_not_fit_is_refused_the_same_on_replay(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            await run.receive("offers", Offer)
        except MessageRefused as refused:
            await run.sleep(timedelta(hours=1))
            return "offers" in str(refused)
        return None

    worker = await begin(rig, body)
    await handle(rig).send("offers", {"no": "offer"}, key="x")
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    assert await said(rig) == "True"


class Priced(BaseModel):
    """What an offer is in another release."""

    price: str


@pytest.mark.parametrize(("old", "new"), [(Offer, Priced), (Priced, Offer)])
async def test_what_the_code_was_told_of_a_message_is_what_a_changed_type_is_told(
    rig: Rig, old: type[BaseModel], new: type[BaseModel]
) -> None:
    """One that fitted when it came is no message that is refused now, nor the other way round."""

    def receiving(kind: type[BaseModel]) -> Body:
        async def body(run: Run[None]) -> object:
            try:
                got = type(await run.receive("offers", kind)).__name__
            except MessageRefused:
                got = "refused"
            await run.sleep(timedelta(hours=1))
            return got

        return body

    worker = await begin(rig, receiving(old))
    await handle(rig).send("offers", {"cents": 7}, key="x")
    await rig.settle(worker)
    worker.stop()
    await rig.pass_time(await carry_on(rig, receiving(new)), timedelta(hours=2))
    row = await rig.row(RUN)
    if old is Offer:
        assert (row.status, row.reason) == ("blocked", "diverged")
        assert "the log has a message for receive(offers)" in row.detail
        assert "another type" in row.detail
    else:
        assert (row.status, await said(rig)) == ("succeeded", "refused")


@pytest.mark.parametrize("answered", [True, False])
async def test_the_first_of_a_message_and_a_timer_wins(rig: Rig, answered: bool) -> None:
    async def body(run: Run[None]) -> object:
        won, value = await run.first(reply=run.receive("offers", Offer), late=run.sleep(timedelta(days=2)))
        return [won, str(value.cents) if isinstance(value, Offer) else None, await run.step(add, 1)]

    worker = await begin(rig, body)
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, worker.running()) == ("waiting", [])
    if answered:
        await handle(rig).send("offers", Offer(cents=Decimal(5)), key="k")
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    assert await said(rig) == ("['reply', '5', 2]" if answered else "['late', None, 2]")


async def test_mail_that_nobody_has_received_goes_on_into_the_next_turn(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async for state in run.turns(State()):
            if state.n < 3:
                await run.step(add, state.n)
                await run.sleep(timedelta(minutes=1))
                state.n += 1
                continue
            state.seen.append(str((await run.receive("offers", Offer)).cents))
            if len(state.seen) == 2:
                return state.seen
        return None

    worker = await begin(rig, body)
    for cents in (1, 2):
        await handle(rig).send("offers", Offer(cents=Decimal(cents)), key=str(cents))
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"
    assert await said(rig) == "['1', '2']"
    window = await rig.store.window(DEFAULT_TENANT, RunId(RUN))
    assert sum(entry.kind == "arrived" for entry in window) < 5, "the window holds the mail of this turn alone"


async def test_branches_that_wait_for_one_topic_receive_a_message_each(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return sorted(await run.gather(*(run.receive("offers", str) for _ in range(4))))

    worker = await begin(rig, body)
    for key in "abcd":
        await handle(rig).send("offers", key, key=key)
    await rig.settle(worker)
    assert await said(rig) == "['a', 'b', 'c', 'd']"


async def test_a_message_that_comes_as_a_turn_ends_goes_on_into_the_next(rig: Rig) -> None:
    in_turn, release = asyncio.Event(), asyncio.Event()

    async def body(run: Run[None]) -> object:
        async for state in run.turns(State()):
            if state.n == 1:
                return await run.receive("offers", str)
            in_turn.set()
            await release.wait()
            state.n = 1
        return None

    worker = await begin(rig, body)
    assert await worker.claim() == 1
    await in_turn.wait()
    [drive] = worker._drives.values()
    assert drive.attempt is not None
    journal = drive.attempt.journal

    async def waiting(count: int) -> None:
        while len(journal.exclusive()._waiters or ()) < count:
            await rig.row(RUN)

    async with journal.exclusive():
        await handle(rig).send("offers", "hello", key="k")
        drive.grip.unread()
        await waiting(1)
        release.set()
        await waiting(2)
    await worker.idle()
    assert await said(rig) == "hello"


async def test_what_a_client_sends_as_json_is_found_again_as_a_model(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return (await run.receive("offers", Offer)).by

    worker = await begin(rig, body)
    await handle(rig).send("offers", {"cents": "4", "by": "bea"}, key="k")
    await rig.settle(worker)
    assert await said(rig) == "bea"


async def test_a_question_is_seen_before_it_is_answered(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        answer = await run.ask("Refund 4200 cents?", Offer, role="ops", timeout=timedelta(days=1))
        return answer.by

    worker = await begin(rig, body)
    await rig.settle(worker)
    [asked] = [entry for entry in await rig.entries(RUN) if entry.kind == "wait"]
    fact = kinds.read(asked)
    assert isinstance(fact, kinds.Waiting)
    assert (fact.role, asked.payload) == ("ops", '"Refund 4200 cents?"')
    await handle(rig).answer(fact.topic, Offer(cents=Decimal(1), by="bea"), who="bea")
    await handle(rig).answer(fact.topic, Offer(cents=Decimal(1), by="cem"), who="cem")
    await rig.settle(worker)
    assert await said(rig) == "bea"


async def test_a_wait_that_the_code_no_longer_asks_for_is_a_divergence(rig: Rig) -> None:
    async def before(run: Run[None]) -> object:
        await run.sleep(timedelta(days=3))
        return None

    async def after(run: Run[None]) -> object:
        await run.sleep(timedelta(days=4))
        return None

    await rig.settle(await begin(rig, before))
    rig.clock.advance(timedelta(days=3))
    await rig.settle(await carry_on(rig, after))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert "sleep(3 days, 0:00:00)" in row.detail
