"""The crash sweep over outcomes that come later: whoever dies when, what is told counts once, nothing acts twice."""

import logging
from collections.abc import Sequence

import pytest

from outlive import Agent
from outlive.testing import Mail, SweepReport, lab
from outlive.testing.faults import FaultKind
from outlive.testing.sweep import ALL
from tests.sweep.corpus import Bank, app
from tests.sweep.later import TOLD, orders_beside

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
EACH = pytest.mark.parametrize(("agent", "mail"), TOLD, ids=[agent.name for agent, _ in TOLD])


async def swept(
    agent: Agent[str, object], mail: Sequence[Mail], *, store: str = "sqlite", every: int = 1, evict: bool = False,
    kinds: Sequence[FaultKind] = ALL, deaths: int = 1,
) -> SweepReport:  # fmt: skip
    bank = Bank()
    async with lab(app, deps=bank, store=store, evict=evict) as t:
        report = await t.sweep(agent, "inv", mail=mail, every=every, kinds=kinds, deaths=deaths)
    assert max(bank.acted.values(), default=0) <= 1
    assert report.ends["succeeded"] == report.tried > 5, report
    return report


@EACH
@pytest.mark.parametrize("evict", [False, True])
async def test_what_is_told_counts_whoever_dies(
    agent: Agent[str, object], mail: Sequence[Mail], evict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    await swept(agent, mail, every=19 if evict else 11, evict=evict)


@EACH
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_what_is_told_counts_on_postgres(
    agent: Agent[str, object], mail: Sequence[Mail], store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    await swept(agent, mail, store=store, every=17, kinds=("after", "lost"))


async def test_what_nobody_tells_is_looked_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    await swept(orders_beside, (), every=11)


@pytest.mark.parametrize("first", range(4, 24, 5))
async def test_it_may_be_told_before_any_call_of_a_worker(first: int, caplog: pytest.LogCaptureFixture) -> None:
    """While its own call is in flight, is being recorded, or the run is just going to sleep."""
    caplog.set_level(logging.CRITICAL)
    await swept(orders_beside, [Mail("inv#3", completes="order", key="evt-1", at=first)], every=7, kinds=("after",))


@pytest.mark.long
@BOTH
@EACH
@pytest.mark.parametrize("evict", [False, True])
async def test_what_is_told_counts_at_every_call(
    agent: Agent[str, object], mail: Sequence[Mail], evict: bool, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    whole = store == "sqlite"
    await swept(agent, mail, store=store, every=1 if whole else 3, evict=evict, deaths=2 if whole else 1)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1, 40))
async def test_told_before_any_call_and_a_fault_at_every_one(first: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    await swept(orders_beside, [Mail("inv#3", completes="order", key="evt-1", at=first)])
