"""Appends of a run that is alone are committed where they are made: whatever is in the way is left to the thread."""

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from outlive.model.errors import CommitUnknown, LeaseLost, StoreBusy, StoreUnavailable
from outlive.store.lone import UNTURNED
from outlive.store.sqlite import SQLiteStore
from outlive.store.sqlite.near import COPY_AFTER
from outlive.store.sqlite.thread import Request, Writer
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import LEASE, Hold, Scene, event, held, wish


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async def open_store(clock: ManualClock) -> SQLiteStore:
        store = SQLiteStore(tmp_path / "outlive.db", name="test", clock=clock, wait=0.5)
        await store.open()
        return store

    scene = await Scene.set(open_store)
    yield scene
    await scene.close()


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What was given to the writing thread."""
    requests, put = list[Request](), Writer.put

    def counted(writer: Writer, request: Request, *, urgent: bool = False) -> None:
        requests.append(request)
        put(writer, request, urgent=urgent)

    monkeypatch.setattr(Writer, "put", counted)
    return requests


def remove_all(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


async def lone(scene: Scene) -> Hold:
    hold = await scene.hold()
    await scene.append(hold, event())
    await scene.append(hold, event())
    # The thread has answered, and may not have come to rest yet.
    assert isinstance(scene.store, SQLiteStore)
    never = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(60):
        while not scene.store._writer().idle:
            await asyncio.wait([never], timeout=0.001)
    return hold


async def test_a_run_that_is_alone_is_written_without_the_thread(scene: Scene, handed_over: list[Request]) -> None:
    hold = await lone(scene)
    handed_over.clear()
    for _ in range(20):
        await scene.append(hold, event())
    assert handed_over == []
    assert len(await scene.log()) == 24


async def test_two_runs_that_take_turns_are_the_threads(scene: Scene, handed_over: list[Request]) -> None:
    one, two = await lone(scene), await scene.hold("s")
    handed_over.clear()
    for _ in range(5):
        await scene.append(two, event())
        await scene.append(one, event())
    assert len(handed_over) == 10


async def test_the_loop_gets_its_turn_beside_a_run_that_is_alone(scene: Scene) -> None:
    hold, turns, done = await lone(scene), 0, asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(pause.set_result, None)
            await pause

    counting = asyncio.ensure_future(count())
    for _ in range(10 * UNTURNED):
        await scene.append(hold, event())
    done.set()
    await counting
    assert turns >= 10


async def test_a_cancelled_caller_has_been_written_all_the_same(scene: Scene) -> None:
    hold = await lone(scene)

    async def append_and_wait() -> None:
        for _ in range(2 * UNTURNED):
            await scene.append(hold, event())
        await asyncio.Event().wait()

    task = asyncio.ensure_future(append_and_wait())
    await asyncio.wait([task], timeout=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await scene.log()) == 4 + 2 * UNTURNED
    await scene.append(hold, event())


async def test_whoever_has_the_lock_is_waited_for_by_the_thread(
    scene: Scene, tmp_path: Path, handed_over: list[Request]
) -> None:
    hold = await lone(scene)
    handed_over.clear()
    with closing(sqlite3.connect(tmp_path / "outlive.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreBusy):
            await scene.append(hold, event())
        assert len(handed_over) == 1
        task = asyncio.ensure_future(scene.append(hold, event()))
        await asyncio.wait([task], timeout=0)
        other.execute("rollback")
        await task
    assert len(await scene.log()) == 5


async def test_a_transaction_of_our_own_is_waited_for_by_the_thread(scene: Scene) -> None:
    hold = await lone(scene)

    async def hold_the_lock(inside: asyncio.Event, leave: asyncio.Event) -> None:
        async with scene.store.transaction() as transaction:
            await transaction.execute("create table mine (n)")
            inside.set()
            await leave.wait()

    inside, leave = asyncio.Event(), asyncio.Event()
    holding = asyncio.ensure_future(hold_the_lock(inside, leave))
    await inside.wait()
    appending = asyncio.ensure_future(scene.append(hold, event()))
    await asyncio.wait([appending], timeout=0)
    assert not appending.done()
    leave.set()
    await holding
    await appending
    assert len(await scene.log()) == 5


async def test_who_is_not_the_owner_any_more_is_refused(scene: Scene) -> None:
    hold = await lone(scene)
    assert await scene.store.again(hold.authority, owner=wish().owner, lease_ms=LEASE, now=scene.now) is not None
    with pytest.raises(LeaseLost):
        await scene.append(hold, event())
    assert [entry.kind for entry in await scene.log()] == ["started", "claimed", "emitted", "emitted", "claimed"]


async def test_a_commit_that_may_have_happened_is_unknown_and_then_known(scene: Scene, tmp_path: Path) -> None:
    hold = await lone(scene)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on file sizes makes the device fail in the middle of the commit.
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "outlive.db-wal").stat().st_size, hard))
    try:
        with pytest.raises(CommitUnknown):
            await scene.append(hold, event())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    claimed = await scene.store.again(hold.authority, owner=wish().owner, lease_ms=LEASE, now=scene.now)
    assert claimed is not None
    again = held(claimed)
    await scene.append(again, event("after"))
    await scene.append(again, event("and after"))
    assert len(await scene.log()) == 7


async def test_an_append_that_fails_in_the_middle_leaves_nothing(scene: Scene, tmp_path: Path) -> None:
    hold = await lone(scene)
    with closing(sqlite3.connect(tmp_path / "outlive.db", isolation_level=None)) as other:
        other.execute("alter table entry rename to elsewhere")
        with pytest.raises(StoreUnavailable):
            await scene.append(hold, event())
        other.execute("alter table elsewhere rename to entry")
    assert (await scene.row()).head == hold.head
    await scene.append(hold, event())
    assert len(await scene.log()) == 5


async def test_a_file_that_was_deleted_takes_no_more_appends(scene: Scene, tmp_path: Path) -> None:
    hold = await lone(scene)
    remove_all(tmp_path)
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await scene.append(hold, event())


async def test_the_journal_does_not_grow_with_the_log(scene: Scene, tmp_path: Path) -> None:
    hold, journal = await lone(scene), tmp_path / "outlive.db-wal"
    for _ in range(COPY_AFTER):
        await scene.append(hold, event())
    size = journal.stat().st_size
    for _ in range(6 * COPY_AFTER):
        await scene.append(hold, event())
    assert journal.stat().st_size < 4 * size
