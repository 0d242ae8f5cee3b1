"""One run, one call after the other: the store port alone, a step, an operation; each against its floor."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.agents import app_at, on_course
from bench.effort import Effort
from bench.figures import Line, Spread, ratios
from bench.floor import floor_at
from bench.logs import last_step
from bench.places import Place
from outlive.app.compose import open_store
from outlive.app.outlive import Outlive
from outlive.app.settings import Settings
from outlive.log.entry import Draft
from outlive.model.clock import SystemClock
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import NewRun
from outlive.store.port import Append, Claim

# Floor and ours take turns in blocks as short as this, so that a slow moment of the disk meets both.
BLOCK, BLOCKS = 50, 6
STEP_LIMIT = {"sqlite": 2.0, "postgres": 1.5}
OPERATION_LIMIT = 1.25


async def steps(place: Place, effort: Effort) -> list[Line]:
    """Steps of one run; on PostgreSQL also as behind a pooler, where nothing is prepared."""
    ways = [("step", True)] if place.sqlite else [("step", True), ("step, not direct", False)]
    lines = []
    for name, direct in ways:
        ours, floor = await _steps_against_floor(place.fresh(direct=direct), place, effort)
        limit = STEP_LIMIT[place.store] if direct else None
        what = "one step of one run, after another" + ("" if direct else ", URL without direct=yes")
        lines.append(Line(name, place.store, what, " ms", ours, floor, ratios(ours.values, floor.values), limit))
    return lines


async def _steps_against_floor(url: str, place: Place, effort: Effort) -> tuple[Spread, Spread]:
    ours, theirs = list[float](), list[float]()
    async with serving(url) as app, on_course(app, "steps") as course:
        await course.block(20)
        floor = floor_at(place, await last_step(app.opened, "steps"))
        floor.insert(20)
        for _ in range(effort.rounds):
            mine, base = list[float](), list[float]()
            for _ in range(effort.scaled(BLOCKS)):
                base.append(floor.insert(BLOCK) * 1000)
                mine.append(await course.block(BLOCK) * 1000)
            ours.append(sum(mine) / len(mine))
            theirs.append(sum(base) / len(base))
        floor.close()
    return Spread.of(ours), Spread.of(theirs)


async def operations(place: Place, effort: Effort) -> list[Line]:
    """Operations of a tool that does nothing, against twice a step: intent and outcome are a commit each."""
    lines = []
    for kind in ("external", "idempotent"):
        ours, steps = list[float](), list[float]()
        async with serving(place.fresh()) as app, on_course(app, kind) as course:
            await course.block(10, kind)
            await course.block(20)
            for _ in range(effort.rounds):
                mine, base = list[float](), list[float]()
                for _ in range(effort.scaled(BLOCKS)):
                    base.append(await course.block(BLOCK) * 2000)
                    mine.append(await course.block(BLOCK // 2, kind) * 1000)
                ours.append(sum(mine) / len(mine))
                steps.append(sum(base) / len(base))
        what = f"an operation of an *{kind}* tool that does nothing; the floor is two steps"
        ratio = ratios(ours, steps)
        lines.append(
            Line(
                f"operation, {kind}",
                place.store,
                what,
                " ms",
                Spread.of(ours),
                Spread.of(steps),
                ratio,
                OPERATION_LIMIT,
            )
        )
    return lines


async def appends(place: Place, effort: Effort) -> list[Line]:
    """The store port alone, with the bytes of a step: how much of a step the store is."""
    async with serving(place.fresh()) as app, on_course(app, "example") as course:
        await course.block(1)
        entry = await last_step(app.opened, "example")
    draft = Draft(entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body, entry.payload)
    store = await open_store(Settings.load(store=place.fresh()), SystemClock())
    await store.start(NewRun(DEFAULT_TENANT, RunId("run"), "agent", "1", "{}", "digest"))
    [claimed] = await store.claim(Claim(Owner("bench"), {"agent": "build"}, 1, 3_600_000))
    floor, head = floor_at(place, entry), claimed.row.head
    ours, theirs = list[float](), list[float]()
    for number in range(effort.rounds + 1):
        mine, base = list[float](), list[float]()
        for _ in range(effort.scaled(BLOCKS)):
            base.append(floor.insert(BLOCK) * 1000)
            began = time.perf_counter()
            for _ in range(BLOCK):
                head = await store.append(Append(claimed.authority, head, (draft,), progress=True))
            mine.append((time.perf_counter() - began) * 1000 / BLOCK)
        if number:  # the first warms up
            ours.append(sum(mine) / len(mine))
            theirs.append(sum(base) / len(base))
    floor.close()
    await store.close()
    what = "one append through the store port, without the engine"
    return [Line("append", place.store, what, " ms", Spread.of(ours), Spread.of(theirs), ratios(ours, theirs))]


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[Outlive[None]]:
    """An application with a worker in this process."""
    app = app_at(url)
    async with app, app.worker():
        yield app
