"""Many runs at once: two worker processes, against two processes that insert and commit row by row."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from bench.agents import Plan, app_at, on_course, works
from bench.effort import Effort
from bench.figures import Line, Spread, ratios, short
from bench.logs import last_step
from bench.places import Place
from bench.processes import child, cpu_of_tree
from bench.sequential import serving
from outlive.app.client import Handle
from outlive.log.entry import Entry

RUNS, STEPS, PROCESSES = 200, 20, 2
LIMIT = 2.0


@dataclass(slots=True)
class Round:
    """Steps in a second, and milliseconds of processor for a step: of the processes, and of the database."""

    rate: float
    cpu: float
    database: float


async def throughput(place: Place, effort: Effort) -> list[Line]:
    """200 runs of 20 steps each, all there when the workers begin."""
    async with serving(place.fresh()) as app, on_course(app, "example") as course:
        await course.block(1)
        entry = await last_step(app.opened, "example")
    ours, floor = list[Round](), list[Round]()
    for _ in range(effort.rounds):
        floor.append(_inserters(place, entry, effort.scaled(RUNS * STEPS // PROCESSES)))
        ours.append(await _workers(place, effort.scaled(RUNS)))
    rates = [Spread.of([one.rate for one in each]) for each in (ours, floor)]
    what = f"{RUNS} runs × {STEPS} steps, {PROCESSES} worker processes; steps in a second"
    notes = (f"processor for a step: {_cpu(ours, place)}; floor {_cpu(floor, place)}",)
    ratio = ratios(rates[0].values, rates[1].values)
    return [Line("throughput", place.store, what, "/s", rates[0], rates[1], ratio, LIMIT, at_least=True, notes=notes)]


async def _workers(place: Place, runs: int) -> Round:
    url = place.fresh()
    async with app_at(url) as app:
        handles: list[Handle[None]] = [await app.start(works, Plan(steps=STEPS)) for _ in range(runs)]
        with ExitStack() as stack:
            workers = [stack.enter_context(child("worker", url)) for _ in range(PROCESSES)]
            before = _database(place)
            for one in workers:
                one.say("go")
            began = min(one.hear()["began"] for one in workers)
            for handle in handles:
                await handle.result()
            used = _database(place) - before
            told = [one.ask("stop") for one in workers]
    steps = sum(one["steps"] for one in told)
    if steps != runs * STEPS:
        raise RuntimeError(f"{steps:g} steps were made, not {runs * STEPS}")
    return _round(steps, max(one["at"] for one in told) - began, told, used)


def _inserters(place: Place, entry: Entry, count: int) -> Round:
    where = place.other()
    words = ("sqlite", where, "") if place.sqlite else ("postgres", place.base, where)
    like = json.dumps({name: value for name, value in asdict(entry).items() if name != "digest"})
    with ExitStack() as stack:
        each = [
            stack.enter_context(child("inserter", *words, str(count), f"run{number}", like))
            for number in range(PROCESSES)
        ]
        before = _database(place)
        for one in each:
            one.say("go")
        told = [one.hear() for one in each]
        used = _database(place) - before
    spent = max(one["at"] for one in told) - min(one["began"] for one in told)
    return _round(PROCESSES * count, spent, told, used)


def _round(steps: float, seconds: float, told: list[dict[str, float]], database: float) -> Round:
    return Round(steps / seconds, sum(one["cpu"] for one in told) * 1000 / steps, database * 1000 / steps)


def _database(place: Place) -> float:
    """Seconds of processor that the server has used; a library's are its process's."""
    return 0.0 if place.server is None else cpu_of_tree(place.server.postmaster)


def _cpu(rounds: list[Round], place: Place) -> str:
    text = f"{short(Spread.of([one.cpu for one in rounds]).median)} ms in the processes"
    if place.server is not None:
        text += f", {short(Spread.of([one.database for one in rounds]).median)} ms in the database"
    return text
