"""SIGKILL while many runs race for few business keys: each invoice is paid once, and every run has its charge."""

from collections import Counter
from pathlib import Path

import pytest

from outlive.model.business import KeyFilter
from outlive.model.run import RunFilter
from tests.kills.agents import Order, app, paying
from tests.kills.scene import BOTH, TENANT, Scene, kill, scene
from tests.kills.waiting import rest, until

RUNS = 10
"""For each key."""


async def ended(here: Scene) -> int:
    """How many runs have ended; none may have ended badly, or be left to a person. Asking costs time of theirs."""
    await rest(0.5)
    rows = await here.store.runs(TENANT, RunFilter(limit=10_000))
    bad = [(row.id, row.status, row.reason, row.detail) for row in rows if row.status in ("failed", "blocked")]
    assert bad == []
    return sum(row.ended for row in rows)


async def race(here: Scene, keys: int, kills: int) -> None:
    total = keys * RUNS
    for number in range(total):
        order = Order(first="once", others="once", invoices=[f"INV-{number // RUNS}"])
        await app.start(paying, order, id=f"r{number}")
    workers = [here.worker(), here.worker()]
    for number in range(kills):
        least = total * (number + 1) // (kills + 2)

        async def so_many(least: int = least) -> bool:
            return await ended(here) >= least

        await until(so_many, f"{least} runs have ended", within=900)
        place = number % 2
        kill(workers[place])
        workers[place] = here.worker()

    async def all_of_them() -> bool:
        return await ended(here) == total

    await until(all_of_them, "all runs have ended", within=900)
    assert here.counted() == {f"INV-{number}": 1 for number in range(keys)}
    charges: dict[str, set[str]] = {}
    hows: Counter[str] = Counter()
    for number in range(total):
        result = await app.handle(paying, f"r{number}").result()
        charges.setdefault(f"INV-{number // RUNS}", set()).update(result)
        (operation,) = await here.operations(f"r{number}")
        hows["shared" if operation.how == "shared" else "own"] += 1
    assert all(len(one) == 1 for one in charges.values()) and len(set.union(*charges.values())) == keys
    assert hows == {"own": keys, "shared": total - keys}
    rows = await here.store.business_keys(TENANT, KeyFilter(limit=total))
    assert len(rows) == keys and {(row.mark.status, row.waiters) for row in rows} == {("succeeded", ())}


@BOTH
async def test_runs_race_for_keys(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store, dedupe=False) as here:
        await race(here, 10, 3)


@pytest.mark.long
@BOTH
async def test_a_thousand_runs_race_for_a_hundred_keys(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store, lease_s=4, dedupe=False) as here:
        await race(here, 100, 12)
