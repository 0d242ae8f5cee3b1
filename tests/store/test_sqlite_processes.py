"""Several processes on one SQLite file: nobody starves or claims twice, a death or a full disk loses nothing."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outlive.model.errors import StoreBusy, StoreFull
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import Scene, event, new_run

Spawn = Callable[..., "Process"]


class Process:
    """A `writer.py` that is spoken to line by line."""

    def __init__(self, verb: str, path: Path, name: str, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("writer.py")), verb, str(path), name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def hear_all(self) -> list[str]:
        return list(iter(self.hear, "done"))

    def say(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    processes: list[Process] = []

    def start(verb: str, name: str = "", count: int = 0) -> Process:
        processes.append(Process(verb, tmp_path / "outlive.db", name, count))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = await scene_in(tmp_path, wait=10)
    yield scene
    await scene.close()


async def scene_in(folder: Path, *, wait: float) -> Scene:
    async def open_store(clock: ManualClock) -> SQLiteStore:
        store = SQLiteStore(folder / "outlive.db", name="test", clock=clock, wait=wait)
        await store.open()
        return store

    return await Scene.set(open_store)


async def test_of_three_writers_none_starves(scene: Scene, spawn: Spawn) -> None:
    count = 400
    processes = [spawn("append", name, count) for name in ("one", "two", "three")]
    assert [process.hear() for process in processes] == ["ready"] * 3
    for process in processes:
        process.say()
    # While the first finishes, each of the others has had its turn as often, give or take the start.
    first = processes[0].hear()
    written = [(await scene.row(name)).head.seq for name in ("one", "two", "three")]
    assert first == "done"
    assert min(written) > count // 4, written
    assert [process.hear() for process in processes[1:]] == ["done"] * 2
    for name in ("one", "two", "three"):
        assert len(await scene.log(name)) == count + 2


async def test_each_run_is_claimed_by_one_process(scene: Scene, spawn: Spawn) -> None:
    names = [f"r{number:03}" for number in range(60)]
    for name in names:
        await scene.store.start(new_run(name), now=1)
    processes = [spawn("claim", name) for name in ("anna", "boris")]
    assert [process.hear() for process in processes] == ["ready"] * 2
    for process in processes:
        process.say()
    claimed = [process.hear_all() for process in processes]
    assert sorted(claimed[0] + claimed[1]) == names


async def test_a_process_killed_inside_a_transaction_holds_nothing(scene: Scene, spawn: Spawn) -> None:
    hold = await scene.hold()
    process = spawn("hold")
    assert process.hear() == "inside"
    process.kill()
    await scene.append(hold, event())
    async with scene.store.transaction() as transaction:
        assert await transaction.execute("select name from sqlite_schema where name = 'effect'") == []
    assert len(await scene.log()) == 3


async def test_a_locked_database_names_who_holds_it(tmp_path: Path, spawn: Spawn) -> None:
    scene = await scene_in(tmp_path, wait=0.1)
    hold = await scene.hold()
    process = spawn("hold")
    assert process.hear() == "inside"
    with pytest.raises(StoreBusy, match=f"process {process.pid} holds it"):
        await scene.append(hold, event())
    with pytest.raises(StoreBusy, match=f"process {process.pid} holds it"):
        async with scene.store.transaction():
            pytest.fail("it is not open")
    other = await scene.other()
    assert len(await other.entries(DEFAULT_TENANT, hold.run)) == 2, "opening and reading do not wait"
    process.say()
    assert process.hear() == "done"
    await scene.append(hold, event())
    assert len(await scene.log()) == 3
    await scene.close()


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 2 MB, which takes the right to mount one."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_disk_loses_nothing_and_goes_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(os.urandom(256 * 1024))
        scene = await scene_in(disk, wait=10)
        hold = await scene.hold()
        payload, acknowledged = '"' + "x" * 8_000 + '"', 0
        with pytest.raises(StoreFull, match="nothing was written"):
            while True:
                await scene.append(hold, event(payload=payload))
                acknowledged += 1
        assert acknowledged > 5
        for _ in range(3):
            with pytest.raises(StoreFull):
                await scene.append(hold, event(payload=payload))
        assert len(await scene.log()) == acknowledged + 2
        ballast.unlink()
        await scene.append(hold, event(payload=payload))
        assert len(await scene.log()) == acknowledged + 3
        await scene.close()


async def test_a_full_disk_refuses_a_new_file(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(os.urandom(2 * 1024 * 1024 - 3 * 4096))
        with pytest.raises(StoreFull):
            await scene_in(disk, wait=10)
        (disk / "ballast").unlink()
        scene = await scene_in(disk, wait=10)
        await scene.start()
        await scene.close()


async def test_a_second_store_in_one_process_takes_no_locks_from_the_first(tmp_path: Path) -> None:
    """Whoever thinks that he is alone with the file takes its log away when he leaves, and the first store reads on."""
    path = tmp_path / "outlive.db"
    first, second = (SQLiteStore(path, name=name, clock=ManualClock()) for name in ("first", "second"))
    await first.open()
    try:
        await first.start(new_run("r1"))
        await second.open()
        await second.close()
        visit = "import sqlite3, sys; one = sqlite3.connect(sys.argv[1]); one.execute('select 1 from run'); one.close()"
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", visit, str(path)], check=True)
        assert path.with_name("outlive.db-wal").exists(), "the log of a database that is open here was taken away"
    finally:
        await first.close()
