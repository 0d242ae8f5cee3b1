"""What waits costs nothing and wakes at once: many runs that wait for a message, many timers that come due together.

The runs of `waiting` are started and driven until they wait. Those of `timers` are copies of one that did, row by row,
because starting them would take longer than what is measured: a log does not hold the id of its run.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import psycopg

from bench.agents import app_at, hears, naps, wakes
from bench.effort import Effort
from bench.figures import Line, Spread, percentile
from bench.places import Place
from bench.processes import Child, child
from bench.waiting import tick
from outlive.app.client import Handle
from outlive.app.outlive import Outlive
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.postgres.connection import place_of

MANY, SENT = 10_000, 200
# At the rate of 100,000 in a minute.
TIMERS, WITHIN_S = 20_000, 12.0
P50_LIMIT_MS, P99_LIMIT_MS, MEMORY_LIMIT = 10.0, 50.0, 1.05
_WARM = 0.1


async def waiting(place: Place, effort: Effort) -> list[Line]:
    """Runs that wait for a message: what a worker holds of them, and how soon one goes on."""
    url, many = place.fresh(), effort.scaled(MANY, least=20)
    async with app_at(url) as app:
        with child("worker", url) as worker:
            worker.ask("go")
            warm = max(2, round(many * _WARM))
            runs = await _asleep(app, 0, warm)
            before = worker.ask("count")
            runs += await _asleep(app, warm, many)
            after = worker.ask("count")
            took = await _sent(runs, effort.scaled(SENT, least=5))
            worker.ask("stop")
    what = f"memory of a worker when {many:,} runs wait, and when {warm:,} did"
    woken = "message to the next step's entry, with {:,} waiting, {} of {}"
    return [
        Line("waiting, loaded", place.store, f"runs in memory when {many:,} wait", "", Spread.of([after["loaded"]]),
             limit=0.0, limit_unit=""),
        Line("waiting, memory", place.store, what, " MB", Spread.of([after["rss"]]), Spread.of([before["rss"]]),
             Spread.of([after["rss"] / before["rss"]]), MEMORY_LIMIT),
        Line("waiting, wake p50", place.store, woken.format(many, "half", len(took)), " ms",
             Spread.of([percentile(took, 50)]), limit=P50_LIMIT_MS, limit_unit=" ms"),
        Line("waiting, wake p99", place.store, woken.format(many, "99 in 100", len(took)), " ms",
             Spread.of([percentile(took, 99)]), limit=P99_LIMIT_MS, limit_unit=" ms"),
    ]  # fmt: skip


async def _asleep(app: Outlive[None], first: int, end: int) -> list[Handle[float]]:
    """Start these runs, and return when all of them wait."""
    runs = [await app.start(hears, 0, id=f"hears-{number}") for number in range(first, end)]
    for run in runs:
        while await run.status() != "waiting":
            await tick(0.05)
    await tick(0.5)
    return runs


async def _sent(runs: list[Handle[float]], count: int) -> list[float]:
    """Milliseconds for each of so many messages, with gaps that are in step with nothing."""
    took = []
    for number, run in enumerate(runs[:: max(1, len(runs) // count)][:count]):
        await tick(0.03 + 0.4 * ((0.618034 * number) % 1) ** 3)
        began = time.perf_counter()
        await run.send("go", "now", key="1")
        took.append((await run.result() - began) * 1000)
    return took


@dataclass(frozen=True, slots=True)
class Claimed:
    """A timer that was claimed: when it was due and when it was claimed, in seconds."""

    due: float
    at: float


async def timers(place: Place, effort: Effort) -> list[Line]:
    """Timers that come due within a minute: how long they take, in which order, and how long new starts wait."""
    url, many, within = place.fresh(), effort.scaled(TIMERS, least=50), WITHIN_S * max(effort.share, 0.02)
    async with app_at(url) as app:
        with _copier(place, url) as copier:
            await _template(app, url)
            copier.copy(many)
            began = await app.opened.now() / 1000 + 2.0
            copier.due(began, within)
            with child("worker", url) as worker:
                worker.ask("go")
                starts = await _beside(app, copier, many, worker)
                worker.ask("stop")
            claimed = copier.claimed(began, within, many)
    took = max(one.at for one in claimed) - began
    latest, overtaken = 0.0, 0.0
    for one in sorted(claimed, key=lambda each: each.at):
        overtaken, latest = max(overtaken, latest - one.due), max(latest, one.due)
    what = f"{many:,} timers that came due within {within:g} s"
    beside = f"start to first step meanwhile, {{}} of {len(starts)}"
    return [
        Line("timers, worked off", place.store, f"{what}: from the first to the last claim", " s", Spread.of([took])),
        Line("timers, order", place.store, f"{what}: by how much one was overtaken at most", " s",
             Spread.of([overtaken])),
        Line("timers, starts p50", place.store, beside.format("half"), " ms", Spread.of([percentile(starts, 50)])),
        Line("timers, starts p99", place.store, beside.format("99 in 100"), " ms", Spread.of([percentile(starts, 99)])),
    ]  # fmt: skip


async def _template(app: Outlive[None], url: str) -> None:
    """One run that waits for a time, driven by a worker that is gone before the time has come."""
    run = await app.start(naps, 0, id="template")
    with child("worker", url) as worker:
        worker.ask("go")
        while await run.status() != "waiting":
            await tick(0.01)
        worker.ask("stop")
    row = await app.opened.run(DEFAULT_TENANT, RunId("template"))
    assert row is not None and row.status == "waiting"
    await tick(2.0)  # until its own time has come: what is copied is due from now on


async def _beside(app: Outlive[None], copier: Copier, many: int, worker: Child) -> list[float]:
    """Milliseconds of starts, one after the other, for as long as timers are left."""
    took: list[float] = []
    while copier.ended() < many or not took:
        began = time.perf_counter()
        handle = await app.start(wakes, 0)
        took.append((await handle.result() - began) * 1000)
        await tick(0.2)
    return took


class Copier(Protocol):
    """Rows of the store, written and read by the driver."""

    def copy(self, many: int) -> None: ...

    def due(self, began: float, within: float) -> None: ...

    def ended(self) -> int: ...

    def claimed(self, began: float, within: float, many: int) -> list[Claimed]: ...


_NUMBERED = "cast(substr(id, 6) as integer)"
_COPIES = "with recursive n (i) as (select 0 union all select i + 1 from n where i + 1 < {many})"
_ENDED = "select count(*) from {schema}run where agent = 'naps' and status = 'succeeded'"
_CLAIMS = (
    "select cast(substr(run_id, 6) as integer), min(at) from {schema}entry"
    " where kind = 'claimed' and epoch = 2 and run_id like 'copy-%' group by run_id"
)


class _Rows:
    """The same for both drivers; `run` executes a statement and returns its rows."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def run(self, statement: str) -> list[tuple[int, ...]]:
        raise NotImplementedError

    def columns(self, table: str) -> list[str]:
        raise NotImplementedError

    def copy(self, many: int) -> None:
        for table, named in (("run", "id"), ("entry", "run_id")):
            names = self.columns(table)
            values = ["'copy-' || n.i" if name == named else f"it.{name}" for name in names]
            self.run(
                f"insert into {self.schema}{table} ({', '.join(names)}) {_COPIES.format(many=many)}"
                f" select {', '.join(values)} from n cross join {self.schema}{table} as it"
                f" where it.{named} = 'template'"
            )
        self.run(f"update {self.schema}run set paused_at = 1 where id = 'template'")

    def due(self, began: float, within: float) -> None:
        many = self.run(f"select count(*) from {self.schema}run where id like 'copy-%'")[0][0]
        at = f"{round(began * 1000)} + {_NUMBERED} * {round(within * 1000)} / {many}"
        self.run(f"update {self.schema}run set wake_at = {at} where id like 'copy-%'")

    def ended(self) -> int:
        return int(self.run(_ENDED.format(schema=self.schema))[0][0])

    def claimed(self, began: float, within: float, many: int) -> list[Claimed]:
        rows = self.run(_CLAIMS.format(schema=self.schema))
        return [Claimed(began + number * within / many, at / 1000) for number, at in rows]


class _SQLiteRows(_Rows):
    def __init__(self, path: str) -> None:
        super().__init__("")
        self._database = sqlite3.connect(path, isolation_level=None, timeout=60)

    def run(self, statement: str) -> list[tuple[int, ...]]:
        return self._database.execute(statement).fetchall()

    def close(self) -> None:
        self._database.close()

    def columns(self, table: str) -> list[str]:
        return [str(row[1]) for row in self._database.execute(f"pragma table_info({table})")]


class _PostgresRows(_Rows):
    def __init__(self, url: str) -> None:
        place = place_of(url)
        super().__init__(f"{place.schema}.")
        self._connection = psycopg.connect(place.conninfo, autocommit=True)

    def run(self, statement: str) -> list[tuple[int, ...]]:
        cursor = self._connection.execute(statement.encode())
        return [tuple(row) for row in cursor.fetchall()] if cursor.description is not None else []

    def close(self) -> None:
        self._connection.close()

    def columns(self, table: str) -> list[str]:
        cursor = self._connection.execute(f"select * from {self.schema}{table} limit 0".encode())
        return [column.name for column in cursor.description or ()]


@contextmanager
def _copier(place: Place, url: str) -> Iterator[Copier]:
    rows = _SQLiteRows(url.removeprefix("sqlite:///")) if place.sqlite else _PostgresRows(url)
    try:
        yield rows
    finally:
        rows.close()
