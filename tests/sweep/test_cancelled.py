"""The crash sweep over runs that are cancelled: wherever the workers die, the clean-up is done once and in order."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from outlive import Agent
from outlive.errors import RunCancelled
from outlive.model.ids import RunId
from outlive.testing import SweepReport, lab
from outlive.testing.audit import calls, whole_log
from outlive.testing.faults import FaultKind
from outlive.testing.sweep import ALL
from tests.sweep.cancelled import CANCELLED, app, in_an_operation, while_it_waits
from tests.sweep.corpus import Bank

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


# With which call the clean-up begins.
FIRST = (
    'put(what="refund of inv")',
    'put(what="refund of b")',
    'look_and_ask(what="again")',
    'store_row(what="cleaned up")',
)


def each(agent: Agent[str, str]) -> str:
    return agent.name


async def swept(
    agent: Agent[str, str], *, every: int, deaths: int = 1, store: str = "sqlite", kinds: Sequence[FaultKind] = ALL
) -> SweepReport:
    bank = Bank(mark="?" if store == "sqlite" else "%s")
    async with lab(app, deps=bank, store=store) as t:
        report = await t.sweep(agent, "inv", person=bank.know, every=every, deaths=deaths, kinds=kinds)
    assert max(bank.acted.values(), default=0) <= 1, "an effect happened twice"
    assert not [what for what in bank.booked.values() if "must not happen" in what]
    assert set(report.ends) == {"cancelled"}
    return report


async def test_sweep_of_some_calls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    total = SweepReport()
    for number, agent in enumerate(CANCELLED):
        total.add(await swept(agent, every=3 + number % 3, kinds=("after", "lost") if number % 2 else ("die", "after")))
    assert total.tried > 100


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_sweep_on_postgres(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    for agent in (in_an_operation, while_it_waits):
        await swept(agent, every=3, store=store, kinds=("after",))


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("agent", CANCELLED, ids=each)
async def test_sweep_with_two_deaths(agent: Agent[str, str], store: str) -> None:
    report = await swept(agent, every=1 if store == "sqlite" else 7, deaths=2, store=store)
    assert report.tried > 50


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize("agent", CANCELLED, ids=each)
async def test_always_suspended(agent: Agent[str, str], store: str) -> None:
    """Evicted from memory after each record, a run that is cancelled cleans up the same."""
    ends = []
    for evict in (False, True):
        bank = Bank(mark="?" if store == "sqlite" else "%s")
        async with lab(app, deps=bank, evict=evict, store=store) as t:
            run = await t.start(agent, "inv", id="one")
            with pytest.raises(RunCancelled):
                await run.result()
            entries = await whole_log(t._world, RunId(run.id))
        after = next(place for place, entry in enumerate(entries) if entry.kind == "cancelling")
        # Where it was told is not the same: what it did then is.
        cleaned_up: dict[str, list[str]] = {}
        for call in calls(entries):
            if call.seq > after:
                cleaned_up.setdefault(call.scope, []).append(call.shown)
        assert cleaned_up[""][0] in FIRST
        assert sum(entry.kind == "suspended" for entry in entries[after:]) > 0
        assert max(bank.acted.values(), default=0) <= 1
        ends.append(sorted(cleaned_up.values()))
    assert ends[0] == ends[1]
