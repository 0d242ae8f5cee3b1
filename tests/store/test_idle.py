"""What an idle worker costs: every statement of every connection counts, in a minute that passes at once."""

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outlive import Outlive, Run
from outlive.app.compose import attend_duties
from outlive.app.settings import Settings
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite import SQLiteStore, connection
from outlive.testing.clock import ManualClock
from tests.engine.rig import Rig
from tests.store.counted import tapped

MOST = 12
app: Outlive[None] = Outlive()


@app.agent()
async def sleeper(run: Run[None], task: str) -> str:
    return task


async def idle(rig: Rig, count: Callable[[], int]) -> int:
    """Statements of a minute, after the worker has served one run and calmed down."""
    worker = rig.worker(rig.app(app))
    attend_duties(worker, rig.store, Settings(), rig.clock)
    serving = asyncio.ensure_future(worker.run())
    await rig.next_wait(serving)
    handle = await rig.app(app).start(sleeper, "done", id="run")
    while not (await rig.row("run")).ended:
        await rig.serve_for(serving, timedelta(milliseconds=20))
    assert handle.id == "run"
    await rig.serve_for(serving, timedelta(minutes=2))
    before = count()
    await rig.serve_for(serving, timedelta(minutes=1))
    made = count() - before
    worker.stop()
    await serving
    return made


async def test_an_idle_worker_makes_at_most_12_statements_a_minute_on_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    untraced = connection.connect

    def traced(path: Path, **options: Any) -> sqlite3.Connection:
        database = untraced(path, **options)
        database.set_trace_callback(made.append)
        return database

    monkeypatch.setattr(connection, "connect", traced)
    clock = ManualClock()
    store = SQLiteStore(tmp_path / "runs.db", name="runs", clock=clock, unsafe_durability=True, synchronous="off")
    await store.open()
    try:
        assert 6 <= await idle(Rig(store, clock), lambda: len(made)) <= MOST, made[-30:]
    finally:
        await store.close()


async def test_an_idle_worker_makes_at_most_12_statements_a_minute_on_postgres(postgres: str, tmp_path: Path) -> None:
    clock = ManualClock()
    async with tapped(postgres, tmp_path) as (tap, url):
        store = PostgresStore(place_of(url), clock=clock)
        await store.open()
        try:
            assert 6 <= await idle(Rig(store, clock), lambda: len(tap.statements)) <= MOST, tap.statements[-30:]
            assert any(one.startswith(b"listen") for one in tap.statements)
        finally:
            await store.close()
