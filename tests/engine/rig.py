"""A worker of our own over a real SQLite file with a clock that stands still: what the tests of the engine drive.

`Rig.settle` claims and drives until nothing can be claimed any more; time moves only when a test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

from outlive import Outlive
from outlive.app.compose import worker_of
from outlive.app.inspect import Line, lines
from outlive.app.settings import Settings
from outlive.engine.worker import Worker
from outlive.log.entry import Entry
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import OperationRow
from outlive.model.run import RunRow
from outlive.secret.port import Secrets
from outlive.store.port import Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock

LEASE = timedelta(seconds=30)


class Nothing:
    """Secrets of a test that has none."""

    def get(self, name: str) -> str | None:
        return None

    def describe(self, name: str) -> str:
        return "nothing"

    def names(self) -> list[str]:
        return []


class Mortal:
    """The store of a worker that will die: from `kill` on nothing of that worker reaches the database any more."""

    def __init__(self, store: Store) -> None:
        self._store, self._dead = store, asyncio.Event()

    def kill(self) -> None:
        self._dead.set()

    def __getattr__(self, name: str) -> object:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def call(*args: object, **kwargs: object) -> object:
            return self._never() if self._dead.is_set() else method(*args, **kwargs)

        return call

    async def _never(self) -> None:
        await asyncio.Event().wait()


class Rig:
    """One store, one clock, and as many workers as a test wants, one after the other."""

    def __init__(
        self, store: Store, clock: ManualClock, *, max_lapses: int = 10, secrets: Secrets | None = None,
        lease: timedelta = LEASE,
    ) -> None:  # fmt: skip
        self.store, self.clock = store, clock
        self.sent: list[tuple[str, dict[str, object]]] = []
        self.evict = False
        self._settings = replace(Settings(), lease=lease, max_lapses=max_lapses)
        self._secrets = secrets or Nothing()

    def worker(self, app: Outlive[None], *, code: str = "", store: Store | None = None) -> Worker:
        """A new worker for all that the application has registered by now."""
        worker = worker_of(
            app.registry, store or self.store, self._settings, self.clock, None, secrets=self._secrets,
            on_send=lambda tool, _, arguments: self.sent.append((tool.name, arguments)), wake_in_place=False,
            evict=self.evict,
        )  # fmt: skip
        if code:
            worker.kit = replace(worker.kit, code=code)
        return worker

    def app(self, like: Outlive[None]) -> Outlive[None]:
        """An application with what `like` has registered, on this store and clock."""
        app: Outlive[None] = Outlive(clock=self.clock)
        app.registry = like.registry
        app.use(self.store)
        return app

    def mortal(self, app: Outlive[None], *, code: str = "") -> Worker:
        """A worker that `crash` can kill."""
        return self.worker(app, code=code, store=cast(Store, Mortal(self.store)))

    async def crash(self, worker: Worker, when: asyncio.Event) -> None:
        """Claim, wait for the moment, and kill: what the worker holds in memory is gone, and so are its renewals."""
        await worker.claim()
        await when.wait()
        cast(Mortal, worker.store).kill()
        for task in list(worker._drives):
            task.cancel()
        await asyncio.wait(list(worker._drives), timeout=1)

    async def settle(self, worker: Worker) -> None:
        """Claim and drive until there is nothing to claim."""
        while await worker.claim():
            await worker.idle()

    async def pass_time(self, worker: Worker, by: timedelta) -> None:
        """Let time pass, then drive what has become due."""
        self.clock.advance(by)
        await self.settle(worker)

    async def until_ended(self, worker: Worker, run: str) -> RunRow:
        """Drive a run to its end or until it is blocked, jumping over its waits."""
        while True:
            await self.settle(worker)
            row = await self.row(run)
            if row.ended or row.status == "blocked":
                return row
            assert row.wake_at is not None, f"{run} is {row.status} and nothing is due"
            self.clock.advance(timedelta(milliseconds=max(1, row.wake_at - self.clock.now())))

    async def next_wait(self, serving: asyncio.Task[None]) -> timedelta:
        """How long a worker that serves is going to wait now, once it has done what there was to do."""
        while (waits := self.clock.next_sleeper()) is None:
            assert not serving.done(), "it serves no longer"
            await asyncio.wait([serving], timeout=0.001)
        return waits

    async def serve_for(self, serving: asyncio.Task[None], span: timedelta) -> None:
        """Let time pass for a worker that serves, from one of its waits to the next."""
        until = self.clock.now() + span / timedelta(milliseconds=1)
        while True:
            waits = await self.next_wait(serving)
            left = timedelta(milliseconds=until - self.clock.now())
            self.clock.advance(min(waits, left))
            if waits >= left:
                await self.next_wait(serving)
                return

    async def take_over(self, worker: Worker) -> None:
        """Let the leases of a worker that is gone lapse, watched by this one as the rules ask; then drive."""
        self.clock.advance(LEASE * 2 / 3)
        await worker.claim()
        self.clock.advance(timedelta(seconds=1))
        for _ in range(12):
            await worker.claim()
            self.clock.advance(timedelta(seconds=1))
        await worker.idle()
        await self.settle(worker)

    async def row(self, run: str) -> RunRow:
        row = await self.store.run(DEFAULT_TENANT, RunId(run))
        assert row is not None
        return row

    async def operations(self, run: str) -> list[OperationRow]:
        return await self.store.operations(DEFAULT_TENANT, RunId(run))

    async def entries(self, run: str) -> list[Entry]:
        return await self.store.entries(DEFAULT_TENANT, RunId(run))

    async def lines(self, run: str) -> list[Line]:
        return [one async for one in lines(self.store, DEFAULT_TENANT, run)]

    async def kinds(self, run: str) -> list[str]:
        """The kinds of the entries, without claims."""
        return [entry.kind for entry in await self.entries(run) if entry.kind != "claimed"]


@asynccontextmanager
async def rig_on(url: str) -> AsyncIterator[Rig]:
    """A rig over a PostgreSQL schema."""
    clock = ManualClock()
    store = PostgresStore(place_of(url), clock=clock)
    await store.open()
    try:
        yield Rig(store, clock)
    finally:
        await store.close()


@asynccontextmanager
async def rig_at(
    path: Path, *, max_lapses: int = 10, secrets: Secrets | None = None, lease: timedelta = LEASE
) -> AsyncIterator[Rig]:
    """A rig over a new file; commits are not synced, since no test cuts the power."""
    clock = ManualClock()
    store = SQLiteStore(path / "runs.db", name="runs", clock=clock, unsafe_durability=True, synchronous="off")
    await store.open()
    try:
        yield Rig(store, clock, max_lapses=max_lapses, secrets=secrets, lease=lease)
    finally:
        await store.close()
