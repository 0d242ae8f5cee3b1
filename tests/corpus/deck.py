"""A store of either kind with a key that is known, workers for it, and a world in which calls can be held up."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias, cast

import psycopg

from outlive.app.compose import worker_of
from outlive.app.settings import Settings
from outlive.engine.worker import Worker
from outlive.log.entry import Entry
from outlive.model.errors import LeaseLost
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.run import Head, RunRow
from outlive.secret import Secrets
from outlive.store.keeping import Kept
from outlive.store.port import Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from tests.corpus.people import Person, app
from tests.sweep.corpus import Bank

KEY = bytes(range(32))
RUN = RunId("recorded")
# A directory in which a file is made, or the URL of a schema on a server.
Place: TypeAlias = Path | str
_SETTINGS = Settings()


class Untouchable:
    """The world of a replay: whoever reaches for it has executed something that was recorded."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"the replay reached for {name} of the outside world")


class Token:
    """The one secret of the corpus."""

    def get(self, name: str) -> str | None:
        return "t0p-s3cret-c4nary"

    def names(self) -> list[str]:
        return ["bank/token"]

    def describe(self, name: str) -> str:
        return "the tape"


@dataclass
class World(Bank):
    """A bank to which something can happen while it is asked: what, by what it is asked for. Each happens once."""

    happens: dict[str, Callable[[], Awaitable[object]]] = field(default_factory=dict)

    async def meet(self, what: str) -> None:
        """To be called by tools, at the moment that matters."""
        if what in self.happens:
            await self.happens.pop(what)()

    def hang(self, what: str) -> Moment:
        """The call about this is in flight when its worker dies."""
        moment = Moment()

        async def dies() -> None:
            moment.begun.set()
            await moment.gone.wait()
            raise ConnectionError("its process is gone")

        self.happens[what] = dies
        return moment


class Moment:
    """When a worker is killed: a call has begun then; it is gone afterwards."""

    def __init__(self) -> None:
        self.begun, self.gone = asyncio.Event(), asyncio.Event()


class Mortal:
    """The store of a worker that will die: from `kill` on it has no lease, and nobody hears of it."""

    def __init__(self, store: Store) -> None:
        self._store, self._dead = store, False

    def kill(self) -> None:
        self._dead = True

    def __getattr__(self, name: str) -> object:
        instead = {"append": self._gone, "post": self._unheard} if self._dead else {}
        return instead.get(name) or getattr(self._store, name)

    async def _gone(self, *_: object, **__: object) -> Head:
        raise LeaseLost(run="of the dead", epoch=0)

    async def _unheard(self, *_: object, **__: object) -> bool:
        return True


@dataclass
class Deck:
    """A store of its own with runs, of which `run` is the one that is driven, and workers for it."""

    store: Kept
    place: Place
    clock: ManualClock
    executed: list[str]
    run: RunId = RUN

    def worker(self, deps: object, secrets: Secrets, *, build: str = "", store: Store | None = None) -> Worker:
        """One for all that the corpus has; `build` is what its code is called."""
        return worker_of(
            app.registry, store or self.store, replace(_SETTINGS, build=build or "present"), self.clock, deps,
            secrets=secrets, wake_in_place=False, on_send=lambda tool, _, __: self.executed.append(tool.name),
        )  # fmt: skip

    async def row(self) -> RunRow:
        row = await self.store.run(DEFAULT_TENANT, self.run)
        assert row is not None
        return row

    async def settle(self, worker: Worker) -> None:
        """Claim and drive until there is nothing to claim."""
        while await worker.claim():
            await worker.idle()

    async def play(self, worker: Worker, person: Person | None = None) -> RunRow:
        """Drive the run to its end, jumping over its waits. A person is asked whenever it stands still."""
        while True:
            await self.settle(worker)
            row = await self.row()
            if not row.ended and person is not None and await person(self.store, self.clock, row):
                continue
            if row.ended or row.status == "blocked":
                return row
            assert row.wake_at is not None, f"it is {row.status} ({row.detail}), and nothing is due"
            self.clock.advance(timedelta(milliseconds=max(1, row.wake_at - self.clock.now())))

    async def crash(self, deps: object, moment: Moment) -> None:
        """A worker drives what there is and is killed at that moment: nothing more of it reaches the store."""
        mortal = Mortal(self.store)
        worker = self.worker(deps, Token(), build="recorded", store=cast(Store, mortal))
        begun = asyncio.ensure_future(moment.begun.wait())
        while not begun.done():
            await worker.claim()
            await asyncio.wait([begun, *worker._drives], return_when=asyncio.FIRST_COMPLETED)
        mortal.kill()
        moment.gone.set()
        await worker.idle()

    async def take_over(self, worker: Worker) -> None:
        """Let the leases of a worker that is gone lapse, watched by this one as the rules ask; then drive."""
        self.clock.advance(_SETTINGS.lease * 2 / 3)
        await worker.claim()
        for _ in range(14):
            self.clock.advance(timedelta(seconds=1))
            await worker.claim()
        await worker.idle()
        await self.settle(worker)

    async def log(self) -> list[Entry]:
        return await self.store.entries(DEFAULT_TENANT, self.run)

    def sql(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        """One statement of somebody who is not the store."""
        if isinstance(self.place, Path):
            with closing(sqlite3.connect(file_of(self.place), isolation_level=None, timeout=60)) as database:
                return database.execute(statement, parameters).fetchall()
        with psycopg.connect(place_of(self.place).conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement.replace("?", "%s").encode(), parameters)
            return cursor.fetchall() if cursor.description is not None else []

    def world(self) -> World:
        return World(mark="?" if isinstance(self.place, Path) else "%s")


def file_of(directory: Path) -> Path:
    return directory / "recorded.db"


async def opened(place: Place, clock: ManualClock) -> Deck:
    """What is there, or a new store."""
    store: SQLiteStore | PostgresStore
    if isinstance(place, Path):
        store = SQLiteStore(file_of(place), name="recorded", clock=clock, unsafe_durability=True, synchronous="off")
    else:
        store = PostgresStore(place_of(place), clock=clock)
    await store.open()
    return Deck(store, place, clock, [])


async def deck(place: Place, clock: ManualClock, key: bytes) -> Deck:
    """A new store with a key that is known."""
    made = await opened(place, clock)
    made.sql("insert into tenant (id, key, created_at) values (?, ?, ?)", DEFAULT_TENANT, key, 0)
    return made


class Backup:
    """All that the store of a deck has at one moment, to which its database can be set back."""

    def __init__(self, made: Deck) -> None:
        self._made = made
        self._rows = {table: made.sql(f"select * from {table}") for table in _tables(made)}

    async def restore(self) -> None:
        """What was committed since is gone."""
        for table, rows in self._rows.items():
            self._made.sql(f"delete from {table}")
            for row in rows:
                marks = ", ".join("?" * len(row))
                overriding = "" if isinstance(self._made.place, Path) else " overriding system value"
                self._made.sql(f"insert into {table}{overriding} values ({marks})", *map(_given, row))


def _given(value: object) -> object:
    from psycopg.types.json import Jsonb

    return Jsonb(value) if isinstance(value, dict | list) else value


def _tables(made: Deck) -> list[str]:
    if isinstance(made.place, Path):
        named = made.sql("select name from sqlite_master where type = 'table' and name not like 'sqlite%'")
    else:
        named = made.sql("select tablename from pg_tables where schemaname = current_schema()")
    return [str(one) for (one,) in named if one not in ("migration", "worker", "duty")]
