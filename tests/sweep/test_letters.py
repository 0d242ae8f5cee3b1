"""The crash sweep over agents that are spoken to: what they were told does not depend on who died when."""

import logging
from collections.abc import Sequence
from datetime import timedelta

import pytest

from outlive import Agent, Run
from outlive.errors import Refused, UnknownQuestion
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.testing import Mail, Stuck, SweepReport, lab
from outlive.testing.faults import FaultKind
from outlive.testing.sweep import ALL
from tests.sweep.corpus import Bank, app
from tests.sweep.letters import SPOKEN_TO, asks, busy, order, receives

invocations: list[str] = []


@app.agent()
async def counts(run: Run[Bank], input: str) -> str:
    """Not what an agent may do: it says how often it was called."""
    invocations.append(input)
    return f"{await run.receive('orders', str)} {len(invocations)}"


BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
EACH = pytest.mark.parametrize(("agent", "mail"), SPOKEN_TO, ids=[agent.name for agent, _ in SPOKEN_TO])


async def swept(
    agent: Agent[str, object], mail: Sequence[Mail], *, store: str = "sqlite", every: int = 1, evict: bool = False,
    kinds: Sequence[FaultKind] = ALL, deaths: int = 1,
) -> SweepReport:  # fmt: skip
    bank = Bank()
    async with lab(app, deps=bank, store=store, evict=evict) as t:
        report = await t.sweep(agent, "inv", mail=mail, every=every, kinds=kinds, deaths=deaths)
    assert max(bank.acted.values(), default=0) <= 1
    return report


@EACH
@pytest.mark.parametrize("evict", [False, True])
async def test_mail_is_received_the_same_whoever_dies(
    agent: Agent[str, object], mail: Sequence[Mail], evict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    report = await swept(agent, mail, every=17 if evict else 9, evict=evict)
    assert report.ends["succeeded"] == report.tried > 20, report
    assert report.methods["unread"] > 0


@EACH
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_mail_on_postgres(
    agent: Agent[str, object], mail: Sequence[Mail], store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    report = await swept(agent, mail, store=store, every=17, kinds=("after", "lost"))
    assert report.ends["succeeded"] == report.tried > 5, report


@pytest.mark.long
@BOTH
@EACH
@pytest.mark.parametrize("evict", [False, True])
async def test_mail_at_every_call(
    agent: Agent[str, object], mail: Sequence[Mail], evict: bool, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    whole = store == "sqlite"
    report = await swept(agent, mail, store=store, every=1 if whole else 3, evict=evict, deaths=2 if whole else 1)
    assert report.ends["succeeded"] == report.tried, report


@pytest.mark.parametrize("first", range(2, 24, 5))
async def test_mail_may_come_before_any_call_of_a_worker(first: int, caplog: pytest.LogCaptureFixture) -> None:
    """While the run is loaded with calls in flight, is being recorded, or is just going to sleep."""
    caplog.set_level(logging.CRITICAL)
    mail = [order("one", "ann-1", first), order("two", "bob-1", first + 1)]
    report = await swept(busy, mail, every=11, kinds=("after",))
    assert report.ends["succeeded"] == report.tried > 0


@pytest.mark.long
@pytest.mark.parametrize("first", range(1, 40))
async def test_mail_before_any_call_and_a_fault_at_every_one(first: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    mail = [order("one", "ann-1", first), order("two", "bob-1", first + 2)]
    report = await swept(busy, mail)
    assert report.ends["succeeded"] == report.tried > 0


async def test_each_message_is_in_the_log_once_and_in_the_order_of_its_sender() -> None:
    mails = [order(f"{who}-{n}", f"{who}-{n}", timedelta(seconds=n)) for n in range(3) for who in ("ann", "bob")]
    async with lab(app, deps=Bank()) as t:
        run = await t.start(receives, "inv", id="r")
        for one in mails:
            await t.send(run, one.topic, one.body, key=one.key)
            await t.send(run, one.topic, "a second thought", key=one.key)
        assert (await run.result())[:3] == ["ann-0", "bob-0", "ann-1"]
        assert sum(" arrived " in line for line in await t.log(run)) == len(mails)
        assert await t._world.store.unread(DEFAULT_TENANT, RunId("r")) == []


async def test_a_test_answers_and_is_told_what_is_asked() -> None:
    async with lab(app, deps=Bank()) as t:
        run = await t.start(asks, "inv")
        await t.advance(minutes=1)
        assert await t.questions(run) == ["How many?", "For whom?"]
        with pytest.raises(UnknownQuestion, match="2 open questions"):
            await t.answer(run, 3)
        with pytest.raises(UnknownQuestion, match="no open question 'When"):
            await t.answer(run, 3, question="When?")
        await t.answer(run, 3, question="How many?")
        assert await t.questions(run) == ["For whom?"]
        await t.answer(run, "Grace")
        with pytest.raises(UnknownQuestion):
            await t.answer(run, "Grace")
        await t.send(run, "orders", {"what": "lamps", "count": 1})
        assert (await run.result())[:3] == [3, "Grace", "lamps"]


async def test_who_is_told_nothing_is_stuck() -> None:
    async with lab(app, deps=Bank()) as t:
        with pytest.raises(Stuck, match="a message on orders"):
            await t.run(receives, "inv")


def test_mail_has_a_topic_and_a_key_or_answers_a_question() -> None:
    for given in (Mail, lambda body: Mail(body, topic="orders"), lambda body: Mail(body, topic="a", question="b")):
        with pytest.raises(Refused, match="text of a question"):
            given(1)


async def test_mail_that_makes_the_difference_is_noticed() -> None:
    """A sweep of an agent for which it matters how many workers have died must be able to fail."""
    async with lab(app, deps=Bank()) as t:
        with pytest.raises(AssertionError, match="undisturbed it succeeded"):
            await t.sweep(counts, "inv", mail=[order("one", "ann-1", timedelta(seconds=5))])
