"""People who want opposite things of the same runs at the same time, while workers are killed and frozen.

Whatever comes of it: each run is explained, each log is whole, and the bank has what the logs say.
"""

import json
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from outlive.app.doctor import Tally, examine
from outlive.errors import OutliveError
from outlive.model.run import RunFilter, RunRow
from outlive.store.keeping import Kept
from outlive.testing.clock import ManualClock
from tests.kills.agents import app, paying
from tests.kills.scene import BOTH, TENANT, Scene, Worker, kill, scene
from tests.kills.waiting import until

SECONDS = 20
RUNS, INVOICES = 8, 20
# What doctor may say here: workers were killed, and nobody is told of anything.
EXPECTED = {"silent worker", "nobody to notify"}


async def runs(here: Scene) -> list[RunRow]:
    return await here.store.runs(TENANT, RunFilter(limit=10_000))


async def all_ended(here: Scene) -> bool:
    left = [row for row in await runs(here) if not row.ended]
    for row in left:
        with suppress(OutliveError):
            await app.handle(paying, row.id).cancel(who="the test", why="it is over")
    return not left


async def storm(here: Scene, workers: list[Worker], pesters: list[Worker]) -> None:
    """Kill, freeze and wake workers until nobody pesters any more."""
    chance, frozen = ManualClock(seed="storm"), list[Worker]()

    async def look() -> bool:
        drawn, place = chance.random(), int(chance.random() * len(workers))
        if drawn < 0.01:
            kill(workers[place])
            workers[place] = here.worker()
        elif drawn < 0.02:
            workers[place].send_signal(signal.SIGSTOP)
            frozen.append(workers[place])
        elif drawn < 0.04 and frozen:
            frozen.pop(0).send_signal(signal.SIGCONT)
        return all(one.poll() is not None for one in pesters)

    await until(look, "nobody pesters any more", within=SECONDS + 120)
    for one in frozen:
        one.send_signal(signal.SIGCONT)


async def differences(here: Scene) -> dict[str, tuple[int, int, int]]:
    """Invoices of which the bank has not as many charges as the logs allow: how many it has, at least, at most."""
    least, most = Counter[str](), Counter[str]()
    for row in await runs(here):
        await here.log(row.id)
        for one in await here.operations(row.id):
            invoice = str(next(iter(json.loads(one.arguments).values())))
            sure = one.status == "succeeded"
            least[invoice] += sure
            most[invoice] += sure + (one.status == "unknown") + one.duplicates
    counted = here.counted()
    assert counted, "nothing was paid: the test has shown nothing"
    return {
        invoice: (counted.get(invoice, 0), least[invoice], most[invoice])
        for invoice in {*most, *counted}
        if not least[invoice] <= counted.get(invoice, 0) <= most[invoice]
    }


@pytest.mark.long
@pytest.mark.timeout(600)
@BOTH
async def test_opposite_wishes_leave_each_run_explained_and_each_effect_in_a_log(tmp_path: Path, store: str) -> None:
    async with scene(
        tmp_path, store=store, delay=0.3, delay_before=0.3, drop=0.1, drop_before=0.1, delay_ms=400
    ) as here:
        for number in range(RUNS):
            await here.pay("looked_up", *(f"I{number}-{each}" for each in range(INVOICES)), others="patient")
        workers = [here.worker(), here.worker()]
        for worker in workers:
            await here.owner(worker)
        url = here.environment["OUTLIVE_STORE"]
        pesters = [here.process("tests.kills.pester", url, str(seed), str(SECONDS)) for seed in range(2)]
        await storm(here, workers, pesters)
        assert [one.wait() for one in pesters] == [0, 0], (tmp_path / "workers.log").read_text()[-3000:]
        await until(lambda: all_ended(here), "every run has ended", within=120)
        for worker in workers:
            worker.terminate()
            await here.exited(worker)
        assert await differences(here) == {}
        assert isinstance(here.store, Kept)
        found = [one async for one in examine(here.store, Tally())]
        assert {one.trouble for one in found} <= EXPECTED, found
        audit = here.outlive("audit", "verify")
        assert audit.returncode == 0, audit.stdout
