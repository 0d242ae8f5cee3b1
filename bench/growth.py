"""Whether a run becomes dearer as it grows: the time of a step far into it, and the bytes that it leaves."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psycopg

from bench.agents import Course, app_at, asked, asked_in_turns, on_course
from bench.effort import Effort
from bench.figures import Line, Spread, ratios, short
from bench.logs import log_of
from bench.places import Place
from bench.sequential import serving
from outlive import Agent
from outlive.store.port import Store
from outlive.store.postgres.connection import place_of

EARLY, LATE = 100, 5000
BLOCK = 20
TIME_LIMIT = 1.10
BYTES_FACTOR, BYTES_MORE = 1.3, 300


async def growth(place: Place, effort: Effort) -> list[Line]:
    """With turns, each of one step; and without, where the replay window holds the whole run."""
    lines = []
    for kind, agent in (("turns", asked_in_turns), ("no turns", asked)):
        lines += await _grown(place, effort, kind, agent)
    return lines


async def _grown(place: Place, effort: Effort, kind: str, agent: Agent[str, None]) -> list[Line]:
    """Two runs of one worker take turns, one of them young and one of them old; then the store is weighed."""
    url = place.fresh()
    async with app_at(url):
        pass
    empty = size_of(place, url)
    early, late, used = list[float](), list[float](), [0.0, 0.0]
    block = effort.scaled(BLOCK, least=2)
    async with serving(url) as app, on_course(app, "old", agent) as old:
        await old.block(effort.scaled(LATE - 5 * effort.rounds * block // 2))
        for number in range(effort.rounds):
            async with on_course(app, f"young{number}", agent) as young:
                await young.block(effort.scaled(EARLY - 5 * block // 2))
                each = [[await _timed(one, block, used, n) for n, one in enumerate((young, old))] for _ in range(5)]
            early.append(sum(one for one, _ in each) * 1000 / len(each))
            late.append(sum(one for _, one in each) * 1000 / len(each))
        weighed = [await _weighed(app.opened, name) for name in ("old", *(f"young{n}" for n in range(effort.rounds)))]
    young_ms, old_ms = (one * 1000 / (5 * block * effort.rounds) for one in used)
    content, calls = sum(one for one, _ in weighed), sum(one for _, one in weighed)
    each_call = (size_of(place, url) - empty) / calls
    what = f"a step at {LATE:,}, {kind}; the floor is one at {EARLY}"
    bytes_limit = BYTES_FACTOR * content / calls + BYTES_MORE
    return [
        Line(f"growth, {kind}", place.store, what, " ms", Spread.of(late), Spread.of(early), ratios(late, early),
             TIME_LIMIT, notes=(f"processor of the worker: {short(old_ms)} ms, and at {EARLY} {short(young_ms)} ms",)),
        Line(f"bytes, {kind}", place.store, f"bytes stored for a call of {short(content / calls)} bytes, {kind}", " B",
             Spread.of([each_call]), limit=bytes_limit, limit_unit=" B"),
    ]  # fmt: skip


async def _timed(course: Course, count: int, used: list[float], place: int) -> float:
    """Seconds for a call, and what so many of them used of the processor, which no other process disturbs."""
    began = time.process_time()
    took = await course.block(count)
    used[place] += time.process_time() - began
    return took


async def _weighed(store: Store, run: str) -> tuple[int, int]:
    """The bytes of all payloads of a run, and how many calls they are of: steps, and the states of turns."""
    payloads = [(entry.payload or "").encode() for entry in await log_of(store, run) if entry.kind in ("step", "turn")]
    return sum(map(len, payloads)), len(payloads)


def size_of(place: Place, url: str) -> int:
    """The bytes of a store that nobody has open: its file, or its tables with their indexes, as they are."""
    if place.sqlite:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            database.execute("pragma wal_checkpoint(truncate)")
        return Path(url.removeprefix("sqlite:///")).stat().st_size
    found = place_of(url)
    with psycopg.connect(found.conninfo, autocommit=True) as connection:
        cursor = connection.execute(
            "select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = %s and c.relkind = 'r'",
            (found.schema,),
        )
        (size,) = cursor.fetchone() or (0,)
    return int(size)
