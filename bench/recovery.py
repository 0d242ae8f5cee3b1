"""What the death of a worker costs: the time to the next new step, and what is done again; and the cost of loading."""

from __future__ import annotations

import time
from asyncio import to_thread
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.agents import Milestone, Plan, app_at, goes_on, milestones, works
from bench.effort import Effort
from bench.figures import Line, Spread, ratios
from bench.logs import log_of
from bench.places import Place
from bench.processes import child
from bench.waiting import until
from outlive.app.outlive import Outlive

STEPS, LEASE_S = 2000, 2
SHORT, LONG = 200, 5000
LOAD_LIMIT = 1.25


@dataclass(frozen=True, slots=True)
class Trace:
    """A line that a step has left: its number, its process, its moment."""

    number: int
    pid: int
    at: float


async def recovery(place: Place, effort: Effort) -> list[Line]:
    """SIGKILL half way through a run without turns, while another worker stands by."""
    seconds, again = list[float](), list[float]()
    for number in range(effort.rounds):
        took, repeated = await _killed(place, place.folder / f"steps{number}", effort.scaled(STEPS, least=40))
        seconds.append(took)
        again.append(repeated)
    what = f"SIGKILL in a run of {STEPS:,} steps, lease {LEASE_S} s: seconds to the next new step"
    return [
        Line("recovery", place.store, what, " s", Spread.of(seconds), limit=LEASE_S + 1, limit_unit=" s"),
        Line("recovery, again", place.store, "recorded steps that are executed again", "", Spread.of(again),
             limit=0, limit_unit=""),
    ]  # fmt: skip


async def _killed(place: Place, file: Path, steps: int) -> tuple[float, int]:
    url, lease = place.fresh(), {"OUTLIVE_LEASE": f"{LEASE_S}s"}
    async with app_at(url) as app:
        with child("worker", url, environment=lease) as first, child("worker", url, environment=lease) as second:
            first.ask("go")
            handle = await app.start(works, Plan(steps=steps, file=str(file)))
            await to_thread(until, lambda: left(file) > 0, every=0.02)
            second.ask("go")
            await to_thread(until, lambda: left(file) >= steps // 2, every=0.02)
            first.kill()
            died, recorded = time.perf_counter(), await _recorded(app, handle.id)
            await handle.result()
            second.ask("stop")
    found = traces(file)
    again = [n for n, times in Counter(one.number for one in found).items() if times > 1 and n < recorded]
    if recorded < steps // 2 - 1:
        raise RuntimeError(f"{steps // 2} steps have begun, but only {recorded} are recorded")
    if {one.number for one in found} != set(range(steps)):
        raise RuntimeError("a step was never executed")
    return min(one.at for one in found if one.pid == second.pid and one.number >= recorded) - died, len(again)


async def _recorded(app: Outlive[None], run: str) -> int:
    """How many steps the log of the run has."""
    return sum(entry.kind == "step" for entry in await log_of(app.opened, run))


def left(file: Path) -> int:
    """How many lines there are by now."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def traces(file: Path) -> list[Trace]:
    """What the steps have left, in order."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [Trace(int(number), int(pid), float(at)) for number, pid, at in map(str.split, lines)]


async def loading(place: Place, effort: Effort) -> list[Line]:
    """A worker begins with one run that has few turns behind it, or many: milliseconds to its first new step."""
    lengths = {"short": effort.scaled(SHORT), "long": effort.scaled(LONG)}
    took: dict[str, list[float]] = {name: [] for name in lengths}
    async with app_at(place.fresh()) as app:
        plan = Plan(steps=10 * LONG)
        for name, turns in lengths.items():
            await app.start(goes_on, plan, id=name, queue=name)
            await _until_turn(app, name, turns)
        for _ in range(effort.rounds):
            for name in lengths:
                took[name].append(await _until_turn(app, name, 0) * 1000)
    what = f"a worker that begins with a run of {LONG:,} turns: to its first new step; the floor is one of {SHORT}"
    ours, floor = Spread.of(took["long"]), Spread.of(took["short"])
    return [Line("loading", place.store, what, " ms", ours, floor, ratios(ours.values, floor.values), LOAD_LIMIT)]


async def _until_turn(app: Outlive[None], queue: str, turn: int) -> float:
    """Serve a queue until a step of this turn begins; the seconds that it took."""
    milestones[:] = [Milestone(turn)]
    began = time.perf_counter()
    async with app.worker(queues=(queue,)):
        await milestones[0].reached.wait()
    return milestones[0].at - began
