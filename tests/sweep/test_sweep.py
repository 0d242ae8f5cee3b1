"""The crash sweep over the corpus: wherever its workers die, each run ends as it would have, or is visibly in doubt."""

import logging
from collections.abc import Sequence

import pytest

from outlive import Agent
from outlive.errors import RunFailed
from outlive.model.ids import RunId
from outlive.testing import SweepReport, lab
from outlive.testing.audit import story, whole_log
from outlive.testing.faults import FaultKind
from outlive.testing.sweep import ALL, CLASSES
from tests.sweep.corpus import (
    CORPUS,
    EQUAL,
    Bank,
    app,
    depends_on_hashes,
    gathers,
    has_context,
    lied_to,
    looked_up,
    loses,
    steps,
    transactional,
    turns,
    values,
)

CANARY = "t0p-s3cret-c4nary"
SECRETS = {"bank/token": CANARY}

# What a worker asks of the store while it drives; the rest of the port is met by the store suite and by real processes.
FOR_ALL = ("claim", "append", "window", "key", "unread", "look")
FOR_TRANSACTIONS = ("transaction", "transaction.execute", "transaction.append")


# Half of the corpus is tried with each in every run of the tests, all of it with all in the long one.
KINDS: tuple[tuple[FaultKind, ...], ...] = (("after", "lost"), ("die", "before"))

BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)

# The part of the corpus that every run of the tests sweeps on PostgreSQL.
ON_POSTGRES = (steps, looked_up, transactional)


def each(agent: Agent[str, object]) -> str:
    return agent.name


async def swept(
    agent: Agent[str, object], *, every: int, deaths: int = 1, store: str = "sqlite", kinds: Sequence[FaultKind] = ALL
) -> SweepReport:
    bank = Bank(mark="?" if store == "sqlite" else "%s")
    async with lab(app, deps=bank, secrets=SECRETS, store=store) as t:
        report = await t.sweep(
            agent, "inv", person=bank.know, equal=EQUAL.get(agent.name), every=every, deaths=deaths, kinds=kinds
        )
    assert max(bank.acted.values(), default=0) <= 1, "an effect happened twice"
    assert not [what for what in bank.booked.values() if "must not happen" in what]
    return report


def check(report: SweepReport, *, about: Sequence[str] = CLASSES) -> None:
    print(report)
    zero = [(method, one) for method in FOR_ALL for one in about if not report.count(method=method, about=one)]
    zero += [(method, "transactional") for method in FOR_TRANSACTIONS if not report.count(method=method)]
    assert not zero, f"no point was tried for {zero}\n{report}"


async def test_sweep_of_some_calls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    total = SweepReport()
    for number, agent in enumerate(CORPUS):
        total.add(await swept(agent, every=9 + number % 5, kinds=KINDS[number % 2]))
    check(total)


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_sweep_on_postgres(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """At every call of some agents the worker dies when it is done; at some of them its answer is lost."""
    caplog.set_level(logging.CRITICAL)
    total = SweepReport()
    for agent in ON_POSTGRES:
        total.add(await swept(agent, every=1, store=store, kinds=("after",)))
        total.add(await swept(agent, every=9, store=store, kinds=("lost",)))
    check(total, about=("run", "step", "external, looked up", "transactional"))


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("agent", CORPUS, ids=each)
async def test_sweep_with_two_deaths(agent: Agent[str, object], store: str) -> None:
    # On PostgreSQL a run takes several times as long, and every kind of call is met with each seventh.
    report = await swept(agent, every=1 if store == "sqlite" else 7, deaths=2, store=store)
    assert report.tried > 100


@pytest.mark.long
@BOTH
async def test_sweep_of_all_calls(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    total = SweepReport()
    for agent in CORPUS:
        total.add(await swept(agent, every=1, store=store))
    check(total)
    assert total.count(outcome="failed") > 0
    assert total.ends["blocked"] == 0, "a person answers for what cannot be looked up"


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True)
@pytest.mark.parametrize("agent", CORPUS, ids=each)
async def test_always_suspended(agent: Agent[str, object], store: str) -> None:
    """Evicted from memory after each record, a run asks for and is told the same."""
    ends = []
    for evict in (False, True):
        bank = Bank(mark="?" if store == "sqlite" else "%s")
        async with lab(app, deps=bank, secrets=SECRETS, evict=evict, store=store) as t:
            run = await t.start(agent, "inv", id="one")
            result: object = None
            try:
                result = await run.result()
            except RunFailed as failed:
                result = str(failed)
            entries = await whole_log(t._world, RunId(run.id))
        ends.append((result, story(entries)))
        assert sum(entry.kind == "suspended" for entry in entries) > 0 or not evict
        assert max(bank.acted.values(), default=0) <= 1
    assert ends[0] == ends[1]


@pytest.mark.parametrize("agent", [turns, gathers, has_context, values], ids=each)
async def test_replay_under_other_hash_seeds(agent: Agent[str, object]) -> None:
    async with lab(app, deps=Bank(), secrets=SECRETS) as t:
        await t.replay(agent, "inv", hash_seeds=(1,))


async def test_replay_finds_what_depends_on_the_order_of_a_set() -> None:
    async with lab(app, deps=Bank()) as t:
        with pytest.raises(AssertionError, match="the log has look"):
            await t.replay(depends_on_hashes, "inv", hash_seeds=(1, 2, 3))


async def test_threads_make_no_difference() -> None:
    """The sweep's store does without threads; one agent is swept on the store as it is in production."""
    bank = Bank()
    async with lab(app, deps=bank, threads=True) as t:
        report = await t.sweep(loses, "inv", person=bank.know, every=9, kinds=("after", "lost"))
    assert report.tried > 10


async def test_a_broken_promise_is_found() -> None:
    """A tool that says it dedupes and does not, a look-up that lies: the sweep must be able to fail."""
    async with lab(app, deps=Bank()) as t:
        with pytest.raises(AssertionError, match=r"(?s)died before call \d+.*undisturbed it succeeded"):
            await t.sweep(lied_to, "inv")
