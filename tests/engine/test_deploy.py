"""A bad rolling deploy in no time: old and bad workers side by side, in any order, and what heals the runs after it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from examples.dunning.killer import Dice
from outlive import DidNotHappen, Happened, Operation, Run
from outlive.engine.definition import AgentSpec
from outlive.engine.worker import Worker
from tests.engine.rig import Rig
from tests.engine.subject import Answer, add, base, charge, does, double, subject

_HOUR = timedelta(hours=1)
CHANGES = ("nothing", "name", "order", "argument", "tool")


class Books:
    """An other side that answers when asked, loses every third answer, and counts what it did."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self._asked = 0

    async def act(self, op: Operation[None]) -> str:
        what = str(op.arguments["what"])
        self.done[what] += 1
        self._asked += 1
        if self._asked % 3 == 0:
            raise ConnectionError("the answer was lost")
        return f"did {what}"

    async def look_up(self, op: Operation[None]) -> Answer:
        what = str(op.arguments["what"])
        return Happened(f"did {what}") if self.done[what] else DidNotHappen()


async def signing(run: Run[None]) -> object:
    """As the release of its worker does it; a run's id says what the bad one changes about it."""
    release = str(run.deps)
    changed = run.id.rpartition("-")[2] if release == "bad" else "nothing"
    if changed == "order":
        await run.step(double, 4)
    pricing = run.options(name="quote" if changed == "name" or release == "fixed" else "price")
    await pricing.step(add, 2 if changed == "argument" else 1)
    if changed != "order":
        await run.step(double, 4)
    told = [await run.call(charge, f"{run.id} 1{'!' if changed == 'tool' else ''}")]
    await run.sleep(_HOUR)
    told += await run.gather(run.call(charge, f"{run.id} 2"), run.call(charge, f"{run.id} 3"))
    await run.sleep(_HOUR)
    return [*told, await run.call(charge, f"{run.id} 4")]


def worker(rig: Rig, release: str) -> Worker:
    """A worker of a release that takes few runs at a time, so that there is something left for the others."""
    made = rig.worker(rig.app(base), code=release)
    made.kit = replace(made.kit, deps=release)
    made.pace = replace(made.pace, concurrency=3)
    renamed = {"price": "quote"} if release == "fixed" else {}
    made.agents = {"subject": AgentSpec("subject", "1", subject.fn, renamed=renamed)}
    return made


async def serve(rig: Rig, fleet: list[Worker], dice: Dice, rounds: int) -> None:
    """Let workers claim in any order, in little portions, while time passes."""
    for one in fleet:
        await one._patiently_announce()
    for number in range(rounds):
        one = fleet[int(len(fleet) * dice.draw(f"worker {number}"))]
        await one.claim()
        await one.idle()
        rig.clock.advance(timedelta(minutes=(0, 0, 1, 20)[int(4 * dice.draw(f"minutes {number}"))]))
        for other in fleet:
            await other._patiently_announce()


async def start(rig: Rig, runs: list[str]) -> None:
    app = rig.app(base)
    for run in runs:
        await app.start(subject, "task", id=run)


@pytest.mark.parametrize("seed", range(2))
async def test_runs_end_right_through_a_bad_deploy_and_back(rig: Rig, seed: int) -> None:
    dice, books = Dice(seed), Books()
    does.body, does.tool, does.look_up = signing, books.act, books.look_up
    runs = [f"{number}-{changed}" for number in range(3) for changed in CHANGES]
    await start(rig, runs)
    old, bad = worker(rig, "old"), worker(rig, "bad")
    await rig.settle(old)
    assert sum(books.done.values()) == len(runs), "all have begun, and wait"

    await serve(rig, [old, bad], dice, 8)
    await serve(rig, [bad, worker(rig, "bad")], dice, 40)
    rows = [await rig.row(run) for run in runs]
    # Either it has ended, by whichever release could do it, or it stands where the bad one found it.
    stands = {row.id for row in rows if (row.status, row.reason) == ("blocked", "diverged")}
    assert stands, "or nothing was shown"
    assert not {run for run in stands if run.endswith("-nothing")}
    await serve(rig, [bad, old], dice, 40)
    for run in runs:
        row = await rig.until_ended(old, run)
        assert row.status == "succeeded", (run, row.status, row.reason, row.detail)
    assert books.done == Counter({f"{run} {number}": 1 for run in runs for number in (1, 2, 3, 4)})
    for run in runs:
        assert not {"retried", "resolution", "adopted"} & set(await rig.kinds(run))


async def test_a_release_that_knows_both_names_heals_what_either_has_begun(rig: Rig) -> None:
    """A run that the bad release has begun cannot be gone on with by the old one; a fix forward can."""
    books = Books()
    does.body, does.tool, does.look_up = signing, books.act, books.look_up
    await start(rig, ["a-name"])
    await rig.settle(worker(rig, "old"))
    await start(rig, ["b-name"])
    await rig.settle(worker(rig, "bad"))
    for release, left in (("bad", "a-name"), ("old", "b-name")):
        rig.clock.advance(_HOUR)
        one = worker(rig, release)
        await one.claim()
        await one.idle()
        assert (await rig.row(left)).reason == "diverged", release
    fixed = worker(rig, "fixed")
    for run in ("a-name", "b-name"):
        assert (await rig.until_ended(fixed, run)).status == "succeeded"
    assert set(books.done.values()) == {1}
