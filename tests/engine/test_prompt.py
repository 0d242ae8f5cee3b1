"""A message to a run that is loaded with something else in flight: it comes while that goes on, and once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from outlive import Operation, Run
from outlive.app.client import Handle
from outlive.engine import inbox
from outlive.engine.waking import Waking
from outlive.engine.worker import FULL_S, Worker
from outlive.model.ids import RunId, Tenant
from outlive.model.run import Head
from outlive.store.port import Append, Message, Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.testing.clock import ManualClock
from outlive.testing.faults import FaultyStore
from tests.engine import subject as subjects
from tests.engine.rig import Rig, rig_at
from tests.engine.subject import RUN, begin, does, subject

# No renewal comes within the patience of a test: what is seen was not seen by one.
LONG = timedelta(hours=1)


@pytest.fixture(params=["sqlite", "postgres"])
async def slow(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A rig on each store whose leases are long."""
    subjects.reset()
    if request.param == "sqlite":
        async with rig_at(tmp_path, lease=LONG) as rig:
            yield rig
        return
    clock = ManualClock()
    store = PostgresStore(place_of(request.getfixturevalue("postgres")), clock=clock, unsafe_durability=True)
    await store.open()
    try:
        yield Rig(store, clock, lease=LONG)
    finally:
        await store.close()


class Branches:
    """A run with a step in flight that ends when the test, or the other branch, says so."""

    def __init__(self) -> None:
        self.in_flight, self.received = asyncio.Event(), asyncio.Event()
        self.release = asyncio.Event()
        self.tool: Callable[[Operation[None]], Awaitable[str]] = self.hangs

    async def gather(self, run: Run[None]) -> object:
        does.tool = self.tool
        return await run.gather(self._told(run), run.call(subjects.look, "it"))

    async def first(self, run: Run[None]) -> object:
        does.tool = self.hangs
        won, _ = await run.first(reply=self._told(run), slow=run.call(subjects.look, "it"))
        return won

    async def _told(self, run: Run[None]) -> str:
        offer = await run.receive("offers", str)
        self.received.set()
        return offer

    async def hangs(self, op: Operation[None]) -> str:
        self.in_flight.set()
        await self.release.wait()
        return "released"


def handle(rig: Rig) -> Handle[str]:
    return rig.app(subjects.base).handle(subject, RUN)


@asynccontextmanager
async def loaded(rig: Rig, worker: Worker, branches: Branches) -> AsyncIterator[None]:
    """The run is driven by this worker, with its step in flight; at the end that is let go on."""
    assert await worker.claim() == 1
    await branches.in_flight.wait()
    try:
        yield
    finally:
        branches.release.set()
        await worker.idle()


@pytest.mark.parametrize("how", ["gather", "first"])
async def test_a_look_brings_a_message_while_a_step_is_in_flight(slow: Rig, how: str) -> None:
    branches = Branches()
    worker = await begin(slow, getattr(branches, how))
    async with loaded(slow, worker, branches):
        await handle(slow).send("offers", "one", key="k")
        assert not branches.received.is_set()
        assert await worker.claim() == 0
        await branches.received.wait()
        assert not branches.release.is_set(), "the step has not ended"
    assert (await slow.row(RUN)).status == "succeeded"
    assert (await slow.kinds(RUN)).count("arrived") == 1


async def test_a_worker_that_serves_brings_it_long_before_its_next_renewal(slow: Rig) -> None:
    branches = Branches()
    worker = await begin(slow, branches.gather)
    serving = asyncio.ensure_future(worker.run())
    await branches.in_flight.wait()
    await handle(slow).send("offers", "one", key="k")
    while not branches.received.is_set():
        await slow.serve_for(serving, timedelta(milliseconds=20))
    assert slow.clock.now() - ManualClock().now() < 60_000, "it was not the renewal"
    branches.release.set()
    await worker.idle()
    worker.stop()
    await serving


@pytest.mark.parametrize("room", [100, 1])
async def test_a_hint_leads_to_a_look_also_where_there_is_no_room(rig: Rig, room: int) -> None:
    branches, store = Branches(), FaultyStore(rig.store)
    await begin(rig, branches.gather)
    worker = rig.worker(rig.app(subjects.base), store=store)
    worker.pace = replace(worker.pace, concurrency=room)
    async with loaded(rig, worker, branches):
        await worker.claim()
        looks = store.counts["look"]
        await handle(rig).send("offers", "one", key="k")
        for _ in range(20):
            assert await worker._hinted() == 0
        if room == 1:
            assert store.counts["look"] == looks, "however many hints come, it looks once in a while"
            assert worker._watch.left() == pytest.approx(FULL_S)
            rig.clock.advance(timedelta(seconds=FULL_S, milliseconds=1))
            await worker._hinted()
        await branches.received.wait()


async def test_messages_are_taken_once_however_many_look_at_the_same_time(slow: Rig) -> None:
    branches = Branches()
    worker = await begin(slow, branches.gather)
    async with loaded(slow, worker, branches):
        for key in ("a", "b"):
            await handle(slow).send("offers", key, key=key)
        [drive] = worker._drives.values()
        assert drive.attempt is not None
        for _ in range(3):
            drive.grip.unread()
        await asyncio.gather(*(inbox.take(drive.attempt.journal) for _ in range(3)))
    assert (await slow.kinds(RUN)).count("arrived") == 2


async def test_what_comes_while_the_run_is_loaded_is_not_left_for_the_renewal(rig: Rig) -> None:
    """Between reading the inbox and calling the agent nobody is there to be told."""
    branches = Branches()
    await begin(rig, branches.gather)
    held = _Held(rig.store)
    worker = rig.worker(rig.app(subjects.base), store=cast(Store, held))
    assert await worker.claim() == 1
    await held.read.wait()
    await handle(rig).send("offers", "one", key="k")
    assert await worker.claim() == 0
    held.go_on.set()
    await branches.received.wait()
    branches.release.set()
    await worker.idle()
    assert (await rig.row(RUN)).status == "succeeded"


async def test_a_run_is_not_unloaded_while_what_it_waits_for_is_taken(rig: Rig) -> None:
    """Its step is being recorded as the message is read: once both are, nothing in the inbox would wake it any more."""
    branches = Branches()
    await begin(rig, branches.gather)
    held = _Held(rig.store, "append")
    held.go_on.set()
    worker = rig.worker(rig.app(subjects.base), store=cast(Store, held))
    assert await worker.claim() == 1
    await branches.in_flight.wait()
    held.began.clear()
    held.go_on.clear()
    branches.release.set()
    await held.began.wait()
    await handle(rig).send("offers", "one", key="k")
    held.read.clear()
    assert await worker.claim() == 0
    await held.read.wait()
    held.go_on.set()
    await worker.idle()
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"


async def test_what_is_heard_before_a_call_is_sent_again_wakes_who_waits_for_it(rig: Rig) -> None:
    branches = Branches()

    async def body(run: Run[None]) -> object:
        return await run.gather(branches.gather(run), run.call(subjects.put, "again"))

    async def loses(op: Operation[None]) -> str:
        if op.arguments["what"] == "it":
            return await branches.hangs(op)
        if op.attempt == 1:
            raise ConnectionResetError
        return "put"

    worker = await begin(rig, body)
    worker.kit = replace(worker.kit, wake_in_place=True)
    branches.tool = loses
    async with loaded(rig, worker, branches):
        while rig.clock.next_sleeper() is None:
            await rig.row(RUN)
        await handle(rig).send("offers", "one", key="k")
        while "arrived" not in await rig.kinds(RUN):
            rig.clock.advance(timedelta(seconds=1))
        await branches.received.wait()


async def test_a_branch_that_is_about_to_be_told_that_it_lost_does_not_unload_the_run(rig: Rig) -> None:
    """The winner is in the log already: unloaded in that moment, the run would sleep until the loser's timer."""
    branches = Branches()

    async def body(run: Run[None]) -> object:
        return await run.gather(branches.gather(run), run.sleep(timedelta(days=1)))

    worker = await begin(rig, body)
    async with loaded(rig, worker, branches):
        [drive] = worker._drives.values()
        assert drive.attempt is not None
        asleep = next(scope for scope in drive.attempt.scopes.values() if scope.parked and scope.parked.until)
        before = asleep.rests
        asleep.cancel("another won")
        assert (before, asleep.rests, asleep.parked is None) == (True, False, False), "it is told a moment later"


async def test_messages_are_looked_for_once_in_a_while_and_never_less_and_less() -> None:
    clock = ManualClock()
    waking = Waking(clock, least=0.02)
    for _ in range(5):
        waking.heard(hinted=True)
        assert waking.take()
        waking.led_to(0, 3)
        waking.heard(hinted=True)
        assert not waking.take(), "not at once again"
        clock.advance(timedelta(milliseconds=21))


class _Held:
    """A store one of whose methods is held up until the test lets it go on."""

    def __init__(self, store: Store, method: str = "unread") -> None:
        self._store, self._method = store, method
        self.read, self.began, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def unread(self, tenant: Tenant, run: RunId) -> list[Message]:
        found = await self._store.unread(tenant, run)
        self.read.set()
        if self._method == "unread":
            await self.go_on.wait()
        return found

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        self.began.set()
        if self._method == "append":
            await self.go_on.wait()
        return await self._store.append(append, now=now)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)
