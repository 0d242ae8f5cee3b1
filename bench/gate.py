"""The deploy gate: how long it takes to replay many recorded runs, beside reading and parsing them and nothing else.

One run is recorded; its rows are copied under other ids, since recording thousands would take longer than replaying.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg

from bench.effort import Effort
from bench.figures import Line, Spread, ratios
from bench.places import Place
from outlive import Outlive, Run
from outlive.store.postgres.connection import place_of

RUNS, ENTRIES, LIMIT_S = 10_000, 200, 60.0
_STEPS = ENTRIES - 3  # and the entries that begin, claim and end the run

app: Outlive[None] = Outlive()


def double(number: int) -> int:
    return 2 * number


@app.agent(version="1")
async def doubling(run: Run[None], steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await run.step(double, number)
    return total


async def gate(place: Place, effort: Effort) -> list[Line]:
    """10,000 logs of 200 entries, with as many processes as there are processors."""
    runs = effort.scaled(RUNS, least=20)
    url = place.fresh()
    recording = Outlive(url)
    recording.registry.add_agent(doubling)
    async with recording, recording.worker():
        handle = await recording.start(doubling, _STEPS, id="first")
        await handle.result()
    await asyncio.to_thread(_copied, url, runs)
    ours, floor = [], []
    for _ in range(max(1, effort.rounds // 2)):
        ours.append(await asyncio.to_thread(_replayed, url, runs))
        floor.append(await asyncio.to_thread(_read, url, runs))
    what = f"{runs:,} logs of {ENTRIES} entries replayed by {os.cpu_count()} processes"
    limit = LIMIT_S * runs / RUNS if runs == RUNS else None
    return [
        Line("gate", place.store, what, " s", Spread.of(ours), Spread.of(floor), limit=limit, limit_unit=" s"),
        Line("gate, ratio", place.store, "beside reading and parsing the rows", " s", Spread.of(ours), Spread.of(floor),
             ratio=ratios(ours, floor)),
    ]  # fmt: skip


def _replayed(url: str, runs: int) -> float:
    """The whole command, from its start to its end."""
    words = ["replay", "bench.gate:app", "--store", url, "--sample", str(runs), "--json"]
    root = Path(__file__).parents[1]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "outlive", *words], cwd=root, capture_output=True, text=True, check=True
    )  # fmt: skip
    took = time.perf_counter() - began
    found = json.loads(done.stdout)
    assert (found["runs"], found["verdict"]) == (runs, "same"), done.stderr
    return took


def _read(url: str, runs: int) -> float:
    """What nobody gets by without: the rows, one run after the other, and their JSON."""
    began = time.perf_counter()
    statement = "select body, payload from entry where tenant = 'default' and run_id = {} order by seq"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as opened:
            for number in range(1, runs):
                _parsed(opened.execute(statement.format("?"), (f"copy-{number}",)).fetchall())
    else:
        with psycopg.connect(place_of(url).conninfo) as connection:
            connection.execute(f"set search_path to {_schema(url)}".encode())
            for number in range(1, runs):
                _parsed(connection.execute(statement.format("%s").encode(), (f"copy-{number}",)).fetchall())
    return time.perf_counter() - began


def _parsed(rows: list[tuple[str, str | None]]) -> None:
    for body, payload in rows:
        json.loads(body)
        if payload is not None:
            json.loads(payload)


def _copied(url: str, runs: int) -> None:
    """The rows of the first run, under other ids."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as opened, opened:
            for table, own in (("run", "id"), ("entry", "run_id")):
                columns = [row[1] for row in opened.execute(f"pragma table_info({table})")]
                numbers = f"with recursive n(v) as (select 1 union all select v + 1 from n where v < {runs - 1})"
                opened.execute(f"{numbers} {_copy(table, own, columns, 'n')}")
        return
    with psycopg.connect(place_of(url).conninfo, autocommit=True) as connection:
        connection.execute(f"set search_path to {_schema(url)}".encode())
        for table, own in (("run", "id"), ("entry", "run_id")):
            asked = "select column_name from information_schema.columns where table_name = %s and table_schema = %s"
            columns = [row[0] for row in connection.execute(asked, (table, _schema(url))).fetchall()]
            connection.execute(_copy(table, own, columns, f"generate_series(1, {runs - 1}) n(v)").encode())
        connection.execute(b"analyze")


def _copy(table: str, own: str, columns: list[str], numbers: str) -> str:
    chosen = ", ".join("'copy-' || n.v" if name == own else f"t.{name}" for name in columns)
    return (
        f"insert into {table} ({', '.join(columns)}) select {chosen} from {table} t, {numbers} where t.{own} = 'first'"
    )


def _schema(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]
