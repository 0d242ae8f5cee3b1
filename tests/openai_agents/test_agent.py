"""An agent of the SDK in a run: what is recorded, what people decide, and that no worker's death changes it."""

from __future__ import annotations

import logging

import pytest

from outlive.errors import RunCancelled
from outlive.testing import lab
from tests.openai_agents import desk
from tests.openai_agents.desk import app, by_clerk
from tests.sweep.corpus import Bank

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(autouse=True)
def fresh() -> None:
    desk.asked.clear()


@BOTH
async def test_an_approval_suspends_it_and_the_edited_arguments_are_sent(store: str) -> None:
    bank = Bank()
    async with lab(app, deps=bank, store=store) as t:
        run = await t.start(by_clerk, "begin")
        await t.advance(seconds=1)
        assert await t.status(run) == "waiting"
        assert not t.sent("clerk.pay")
        await t.approve("clerk.pay", arguments={"cents": 5})
        said = await run.result()
    assert said.startswith(desk.SAID)
    assert "nothing_like_it" in said.partition(desk.SAID)[2], "the model is told of a tool that does not exist"
    assert "An error occurred while running the tool" in said, "it is told of arguments that do not fit"
    assert said.endswith("shy about 3 | 5 paid#6")
    assert list(desk.asked.values()) == [1, 1, 1, 1], "a model was asked twice"


async def test_a_refusal_is_told_to_the_model() -> None:
    async with lab(app, deps=Bank()) as t:
        run = await t.start(by_clerk, "begin")
        await t.advance(seconds=1)
        await t.reject("clerk.pay", why="too much")
        assert (await run.result()).endswith("a person has refused this: too much")
        assert not t.sent("clerk.pay")


@pytest.mark.deaths
@BOTH
async def test_wherever_its_workers_die_it_says_the_same(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing acts twice, nothing is forgotten, and no recorded response is asked for again."""
    caplog.set_level(logging.CRITICAL)
    bank = Bank()
    async with lab(app, deps=bank, store=store) as t:
        t.approver = lambda row: "approve"
        report = await t.sweep(by_clerk, "begin", person=bank.know, every=9 if store == "sqlite" else 40)
    assert max(bank.acted.values()) == 1, "an effect happened twice"
    assert set(report.ends) == {"succeeded"}
    assert report.tried > 8


async def test_evicted_after_each_record_it_says_the_same() -> None:
    ends = []
    for evict in (False, True):
        desk.asked.clear()
        async with lab(app, deps=Bank(), evict=evict) as t:
            run = await t.start(by_clerk, "begin", id="one")
            await t.advance(seconds=1)
            await t.approve("clerk.pay")
            ends.append(await run.result())
        assert list(desk.asked.values()) == [1, 1, 1, 1]
    assert ends[0] == ends[1]


async def test_the_names_of_operations() -> None:
    """They are in the logs of runs under way, also of the same agent under another framework."""
    async with lab(app, deps=Bank()) as t:
        run = await t.start(by_clerk, "begin")
        await t.advance(seconds=1)
        await t.approve("clerk.pay")
        await run.result()
        log = await t.log(run)
    calls = [line.split(maxsplit=3)[3] for line in log if line.split()[2] in ("intent", "step", "opened", "turn")]
    assert sorted({one.partition("(")[0].strip() for one in calls}) == [
        "/map/0:book-c clerk.book", "/map/0:look-a look", "/map/0:pay-7 clerk.pay", "/map/0:put-b put",
        "/map/0:put-d-2 put", "/map/0:shy-3 clerk.shy", "/map/0:shy-f clerk.shy", "clerk.model", "map", "turns",
    ]  # fmt: skip


async def test_cancelled_while_people_are_asked_nothing_more_is_done() -> None:
    async with lab(app, deps=Bank()) as t:
        run = await t.start(by_clerk, "begin")
        await t.advance(seconds=1)
        assert await t.cancel(run) == "cancelled"
        with pytest.raises(RunCancelled):
            await run.result()
        assert not t.sent("clerk.pay")
