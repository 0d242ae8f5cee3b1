"""A conversation goes on under another framework, and back, wherever it was: nothing repeats, and all of it is read."""

from __future__ import annotations

import json
import logging
from collections import Counter

import pytest

from outlive.testing import Fault, lab
from outlive.testing.faults import FaultKind
from tests.openai_agents import swap
from tests.sweep.corpus import Bank

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
ORDERS = pytest.mark.parametrize("first", ["pydantic", "sdk"])
OTHER = {"pydantic": "sdk", "sdk": "pydantic"}


@pytest.fixture(autouse=True)
def fresh() -> None:
    swap.asked.clear()
    swap.handed.clear()
    swap.on_turn.clear()


@BOTH
@ORDERS
async def test_unloaded_after_each_record_it_goes_on_under_the_other(store: str, first: str) -> None:
    """Each record is taken up by the other framework: between requests, responses, calls, approvals and commits."""
    app, clerk, seen = swap.changing(lambda times: first if times % 2 == 0 else OTHER[first])
    bank = Bank()
    async with lab(app, deps=bank, store=store, evict=True) as t:
        run = await t.start(clerk, "begin")
        await t.advance(seconds=1)
        await t.approve("clerk.pay")
        assert json.loads(await run.result()) == swap.TOLD
        names = [one.tool for one in await t.operations(run)]
    assert seen.count("sdk") > 5 < seen.count("pydantic")
    assert Counter(names) == {"clerk.model": 5, "put": 2, "clerk.book": 2, "clerk.pay": 1}
    assert list(swap.asked.values()) == [1] * (len(swap.TURNS) + 1), "a model was asked twice"
    assert set(bank.acted.values()) == {1}, "an effect happened twice"


@ORDERS
async def test_every_model_is_told_what_the_other_would_have_been(first: str) -> None:
    """Also by the one that comes back: what it said itself is there, and what the other did meanwhile."""
    app, clerk, _ = swap.changing(lambda times: first if times % 2 == 0 else OTHER[first])
    async with lab(app, deps=Bank(), evict=True) as t:
        run = await t.start(clerk, "begin")
        await t.advance(seconds=1)
        await t.approve("clerk.pay")
        await run.result()
    for framework, said in swap.handed:
        assert said == swap.TOLD[: len(said)], framework
    assert {framework for framework, _ in swap.handed} == {"pydantic", "sdk"}


@pytest.mark.deaths
@BOTH
@ORDERS
async def test_killed_anywhere_it_goes_on_under_the_other(
    store: str, first: str, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    caplog.set_level(logging.CRITICAL)
    app, clerk, seen = swap.changing(lambda times: first if times % 2 == 0 else OTHER[first])
    bank = Bank()
    async with lab(app, deps=bank, store=store) as t:
        t.approver = lambda row: "approve"
        report = await t.sweep(clerk, "begin", person=bank.know, every=13 if store == "sqlite" else 53)
    assert set(report.ends) == {"succeeded"}
    assert max(bank.acted.values()) == 1, "an effect happened twice"
    assert set(seen) == {"pydantic", "sdk"}


# Before the response is recorded, after it, between the calls and their outcomes, and before the commit.
POINTS = pytest.mark.parametrize("point", [("die", 1), *(("after", at) for at in range(1, 9))])


@ORDERS
@POINTS
async def test_killed_in_turn_three_it_goes_on_and_comes_back(first: str, point: tuple[FaultKind, int]) -> None:
    """Killed in turn 3, where the other goes on, and in turn 4, where the first one comes back."""
    app, clerk, seen = swap.changing(lambda times: turned[-1])
    bank, turned = Bank(), [first]
    kind, at = point
    async with lab(app, deps=bank) as t:

        def kill(next_one: str, fault: Fault) -> None:
            turned.append(next_one)
            t.crash(fault)

        swap.on_turn[2] = lambda: kill(OTHER[first], Fault(kind, at, "append"))
        swap.on_turn[3] = lambda: kill(first, Fault("die", 1, "append"))
        run = await t.start(clerk, "begin")
        await t.advance(minutes=5)
        await t.approve("clerk.pay")
        assert json.loads(await run.result()) == swap.TOLD
    assert swap.asked == {0: 1, 1: 1, 2: 1 if kind == "after" else 2, 3: 2, 4: 1}
    assert set(bank.acted.values()) == {1}, "an effect happened twice"
    assert [framework for framework, _ in swap.handed][-1] == first
    assert seen[0] == first
    assert OTHER[first] in seen
