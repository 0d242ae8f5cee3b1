"""The crash sweep over runs that are rolled back: wherever the workers die, each effect is undone once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from outlive import Agent
from outlive.errors import RunFailed
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.testing import SweepReport, lab
from outlive.testing.audit import story, whole_log
from outlive.testing.faults import FaultKind
from outlive.testing.sweep import ALL
from tests.sweep.corpus import Bank
from tests.sweep.rollbacks import ROLLED_BACK, app, asks, fails

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


def each(agent: Agent[str, str]) -> str:
    return agent.name


async def swept(
    agent: Agent[str, str], *, every: int, deaths: int = 1, store: str = "sqlite", kinds: Sequence[FaultKind] = ALL
) -> SweepReport:
    bank = Bank(mark="?" if store == "sqlite" else "%s")
    async with lab(app, deps=bank, store=store) as t:
        report = await t.sweep(agent, "inv", person=bank.know, every=every, deaths=deaths, kinds=kinds)
    assert max(bank.acted.values(), default=0) <= 1, "an effect happened twice"
    assert set(report.ends) == {"failed"}
    return report


@pytest.mark.parametrize("agent", ROLLED_BACK, ids=each)
async def test_sweep_of_some_calls(agent: Agent[str, str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    report = await swept(agent, every=3, kinds=("die", "after", "lost"))
    assert report.tried > 40
    assert report.methods["start"] > 0, "also where the rollback begins"
    assert report.methods["entries"] > 0, "and where it reads the log of the run"


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_sweep_on_postgres(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    for agent in (fails, asks):
        await swept(agent, every=4, store=store, kinds=("after",))


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("agent", ROLLED_BACK, ids=each)
async def test_sweep_with_two_deaths(agent: Agent[str, str], store: str) -> None:
    report = await swept(agent, every=1 if store == "sqlite" else 7, deaths=2, store=store)
    assert report.tried > 50


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize("agent", ROLLED_BACK, ids=each)
async def test_always_suspended(agent: Agent[str, str], store: str) -> None:
    """Evicted from memory after each record, it undoes the same."""
    ends = []
    for evict in (False, True):
        bank = Bank(mark="?" if store == "sqlite" else "%s")
        async with lab(app, deps=bank, evict=evict, store=store) as t:
            run = await t.start(agent, "inv", id="one")
            with pytest.raises(RunFailed):
                await run.result()
            (back,) = await t._world.store.rollbacks(DEFAULT_TENANT, RunId(run.id))
            assert (await t._world.finish(back.id)).status == "succeeded"
            entries = await whole_log(t._world, back.id)
        assert max(bank.acted.values(), default=0) <= 1
        ends.append(story(entries))
        assert (sum(entry.kind == "suspended" for entry in entries) > 1) == evict
    assert ends[0] == ends[1]
