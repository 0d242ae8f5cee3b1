"""From start to the first step on an idle worker of another process, against a bare notification and claim.

The floor on PostgreSQL is LISTEN in one process, one INSERT with its NOTIFY in the other, one claiming UPDATE. A file
tells nobody of a write: on SQLite the floor looks every 5 ms.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Protocol

import psycopg

from bench.agents import app_at, wakes
from bench.effort import Effort
from bench.figures import Line, Spread, percentile, ratios
from bench.places import Place
from bench.processes import Child, child
from bench.waiting import pause, tick
from outlive.app.outlive import Outlive
from outlive.store.postgres.connection import place_of

LOOK_EVERY = 0.005
P50_LIMIT, P99_LIMIT_MS = 3.0, 30.0


class Bell(Protocol):
    """One side of the floor rings, the other claims."""

    def ring(self) -> None: ...

    def claim(self) -> bool: ...

    def wait(self) -> None: ...


class SQLiteBell:
    """A table in a file, and a process that looks at it."""

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = full")
        self._database.execute("create table if not exists task (id integer primary key, owner text) strict")
        self._database.execute("create index if not exists task_free on task (id) where owner is null")

    def ring(self) -> None:
        self._database.execute("insert into task default values")

    def claim(self) -> bool:
        found = self._database.execute("select min(id) from task where owner is null").fetchone()[0]
        if found is None:
            return False
        changed = self._database.execute("update task set owner = 'me' where id = ? and owner is null", (found,))
        return changed.rowcount == 1

    def wait(self) -> None:
        pause(LOOK_EVERY)


class PostgresBell:
    """A table, and a process that listens."""

    def __init__(self, url: str, schema: str) -> None:
        conninfo = place_of(url).conninfo
        self._schema = schema.encode()
        self._acting = psycopg.connect(conninfo, autocommit=True)
        self._listening = psycopg.connect(conninfo, autocommit=True)
        self._acting.execute(b"create schema if not exists " + self._schema)
        self._acting.execute(
            b"create table if not exists " + self._schema + b".task (id bigserial primary key, owner text)"
        )
        self._listening.execute(b"listen " + self._schema)

    def ring(self) -> None:
        self._acting.execute(
            b"with added as (insert into " + self._schema + b".task default values returning id)"
            b" select pg_notify('" + self._schema + b"', '') from added"
        )

    def claim(self) -> bool:
        cursor = self._acting.execute(
            b"update " + self._schema + b".task set owner = 'me' where id ="
            b" (select id from " + self._schema + b".task where owner is null limit 1 for update skip locked)"
        )
        return cursor.rowcount == 1

    def wait(self) -> None:
        for _ in self._listening.notifies(timeout=1, stop_after=1):
            return


async def waking(place: Place, effort: Effort) -> list[Line]:
    """Milliseconds from start to first step, of starts with gaps of up to half a second between them."""
    url, where = place.fresh(), place.other()
    words = ("sqlite", where, "") if place.sqlite else ("postgres", place.base, where)
    ours, floor = list[list[float]](), list[list[float]]()
    async with app_at(url) as app:
        mine: Bell = SQLiteBell(where) if place.sqlite else PostgresBell(place.base, where)
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
