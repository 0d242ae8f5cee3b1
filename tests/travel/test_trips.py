"""Trips with three providers whose workers are killed: the ledgers of all three agree with the logs, line by line."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from examples.dunning.fleet import Fleet
from examples.dunning.watch import TENANT, Watch
from examples.travel.agent import Booked, Trip, travelling
from examples.travel.app import app
from examples.travel.audit import Finding, audit
from examples.travel.demo import Demo, Options, environment_of
from examples.travel.office import decide, outlive
from examples.travel.providers import Providers, providers
from outlive.app.settings import Settings
from outlive.model.ids import RunId
from outlive.model.run import RunRow
from tests.kills.waiting import until

pytestmark = pytest.mark.timeout(600)
TRIP = Trip(id="trip-1", hotel_cents=20_000, flight_cents=30_000, fare="flexible", visa=True)


async def played(told: Options, directory: Path) -> tuple[Demo, Finding, str]:
    said = io.StringIO()
    demo = Demo(told, directory, Console(file=said, width=200))
    finding = await demo.run()
    print(said.getvalue()[-6000:])
    return demo, finding, said.getvalue()


def agreed(demo: Demo, finding: Finding, kills: int) -> None:
    assert finding.differences == []
    assert demo.killer.left == 0 and sum(demo.killer.how.values()) == kills
    undone = [trip for trip in demo.trips if not trip.visa]
    assert finding.undone >= len(undone) and finding.trips == len(demo.trips)
    assert finding.cents["hotel"] + finding.cents["flight"] == finding.cents["card"]
    # Everything that the hotel has undone it has told later, and the airline was talked to.
    assert finding.later or not finding.undos["hotel"]
    assert demo.office.decisions["compensation failed"] or all(trip.fare == "flexible" for trip in undone)


async def test_trips_whose_workers_are_killed(tmp_path: Path) -> None:
    demo, finding, _ = await played(Options(trips=4, kills=4, seed=5, patience_s=500), tmp_path)
    agreed(demo, finding, 4)


@pytest.mark.long
@pytest.mark.timeout(1700)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_killed_fifty_times(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    url = "" if store == "sqlite" else str(request.getfixturevalue("postgres"))
    demo, finding, said = await played(Options(trips=12, kills=50, seed=11, store=url, patience_s=1600), tmp_path)
    agreed(demo, finding, 50)
    assert len(demo.killer.how) == 4, "by chance, and in the middle of what each provider did"
    assert finding.doubted > 10 and finding.resolved > 0
    assert demo.office.decisions["operation in doubt"] > 0 and demo.office.unlisted == []
    assert "still to undo" in said


@asynccontextmanager
async def agency(directory: Path, store: str) -> AsyncIterator[tuple[Providers, Fleet, dict[str, str]]]:
    """Providers, and one worker."""
    with providers(directory, seed=1) as urls:
        own = environment_of(store, "1s", urls)
        async with Providers(urls) as known:
            await app.open(Settings.load(store=store, lease="1s"))
            try:
                with Fleet(directory, 1, own) as fleet:
                    yield known, fleet, own
            finally:
                await app.close()


async def killed_while(known: Providers, fleet: Fleet, name: str) -> None:
    """The worker dies while this provider does what it has asked for, and another one comes."""
    fleet.fill()

    async def look() -> bool:
        return bool(await known.busy(name))

    await until(look, f"the {name} is asked", within=90)
    fleet.kill(fleet.pids[0])
    fleet.fill()


async def blocked(run: str, reason: str) -> RunRow:
    async def look() -> RunRow | None:
        row = await app.opened.run(TENANT, RunId(run))
        return row if row is not None and row.status == "blocked" else None

    row = await until(look, f"run {run} is blocked", within=90)
    assert row.reason == reason
    return row


async def test_a_charge_that_nobody_can_look_up_is_listed_until_a_person_has_looked_into_the_books(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with agency(tmp_path, store) as (known, fleet, own):
        run = await app.start(travelling, TRIP, id=TRIP.id)
        await killed_while(known, fleet, "card")
        await blocked(TRIP.id, "operation in doubt")
        [doubtful] = [one for one in await app.opened.operations(TENANT, RunId(run.id)) if one.status == "unknown"]
        assert doubtful.tool == "charge_card"
        for verb, lists in (("show", doubtful.id), ("ps", "operation in doubt"), ("doctor", "blocked 1")):
            said = await asyncio.to_thread(outlive, own, verb, *([run.id] if verb == "show" else []))
            assert lists in said, said
        [line] = await known.ledger("card")
        assert line.key == doubtful.key, "it has happened, whoever was there to hear of it"
        accepted, answer = await asyncio.to_thread(decide(doubtful, line).say, own)
        assert accepted, answer
        booked: Booked = await run.result()
        assert booked.card == line.number
        watch = Watch(app.opened, [TRIP.id, f"{TRIP.id}-rollback"])
        await watch.look()
        assert audit([TRIP], watch.runs, await known.ledgers()).differences == []
