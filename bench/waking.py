"""From start to the first step on an idle worker of another process, against a bare notification and claim."""

from __future__ import annotations

import time

from bench.agents import app_at, wakes
from bench.bells import Bell, PostgresBell, SQLiteBell
from bench.effort import Effort
from bench.figures import Line, Spread, percentile, ratios
from bench.places import Place
from bench.processes import Child, child
from bench.waiting import tick
from outlive.app.outlive import Outlive
from outlive.store.postgres.connection import place_of

P50_LIMIT, P99_LIMIT_MS = 3.0, 30.0


async def waking(place: Place, effort: Effort) -> list[Line]:
    """Milliseconds from start to first step, of starts with gaps of up to half a second between them."""
    url, where = place.fresh(), place.other()
    words = ("sqlite", where, "") if place.sqlite else ("postgres", place.base, where)
    ours, floor = list[list[float]](), list[list[float]]()
    async with app_at(url) as app:
        mine: Bell = SQLiteBell(where) if place.sqlite else PostgresBell(place_of(place.base).conninfo, where)
        with child("worker", url) as worker, child("bell", *words) as listener:
            worker.ask("go")
            for number in range(effort.rounds):
                both = [await _one(app, mine, listener, gap) for gap in _gaps(effort.scaled(40), number)]
                ours.append([one for one, _ in both])
                floor.append([one for _, one in both])
            worker.ask("stop")
    return _lines(place.store, ours, floor)


async def _one(app: Outlive[None], bell: Bell, listener: Child, gap: float) -> tuple[float, float]:
    await tick(gap)
    began = time.perf_counter()
    bell.ring()
    theirs = listener.hear()["at"] - began
    await tick(0.03)
    began = time.perf_counter()
    handle = await app.start(wakes, 0)
    ours = await handle.result() - began
    return ours * 1000, theirs * 1000


def _gaps(count: int, seed: int) -> list[float]:
    """Seconds between starts: most are short, a few long, none in step with a poll."""
    return [0.03 + 0.4 * ((0.618034 * (n + 1) + 0.2 * seed) % 1) ** 3 for n in range(count)]


def _lines(store: str, ours: list[list[float]], floor: list[list[float]]) -> list[Line]:
    medians = [Spread.of([percentile(one, 50) for one in each]) for each in (ours, floor)]
    last = [percentile([one for each in all_rounds for one in each], 99) for all_rounds in (ours, floor)]
    count = sum(map(len, ours))
    what = "start to first step on an idle worker of another process, {} of " + f"{count}"
    return [
        Line("wake, p50", store, what.format("half"), " ms", medians[0], medians[1],
             ratios(medians[0].values, medians[1].values), P50_LIMIT),
        Line("wake, p99", store, what.format("99 in 100"), " ms", Spread.of([last[0]]), Spread.of([last[1]]),
             limit=P99_LIMIT_MS, limit_unit=" ms"),
    ]  # fmt: skip
