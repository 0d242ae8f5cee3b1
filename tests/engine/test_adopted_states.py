"""A rule that makes the state of a new version out of an old one: applied once, committed before anything follows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import cast

import pytest
from pydantic import BaseModel

from outlive import Run
from outlive.app.audit import Progress, verify_run
from outlive.engine.definition import AgentSpec
from outlive.engine.forking import Wish, fork
from outlive.engine.worker import Worker
from outlive.errors import Refused
from outlive.log import kinds
from outlive.log.fold import fold
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Store
from outlive.store.survey import Surveyed
from outlive.testing.faults import Fault, FaultKind, FaultyStore
from outlive.versions import Adopts
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, add, base, does, put, subject
from tests.engine.test_adopted_steps import rehearsed

_HOUR = timedelta(hours=1)
_given: list[dict[str, int]] = []


class Second:
    """What version 2 keeps. Its fields have defaults: only the rule knows that another state is meant."""

    class Purse(BaseModel):
        n: int = 0
        cents: int = 0


class Third:
    """What version 3 keeps, in a class of the same name."""

    class Purse(BaseModel):
        n: int = 0
        euros: float = 0


class Fourth:
    """What version 4 keeps."""

    class Account(BaseModel):
        n: int
        spent: list[float]


def in_euros(old: dict[str, int]) -> dict[str, object]:
    """Purses are kept in euros.

    Since release 3.
    """
    _given.append(old)
    return {"n": old["n"], "euros": old["cents"] / 100}


def from_a_model(old: Second.Purse) -> Third.Purse:
    return Third.Purse(n=old.n, euros=old.cents / 100)


def to_account(old: Third.Purse) -> Fourth.Account:
    return Fourth.Account(n=old.n, spent=[old.euros])


def straight_to_account(old: Second.Purse) -> Fourth.Account:
    return Fourth.Account(n=old.n, spent=[old.cents / 100])


def back_to_cents(old: Third.Purse) -> Second.Purse:
    return Second.Purse(n=old.n, cents=round(old.euros * 100))


def raises(old: dict[str, int]) -> dict[str, object]:
    return {"n": old["n"], "euros": old["dollars"]}


def gives_text(old: dict[str, int]) -> object:
    return "a purse"


def forgets_a_type(old: dict[str, int]) -> dict[str, object]:
    return {"n": "many", "euros": 1}


def misspells(old: dict[str, int]) -> dict[str, object]:
    return {"n": old["n"], "euro": old["cents"] / 100}


async def _pays(run: Run[None], n: int) -> None:
    await run.call(put, f"pay {n}")
    await run.sleep(_HOUR)


async def second(run: Run[None]) -> object:
    await run.step(add, 1)
    async for purse in run.turns(Second.Purse()):
        await _pays(run, purse.n)
        purse.n, purse.cents = purse.n + 1, purse.cents + 150
        if purse.n == 3:
            return purse.cents
    return None


async def third(run: Run[None]) -> object:
    await run.step(add, 1)
    async for purse in run.turns(Third.Purse()):
        await _pays(run, purse.n)
        purse.n, purse.euros = purse.n + 1, purse.euros + 1.5
        if purse.n == 3:
            return purse.euros
    return None


async def fourth(run: Run[None]) -> object:
    await run.step(add, 1)
    async for account in run.turns(Fourth.Account(n=0, spent=[])):
        await _pays(run, account.n)
        account.n, account.spent = account.n + 1, [*account.spent, 1.5]
        if account.n == 3:
            return account.spent
    return None


BODIES: dict[str, Body] = {"2": second, "3": third, "4": fourth}
Given = Mapping[str, Adopts | Callable[..., object]]


def of(rig: Rig, version: str, adopts: Given | None = None, *, store: Store | None = None, code: str = "") -> Worker:
    """A worker of a release. What the agent does is that of the release that was asked for last."""
    does.body = BODIES[version]
    worker = rig.worker(rig.app(base), code=code or f"release {version}", store=store)
    worker.agents = {"subject": AgentSpec("subject", version, subject.fn, adopts=adopts)}
    return worker


async def in_turn_one(rig: Rig) -> None:
    """A run that version 2 has begun, and that waits in its second turn, with 150 cents spent."""
    _given.clear()
    app = rig.app(base)
    await app.start(subject, "task", id=RUN)
    row = await rig.row(RUN)
    assert row.version == "1"
    await rig.settle(of(rig, "2"))
    await rig.pass_time(of(rig, "2"), _HOUR)
    rig.clock.advance(_HOUR)


async def facts(rig: Rig, run: str = RUN) -> list[kinds.StateAdopted]:
    return [one for one in map(kinds.read, await rig.entries(run)) if isinstance(one, kinds.StateAdopted)]


async def sound(rig: Rig, run: str = RUN) -> None:
    assert [one async for one in verify_run(cast(Surveyed, rig.store), DEFAULT_TENANT, RunId(run), Progress())] == []


async def ends(rig: Rig, worker: Worker, run: str = RUN) -> str | None:
    row = await rig.until_ended(worker, run)
    assert row.status == "succeeded", row.detail
    await sound(rig, run)
    return (await rig.entries(run))[-1].payload


PAID = [("put", {"what": f"pay {n}"}) for n in range(3)]


@pytest.mark.parametrize("evict", [False, True])
async def test_a_rule_makes_the_new_state_once(either: Rig, evict: bool) -> None:
    rig = either
    await in_turn_one(rig)
    rig.evict = evict
    assert await ends(rig, of(rig, "3", {"2": in_euros})) == '"4.5"'
    assert _given == [{"n": 1, "cents": 150}]
    [fact] = await facts(rig)
    assert (fact.of, fact.version, fact.who, fact.why) == ("2", "3", "subject version 3", "Purses are kept in euros.")
    assert rig.sent == PAID
    [line] = [line for line in await rig.lines(RUN) if line.kind == "state adopted"]
    assert "of version 2, says subject version 3: Purses are kept in euros." in line.text


@pytest.mark.parametrize("rule", [from_a_model, Adopts(state=from_a_model, why="a new currency")])
async def test_a_rule_may_take_and_give_models(rig: Rig, rule: Adopts | Callable[..., object]) -> None:
    await in_turn_one(rig)
    assert await ends(rig, of(rig, "3", {"2": rule})) == '"4.5"'
    [fact] = await facts(rig)
    assert fact.why == ("a new currency" if isinstance(rule, Adopts) else "from_a_model")


@pytest.mark.parametrize("kind", ["die", "after", "lost"])
async def test_whenever_its_worker_dies_the_state_is_made_once(either: Rig, kind: FaultKind) -> None:
    """At every append of the worker that applies the rule, and of those that follow."""
    rig, at = either, 0
    while True:
        at += 1
        run = f"subject-{at}"
        await _begin_as(rig, run)
        fault = Fault(kind, at, "append")
        store = FaultyStore(rig.store, [fault])
        worker = of(rig, "3", {"2": in_euros}, store=cast(Store, store))
        await worker.claim()
        await asyncio.wait(list(worker._drives))
        after = of(rig, "3", {"2": in_euros})
        await rig.take_over(after)
        assert await ends(rig, after, run) == '"4.5"'
        assert len(await facts(rig, run)) == 1
        assert set(map(str, _given)) == {"{'n': 1, 'cents': 150}"}
        assert rig.sent[-1] == PAID[-1]
        if store.unmet:
            break
    assert at > 3, "or nothing was shown"
    kinds_of = [entry.kind for entry in await rig.entries(run)]
    assert kinds_of.count("state adopted") == 1


async def _begin_as(rig: Rig, run: str) -> None:
    app = rig.app(base)
    _given.clear()
    await app.start(subject, "task", id=run)
    await rig.settle(of(rig, "2"))
    await rig.pass_time(of(rig, "2"), _HOUR)
    rig.clock.advance(_HOUR)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (raises, r"did not make of it: KeyError: 'dollars' \(at test_adopted_states.py:\d+\)"),
        (gives_text, "it gives a str, which is neither a Purse nor a dict"),
        (forgets_a_type, "not a Purse: n: Input should be a valid integer"),
        (misspells, "it gives euro, which Purse does not have"),
    ],
)
async def test_a_rule_that_fails_writes_nothing_and_the_run_has_diverged(
    either: Rig, rule: Callable[..., object], says: str
) -> None:
    rig = either
    await in_turn_one(rig)
    before = await rig.kinds(RUN)
    await rig.settle(of(rig, "3", {"2": rule}, code="bad"))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert re.search(says, row.detail), row.detail
    assert rule.__name__ in row.detail and "test_adopted_states.py" in row.detail
    assert await rig.kinds(RUN) == [*before, "blocked"]
    # The old build still has it, and so has a rule that was mended.
    await rig.pass_time(of(rig, "2"), _HOUR)
    rig.clock.advance(_HOUR)
    assert await ends(rig, of(rig, "3", {"2": in_euros}, code="mended")) == '"4.5"'


async def test_an_old_worker_does_not_take_the_new_state_for_its_own(either: Rig) -> None:
    """It would read it: both classes have one name and defaults for everything. The run is left to the new build."""
    rig = either
    await in_turn_one(rig)
    new = of(rig, "3", {"2": in_euros})
    await new._patiently_announce()
    await rig.settle(new)
    assert len(await facts(rig)) == 1
    for _ in range(2):  # in the turn that was adopted, and in the next one, whose own entry says so
        rig.clock.advance(_HOUR)
        await new._patiently_announce()
        await rig.settle(of(rig, "2", code=f"old {_}"))
        row = await rig.row(RUN)
        assert (row.status, row.reason) == ("ready", "diverged")
        assert "of which version 3 has made its own state" in row.detail
        assert "version 2, which has no rule for it" in row.detail
        does.body = third
        await rig.settle(new)
        if (await rig.row(RUN)).ended:
            break
    assert (await rig.entries(RUN))[-1].payload == '"4.5"'
    assert rig.sent == PAID


async def test_without_the_new_build_the_run_is_blocked_and_comes_back_with_it(rig: Rig) -> None:
    await in_turn_one(rig)
    rig.evict = True
    worker = of(rig, "3", {"2": in_euros})
    await worker.claim()
    await worker.idle()
    rig.evict = False
    await rig.settle(of(rig, "2"))
    assert await ends(rig, of(rig, "3", {"2": in_euros})) == '"4.5"'


async def test_an_old_version_may_have_a_rule_for_the_way_back(rig: Rig) -> None:
    await in_turn_one(rig)
    await rig.settle(of(rig, "3", {"2": in_euros}))
    rig.clock.advance(_HOUR)
    assert await ends(rig, of(rig, "2", {"3": back_to_cents}, code="older, mended")) == '"450"'
    assert [(one.of, one.version) for one in await facts(rig)] == [("2", "3"), ("3", "2")]


async def test_a_rule_applies_to_the_version_that_the_state_is_of(rig: Rig) -> None:
    """From 2 to 3 to 4 by one rule each; straight from 2 to 4 by another."""
    rules: Given = {"2": straight_to_account, "3": to_account}
    await in_turn_one(rig)
    await rig.settle(of(rig, "3", {"2": in_euros}))
    rig.clock.advance(_HOUR)
    assert await ends(rig, of(rig, "4", rules)) == '"[3.0, 1.5]"'
    assert [(one.of, one.version) for one in await facts(rig)] == [("2", "3"), ("3", "4")]

    await _begin_as(rig, "straight")
    assert await ends(rig, of(rig, "4", rules), "straight") == '"[1.5, 1.5, 1.5]"'
    assert [(one.of, one.version) for one in await facts(rig, "straight")] == [("2", "4")]


async def test_a_rule_is_never_applied_to_another_version(rig: Rig) -> None:
    await in_turn_one(rig)
    await rig.settle(of(rig, "4", {"1": straight_to_account, "3": to_account}))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert await facts(rig) == []


async def test_a_loop_that_the_new_version_has_begun_is_its_own(rig: Rig) -> None:
    """Although the run is an older one's: whose state it is counts."""
    app = rig.app(base)
    await app.start(subject, "task", id=RUN)
    _given.clear()
    rules: Given = {"1": in_euros, "2": in_euros}
    await rig.settle(of(rig, "3", rules))
    assert await ends(rig, of(rig, "3", rules, code="another build")) == '"4.5"'
    assert _given == []


async def test_a_version_without_a_rule_that_fits_goes_on_and_its_states_are_its_own(rig: Rig) -> None:
    """A version 2.1 that keeps the same state may take a run over and give it back; a rule must name whose it is."""
    await in_turn_one(rig)
    BODIES["2.1"] = second
    await rig.settle(of(rig, "2.1"))
    await rig.settle(of(rig, "3", {"2": in_euros}))
    rig.clock.advance(_HOUR)
    await rig.settle(of(rig, "3", {"2": gives_text, "2.1": from_a_model}, code="knows both"))
    assert (await rig.row(RUN)).status == "succeeded", (await rig.row(RUN)).detail


async def test_a_rehearsal_goes_on_with_the_state_that_a_rule_makes(rig: Rig) -> None:
    await in_turn_one(rig)
    before = await rig.entries(RUN)
    ended = await rehearsed(of(rig, "3", {"2": in_euros}))
    assert ended.how == "held", ended.report
    [told] = ended.changed
    assert "subject version 3 adopts the state of entry" in told and "Purses are kept in euros." in told
    assert (await rehearsed(of(rig, "3", {"2": raises}))).how == "diverged"
    assert await rig.entries(RUN) == before


async def test_a_fork_has_the_state_that_was_made(rig: Rig) -> None:
    await in_turn_one(rig)
    worker = of(rig, "3", {"2": in_euros})
    assert await ends(rig, worker) == '"4.5"'
    [at] = [entry.seq for entry in await rig.entries(RUN) if entry.kind == "state adopted"]
    before = len(_given)
    await fork(rig.store, rig.clock, DEFAULT_TENANT, RunId(RUN), Wish(at=at, who="Ada", id="forked"))
    state = fold(await rig.store.window(DEFAULT_TENANT, RunId("forked")))
    assert (state.version, state.current[""].calls[0].payload) == ("3", '{"n":1,"euros":1.5}')
    await rig.until_ended(worker, "forked")
    assert len(_given) == before


def two(one: object, other: object) -> None: ...


def takes_a_number(old: int) -> None: ...


async def waits(old: dict[str, int]) -> None: ...


@pytest.mark.parametrize(
    ("adopts", "says"),
    [
        ({"3": in_euros}, "that is its own version"),
        ({"2": Adopts()}, "it adopts nothing"),
        ({"2": Adopts(removed="remind")}, "'remind' is one text; say a tuple"),
        ({"2": Adopts(renamed={"a": "a"})}, "it is the same name"),
        ({"2": Adopts(renamed={"a": "b"}, removed=("a",))}, "a is said in two ways"),
        ({"2": Adopts(added=("a/b",))}, "without /"),
        ({"2": waits}, "is `async def`"),
        ({"2": two}, "takes the old state, and nothing else"),
        ({"2": takes_a_number}, "takes a dict, or a pydantic model"),
        ({"2": lambda old: old}, "a lambda has no name"),
    ],
)
def test_what_could_not_be_kept_is_refused_at_registration(adopts: Given, says: str) -> None:
    with pytest.raises(Refused, match=says):
        AgentSpec("subject", "3", subject.fn, adopts=adopts)
