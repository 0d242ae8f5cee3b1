"""A run that is started in the caller's own transaction exists exactly when that commits."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from outlive import Run
from outlive.errors import Refused, RunExists
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.model.run import RunFilter
from outlive.store.port import Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from tests.app.callers import Caller, Kind, caller_on
from tests.engine import subject
from tests.engine.rig import Rig
from tests.engine.subject import RUN, base, does
from tests.engine.subject import subject as agent

KINDS: list[Kind] = ["sqlite3", "psycopg", "psycopg async"]


@dataclass
class Ground:
    """Runs, and where they are: for the connection of whoever starts them."""

    kind: Kind
    place: str
    rig: Rig

    @asynccontextmanager
    async def caller(self, *, autocommit: bool = False) -> AsyncIterator[Caller]:
        """Somebody who has just written an order, and not committed it."""
        async with caller_on(self.kind, self.place) as making:
            await making.do("create table if not exists orders (what text)")
            await making.commit()
        async with caller_on(self.kind, self.place, autocommit=autocommit) as caller:
            if not autocommit:
                await caller.do("insert into orders values ('tea')")
            yield caller


@pytest.fixture(params=KINDS)
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    subject.reset()
    does.body = _done
    clock, kind = ManualClock(), request.param
    store: Store
    if kind == "sqlite3":
        place = str(tmp_path / "runs.db")
        store = SQLiteStore(Path(place), name="runs", clock=clock, unsafe_durability=True, synchronous="off", wait=0.2)
    else:
        place = str(request.getfixturevalue("postgres"))
        store = PostgresStore(place_of(place), clock=clock)
    await store.open()
    try:
        yield Ground(kind, place, Rig(store, clock))
    finally:
        await store.close()


async def _done(run: Run[None]) -> object:
    return "done"


async def runs(ground: Ground) -> list[str]:
    return [row.id for row in await ground.rig.store.runs(DEFAULT_TENANT, RunFilter())]


async def test_after_the_commit_the_run_is_there_and_a_worker_takes_it(ground: Ground) -> None:
    rig, app = ground.rig, ground.rig.app(base)
    async with ground.caller() as caller:
        handle = await app.start(agent, "task", id=RUN, connection=caller.connection)
        assert await runs(ground) == [], "nobody else sees it yet"
        worker = rig.worker(base)
        await rig.settle(worker)
        await caller.commit()
    assert await handle.status() == "ready"
    await rig.settle(worker)
    assert await handle.result() == "done"
    assert await rig.kinds(RUN) == ["started", "ended"]


async def test_after_a_rollback_there_is_nothing(ground: Ground) -> None:
    rig, app = ground.rig, ground.rig.app(base)
    async with ground.caller() as caller:
        await app.start(agent, "task", id=RUN, connection=caller.connection)
        await caller.rollback()
        assert await caller.do("select * from orders") == []
    assert await runs(ground) == []
    await app.start(agent, "another task", id=RUN)
    await rig.settle(rig.worker(base))
    assert await runs(ground) == [RUN]


async def test_a_connection_that_was_dropped_leaves_nothing(ground: Ground) -> None:
    app = ground.rig.app(base)
    async with ground.caller() as caller:
        await app.start(agent, "x" * 100_000, id=RUN, connection=caller.connection)
        await caller.drop()
    assert await runs(ground) == []


async def test_several_in_one_transaction_and_the_same_one_twice(ground: Ground) -> None:
    app = ground.rig.app(base)
    async with ground.caller() as caller:
        for run in ("a", "b", "a"):
            await app.start(agent, "x" * 100_000, id=run, connection=caller.connection)
        with pytest.raises(RunExists, match="input"):
            await app.start(agent, "y", id="a", connection=caller.connection)
        await caller.do("insert into orders values ('more tea')")
        await caller.commit()
        assert len(await caller.do("select * from orders")) == 2
    assert sorted(await runs(ground)) == ["a", "b"]
    [started] = await ground.rig.entries("a")
    assert started.payload == f'"{"x" * 100_000}"'


async def test_a_run_that_is_there_already_is_found(ground: Ground) -> None:
    app = ground.rig.app(base)
    await app.start(agent, "task", id=RUN)
    async with ground.caller() as caller:
        await app.start(agent, "task", id=RUN, connection=caller.connection)
        await caller.rollback()
    assert await runs(ground) == [RUN]


async def test_the_first_run_of_a_tenant(ground: Ground) -> None:
    """Its key is made with it; a rolled back one leaves no key behind that another does not have."""
    rig, app = ground.rig, ground.rig.app(base)
    for outcome in ("rollback", "commit"):
        async with ground.caller() as caller:
            await app.start(agent, "task", id=RUN, tenant="new", connection=caller.connection)
            await (caller.commit() if outcome == "commit" else caller.rollback())
    handle = await app.start(agent, "task", id=RUN, tenant="new")
    assert len(await rig.store.entries(Tenant("new"), RunId(RUN))) == 1, "the same key gives the same digest"
    await rig.settle(rig.worker(base))
    assert await handle.result() == "done"


async def test_without_a_transaction_it_is_refused(ground: Ground) -> None:
    app = ground.rig.app(base)
    async with ground.caller(autocommit=True) as caller:
        with pytest.raises(Refused, match="no open transaction; begin one"):
            await app.start(agent, "task", id=RUN, connection=caller.connection)
        await caller.do("begin")
        await app.start(agent, "task", id=RUN, connection=caller.connection)
        await caller.do("commit")
    assert await runs(ground) == [RUN]


async def test_the_callers_transaction_may_begin_with_it(ground: Ground) -> None:
    app = ground.rig.app(base)
    async with ground.caller() as caller:
        await caller.rollback()
        await app.start(agent, "task", id=RUN, connection=caller.connection)
        await caller.rollback()
        assert await runs(ground) == []
        await app.start(agent, "task", id=RUN, connection=caller.connection)
        await caller.commit()
    assert await runs(ground) == [RUN]


async def test_another_database_is_refused(ground: Ground, tmp_path: Path, postgres_server: str) -> None:
    app = ground.rig.app(base)
    if ground.kind == "sqlite3":
        async with caller_on("sqlite3", str(tmp_path / "other.db")) as caller:
            with pytest.raises(Refused, match=r"open on .*other\.db"):
                await app.start(agent, "task", id=RUN, connection=caller.connection)
        return
    async with caller_on("psycopg", postgres_server, autocommit=True) as making:
        await making.do("drop database if exists elsewhere")
        await making.do("create database elsewhere")
    elsewhere = urlunsplit(urlsplit(ground.place)._replace(path="/elsewhere"))
    try:
        other = PostgresStore(place_of(elsewhere), clock=ManualClock(seed="elsewhere"))
        await other.open()
        await other.key(DEFAULT_TENANT)
        await other.close()
        async with caller_on(ground.kind, elsewhere) as caller:
            with pytest.raises(Refused, match="another database"):
                await app.start(agent, "task", id=RUN, connection=caller.connection)
    finally:
        async with caller_on("psycopg", postgres_server, autocommit=True) as making:
            await making.do("drop database elsewhere with (force)")


async def test_what_is_no_connection_is_refused(ground: Ground) -> None:
    app = ground.rig.app(base)
    with pytest.raises(Refused, match="it takes a"):
        await app.start(agent, "task", id=RUN, connection="postgresql://db")


async def test_rows_of_the_callers_connection_stay_as_they_were(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", name="runs", clock=ManualClock(), unsafe_durability=True)
    await store.open()
    app = Rig(store, ManualClock()).app(base)
    async with caller_on("sqlite3", str(tmp_path / "runs.db")) as caller:
        connection = caller.connection
        assert isinstance(connection, sqlite3.Connection)
        connection.row_factory, connection.text_factory = (lambda _, row: list(row)), bytes
        await app.start(agent, "task", id=RUN, connection=connection)
        assert connection.execute("select id from run").fetchall() == [[RUN.encode()]]
        connection.commit()
    await store.close()


async def test_a_sqlite_connection_of_another_thread_is_refused(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", name="runs", clock=ManualClock(), unsafe_durability=True)
    await store.open()
    made: list[sqlite3.Connection] = []
    thread = threading.Thread(target=lambda: made.append(sqlite3.connect(tmp_path / "runs.db")))
    thread.start()
    thread.join()
    with pytest.raises(Refused, match="same thread"):
        await Rig(store, ManualClock()).app(base).start(agent, "task", id=RUN, connection=made[0])
    await store.close()
