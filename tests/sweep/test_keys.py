"""The crash sweep over business keys: wherever workers die, what two runs ask for is done once, and both have it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from outlive import Agent, Happened
from outlive.model.business import KeyFilter
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import IN_DOUBT
from outlive.model.run import RunRow
from outlive.testing import Fault, lab
from outlive.testing.audit import audit
from outlive.testing.faults import WRITES, FaultKind
from outlive.testing.lab import Lab
from tests.sweep.corpus import Bank
from tests.sweep.keys import TOLD, TWICE, app, beside, charges, stores

KINDS: tuple[FaultKind, ...] = ("die", "after", "before", "lost")


def each(agent: Agent[str, list[str]]) -> str:
    return agent.name


async def both(t: Lab[Bank], bank: Bank, agent: Agent[str, list[str]], fault: Fault | None) -> list[str]:
    """Two runs that do the same, one fault; what each has ended with. Raises AssertionError for what must not be."""
    handles = [await t.start(agent, "inv", id=id) for id in ("a", "b")]
    if fault is not None:
        t.crash(fault)
    world, rows = t._world, list[RunRow]()
    for _ in range(20):
        rows = [await world.finish(RunId(one.id)) for one in handles]
        if all(row.ended for row in rows):
            break
        for run in ("a", "b"):
            for one in await t.operations(run):
                if one.status in IN_DOUBT:
                    answer = bank.know(one)
                    await t.advance(minutes=2)
                    if isinstance(answer, Happened):
                        await t.resolve(run, one.id, "happened", outcome=answer.outcome)
                    else:
                        await t.resolve(run, one.id, "did-not-happen")
    for row in rows:
        assert row.status == "succeeded", (fault, row.id, row.status, row.reason, row.detail)
        assert await audit(world, row) == [], (fault, row.id)
    keys = await world.store.business_keys(DEFAULT_TENANT, KeyFilter())
    assert {one.mark.status for one in keys} == {"succeeded"} and not any(one.waiters for one in keys), fault
    return [str(await one.result()) for one in handles]


def points(made: list[str], every: int) -> Iterator[Fault]:
    for place in range(1, len(made) + 1, every):
        for kind in KINDS:
            if kind != "lost" or made[place - 1] in WRITES:
                yield Fault(kind, place)


async def swept(agent: Agent[str, list[str]], store: str, every: int) -> int:
    def bank() -> Bank:
        return Bank(mark="?" if store == "sqlite" else "%s")

    first = bank()
    async with lab(app, deps=first, store=store) as t:
        process = t._world.process
        expected = await both(t, first, agent, None)
        made = [one.method for one in process.made]
    assert expected[0] == expected[1]
    tried = 0
    for fault in points(made, every):
        one = bank()
        async with lab(app, deps=one, store=store) as t:
            assert await both(t, one, agent, fault) == expected, fault
            if t._world.deaths == 0 and fault in t._world.process.unmet:
                t._disturbed.clear()  # a server's answers come in another order each time: it was over before that call
                continue
            if agent.name == "stores":
                async with t._world.store.transaction() as transaction:
                    assert await transaction.execute("select count(*) from stored") == [(1,)], fault
        assert max(one.acted.values(), default=0) <= 1, fault
        tried += 1
    return tried


@pytest.mark.parametrize("agent", TWICE, ids=each)
async def test_sweep_of_two_runs(agent: Agent[str, list[str]], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    assert await swept(agent, "sqlite", 1 if agent is stores else 2) > 30


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_sweep_of_two_runs_on_postgres(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    assert await swept(charges, store, 9) > 8


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("agent", TWICE, ids=each)
async def test_sweep_of_all_calls(agent: Agent[str, list[str]], store: str) -> None:
    assert await swept(agent, store, 1) > 60


@pytest.mark.parametrize(
    "store", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)  # fmt: skip
async def test_sweep_of_two_branches(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    bank = Bank()
    async with lab(app, deps=bank, store=store) as t:
        report = await t.sweep(beside, "inv", person=bank.know, every=2, mail=TOLD)
    # The key is the same in all worlds of a sweep, and so is the bank: once in each at most.
    assert max(bank.acted.values(), default=0) <= report.tried + 1 and set(report.ends) == {"succeeded"}
    assert report.methods["await_key"] > 0 and report.methods["business_key"] > 0
