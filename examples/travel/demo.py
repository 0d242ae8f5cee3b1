"""The demo: trips with three providers, workers that are killed, and what comes to nothing undone. Run `make travel`.

Exit code 0: everything has ended, and all three ledgers agree with the logs; 1: they do not; 2: it could not begin.
"""

import argparse
import asyncio
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from examples.dunning.fleet import Fleet, program
from examples.dunning.killer import Dice
from examples.dunning.watch import TENANT, Watch
from examples.travel.agent import Trip, travelling
from examples.travel.app import app
from examples.travel.audit import Finding, audit
from examples.travel.killer import Killer
from examples.travel.office import Office
from examples.travel.providers import MANNERS, Providers, providers
from examples.travel.waiting import epoch_ms, tick
from outlive.app.settings import Settings
from outlive.errors import OutliveError
from outlive.model.ids import RunId
from outlive.model.run import RunRow
from outlive.testing.postgres import server

APP = "examples.travel.app:app"
WORKERS = 3
AT_ONCE = 6
OWN_SERVER = "postgres"
_LOOK_S = 0.05
_AN_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Options:
    """What the demo was told: it goes on until there were so many trips, and so many workers were killed."""

    trips: int = 10
    kills: int = 10
    seed: int = 7
    lease: str = "1s"
    store: str = ""
    patience_s: int = 900


def options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m examples.travel.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--trips", type=int, default=10, help="how many trips there are at least")
    parser.add_argument("--kills", type=int, default=10, help="how many workers are killed")
    parser.add_argument("--seed", type=int, default=7, help="chooses the trips, and who is killed")
    parser.add_argument("--lease", default="1s", help="how long a dead worker's runs stay its own")
    parser.add_argument("--store", default="", help="where the runs live: URL, or postgres [a new file]")
    said = parser.parse_args(arguments)
    return Options(said.trips, said.kills, said.seed, said.lease, said.store)


def drawn(dice: Dice, number: int) -> Trip:
    """The trip of that number: half of them come to nothing, half have a fare that is not given back."""

    def cents(what: str) -> int:
        return 10_000 + int(dice.draw(f"{what} {number}") * 90_000)

    return Trip(
        id=f"trip-{number}",
        hotel_cents=cents("hotel"),
        flight_cents=cents("flight"),
        fare="basic" if dice.draw(f"fare {number}") < 0.5 else "flexible",
        visa=dice.draw(f"visa {number}") < 0.5,
    )


def environment_of(store: str, lease: str, urls: Mapping[str, str]) -> dict[str, str]:
    """What a worker is told, and everybody who decides."""
    own = {"OUTLIVE_STORE": store, "OUTLIVE_LEASE": lease, "OUTLIVE_APP": APP}
    return {**os.environ, **own, **{f"{name.upper()}_URL": url for name, url in urls.items()}}


class Demo:
    """One play, from its parts to its finding."""

    def __init__(self, told: Options, directory: Path, console: Console) -> None:
        self.told, self.directory, self.console = told, directory, console
        self.dice, self.begun = Dice(told.seed), epoch_ms()
        self.trips: list[Trip] = []
        self._open: dict[str, RunRow | None] = {}

    async def run(self) -> Finding:
        """Leaves no process behind, however it ends."""
        async with AsyncExitStack() as stack:
            store = stack.enter_context(server()) + "&direct=yes" if self.told.store == OWN_SERVER else self.told.store
            store = store or f"sqlite:///{self.directory / 'outlive.db'}"
            urls = stack.enter_context(providers(self.directory, self.told.seed))
            self.providers = await stack.enter_async_context(Providers(urls))
            await app.open(Settings.load(store=store, lease=self.told.lease))
            stack.push_async_callback(app.close)
            environment = environment_of(store, self.told.lease, urls)
            own = {name: value for name, value in environment.items() if os.environ.get(name) != value}
            said = " ".join(f"{name}={shlex.quote(value)}" for name, value in own.items())
            self._say(f"to look into it: export {said}; {program()} ps")
            self.office = Office(self.providers, environment, self._say)
            self.fleet = stack.enter_context(Fleet(self.directory, WORKERS, environment))
            self.killer = Killer(self.fleet, self.providers, self, self.dice, self.told.kills)
            await self._until_the_end()
            return await self._judged()

    async def holders(self) -> Mapping[str, int]:
        """See `Sight`."""
        pids = {one.owner: one.pid for one in await app.opened.workers(within_ms=_AN_HOUR_MS)}
        found: dict[str, int] = {}
        for row in self._open.values():
            if row is not None and row.status == "running" and row.owner in pids:
                for operation in await app.opened.operations(TENANT, row.id):
                    found[operation.key] = pids[row.owner]
        return found

    async def _until_the_end(self) -> None:
        """People take their time, and nobody waits for them with the next kill."""
        async with asyncio.TaskGroup() as group:
            await self._go_on(group)

    async def _go_on(self, group: asyncio.TaskGroup) -> None:
        people: asyncio.Task[None] | None = None
        while (self.killer.left or len(self.trips) < self.told.trips or self._open) and self._in_time():
            for pid in self.fleet.fallen():
                self._say(f"worker pid {pid} has ended by itself")
            self.fleet.fill()
            unfinished = {id.removesuffix("-rollback") for id in self._open}
            if len(unfinished) < AT_ONCE and (self.killer.left or len(self.trips) < self.told.trips):
                await self._begin()
            await self._look()
            if how := await self.killer.look():
                self._say(f"[{self.told.kills - self.killer.left}] {how}")
                await self._look()
            if people is None or people.done():
                people = group.create_task(self.office.look([row for row in self._open.values() if row is not None]))
            await tick(_LOOK_S)

    def _in_time(self) -> bool:
        return epoch_ms() - self.begun < self.told.patience_s * 1000

    async def _begin(self) -> None:
        trip = drawn(self.dice, len(self.trips) + 1)
        await app.start(travelling, trip, id=trip.id)
        self.trips.append(trip)
        self._open[trip.id] = self._open[f"{trip.id}-rollback"] = None

    async def _look(self) -> None:
        """What the rows say of each trip that has not ended, and of what undoes it."""
        for id in {one.removesuffix("-rollback") for one in self._open}:
            row = self._open[id] = await app.opened.run(TENANT, RunId(id))
            back = self._open[f"{id}-rollback"] = await app.opened.run(TENANT, RunId(f"{id}-rollback"))
            assert row is not None
            if row.ended and (back is None or back.ended):
                del self._open[id], self._open[f"{id}-rollback"]
                self._say(f"{id} {'is booked' if back is None else f'{row.status}, and what it did is undone'}")

    async def _judged(self) -> Finding:
        watch = Watch(app.opened, [id for trip in self.trips for id in (trip.id, f"{trip.id}-rollback")])
        await watch.look()
        finding = audit(self.trips, watch.runs, await self.providers.ledgers())
        finding.differences += [f"not listed: {one}" for one in self.office.unlisted]
        return finding

    def _say(self, text: str) -> None:
        seconds = (epoch_ms() - self.begun) / 1000
        self.console.print(f"{seconds:6.1f} {text}", highlight=False, markup=False, soft_wrap=True)


def board(demo: Demo, finding: Finding) -> Table:
    """What there was, in figures."""
    table = Table("provider", "orders", "undone", "left of it", title="what the ledgers say")
    for name in MANNERS:
        left = f"{finding.cents[name] / 100:,.2f}"
        table.add_row(name, str(finding.orders[name]), str(finding.undos[name]), left)
    return table


async def play(told: Options) -> int:
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="outlive-travel-"))
    if (main := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
    demo = Demo(told, directory, console)
    finding = await demo.run()
    console.print(board(demo, finding))
    console.print(
        f"{finding.trips} trips, {finding.undone} of them undone; {told.kills - demo.killer.left} workers killed; "
        f"{finding.doubted} operations in doubt, {finding.resolved} decided by a person; "
        f"{finding.later} times told later. State in {directory}"
    )
    for one in finding.differences:
        console.print(one, style="red", markup=False, soft_wrap=True)
    if not finding.differences:
        console.print("ledgers and logs agree", style="green")
    return 1 if finding.differences else 0


def main() -> int:
    try:
        return asyncio.run(play(options(sys.argv[1:])))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    except (OutliveError, httpx.HTTPError, OSError, RuntimeError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
