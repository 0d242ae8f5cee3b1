"""What the documentation claims of runs in a state that no other test brings about."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from outlive import Operation, Outlive, Retry, Run
from outlive.app.decide import retry
from outlive.engine.control import Control
from outlive.errors import RunFailed, WrongState
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.store.port import Claim
from outlive.store.sqlite import SQLiteStore
from tests.engine.rig import LEASE, Rig, rig_at

app: Outlive[None] = Outlive()
others: Outlive[None] = Outlive()
HOUR = timedelta(hours=1)


class Reader:
    """Somebody outside, who reads the log while a body runs."""

    store: SQLiteStore
    run = RunId("run")
    seen: list[list[str]]

    @classmethod
    async def look(cls) -> None:
        cls.seen.append([one.kind for one in await cls.store.entries(DEFAULT_TENANT, cls.run)])


async def step() -> None:
    await Reader.look()


@app.tool(effect="read")
async def reads(op: Operation[None]) -> None:
    await Reader.look()


@app.tool()
async def acts(op: Operation[None]) -> None:
    await Reader.look()


@app.agent()
async def asks_the_time(run: Run[None], what: str) -> str:
    moment = run.now()
    if what == "step":
        await run.step(step)
    else:
        await run.call(reads if what == "read" else acts)
    return moment.isoformat()


@app.tool()
async def loses(op: Operation[None]) -> None:
    raise ConnectionResetError("the answer is lost")


@app.tool(effect="read", retry=Retry(attempts=2, first=HOUR, most=HOUR))
async def comes_later(op: Operation[None]) -> str:
    if op.attempt == 1:
        raise ConnectionError("busy")
    return "came"


@app.agent()
async def waits_and_doubts(run: Run[None], what: str) -> str:
    await run.gather(run.call(loses), run.call(comes_later))
    return what


@app.tool(effect="idempotent")
async def pays(op: Operation[None]) -> None:
    return None


@app.agent()
async def pays_and_fails(run: Run[None], what: str) -> str:
    await run.call(pays)
    raise ValueError(what)


@others.agent()
async def another(run: Run[None], what: str) -> str:
    return what


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig_at(tmp_path) as made:
        yield made


@pytest.mark.parametrize("what", ["step", "read", "external"])
async def test_a_value_is_committed_before_a_body_can_see_it(rig: Rig, what: str) -> None:
    assert isinstance(rig.store, SQLiteStore)
    Reader.store, Reader.seen = rig.store, []
    here = rig.app(app)
    handle = await here.start(asks_the_time, what, id="run")
    await rig.settle(rig.worker(here))
    await handle.result()
    assert ["value" in kinds for kinds in Reader.seen] == [True]


async def test_a_branch_in_doubt_is_named_while_another_waits_for_its_time(rig: Rig) -> None:
    here = rig.app(app)
    await here.start(waits_and_doubts, "x", id="run")
    worker = rig.worker(here)
    await rig.settle(worker)
    row = await rig.row("run")
    assert (row.status, row.reason) == ("waiting", "operation in doubt")
    assert {one.tool: one.status for one in await rig.operations("run")} == {"loses": "unknown"}
    row = await rig.until_ended(worker, "run")
    assert (row.status, row.reason) == ("blocked", "operation in doubt")


async def test_a_run_whose_agent_nobody_serves_becomes_ready_again(rig: Rig) -> None:
    here = rig.app(app)
    await here.start(asks_the_time, "step", id="run")
    claim = Claim(Owner("gone"), {"asks_the_time": "build"}, 1, int(LEASE / timedelta(milliseconds=1)))
    assert len(await rig.store.claim(claim, now=rig.clock.now())) == 1
    overdue = rig.clock.now() + LEASE / 3 / timedelta(milliseconds=1)
    stranger = rig.worker(rig.app(others))
    for _ in range(120):
        assert await stranger.claim() == 0
        if (await rig.row("run")).status != "running":
            break
        rig.clock.advance(timedelta(seconds=1))
    watched = (rig.clock.now() - overdue) / (LEASE / timedelta(milliseconds=1))
    assert (await rig.row("run")).status == "ready"
    assert 2 <= watched <= 2.2
    Reader.seen = []
    Reader.store = rig.store if isinstance(rig.store, SQLiteStore) else Reader.store
    assert (await rig.until_ended(rig.worker(here), "run")).status == "succeeded"


async def test_a_failed_run_stays_failed_and_a_new_one_makes_each_call_anew(rig: Rig) -> None:
    here = rig.app(app)
    worker = rig.worker(here)
    first = await here.start(pays_and_fails, "x", id="one")
    assert (await rig.until_ended(worker, "one")).status == "failed"
    again = await here.start(pays_and_fails, "x", id="one", priority=9)
    await rig.settle(worker)
    assert (again.id, await again.status(), len(rig.sent)) == (first.id, "failed", 1)
    with pytest.raises(RunFailed, match="ValueError: x"):
        await again.result()
    with pytest.raises(WrongState, match="only a blocked run"):
        await retry(Control(rig.store, rig.clock, Owner("ada")), DEFAULT_TENANT, "one", who="ada", why="again")
    await here.start(pays_and_fails, "x", id="two")
    await rig.settle(worker)
    (one,), (two,) = await rig.operations("one"), await rig.operations("two")
    assert (len(rig.sent), one.key != two.key) == (2, True)


def copied(directory: Path) -> Path:
    """What `.backup` of SQLite's command line does, by the same call; the last commits are not in `runs.db` yet."""
    (path,), copy = directory.glob("*.db"), directory / "copy" / "runs.db"
    names = {file.name.removeprefix(path.name) for file in directory.iterdir()}
    assert names == {"", "-wal", "-shm", "-queue", "-turn", "-hint"}
    copy.parent.mkdir()
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


async def test_a_copy_by_sqlites_backup_is_a_whole_store(rig: Rig, tmp_path: Path) -> None:
    here = rig.app(others)
    handle = await here.start(another, "kept", id="run")
    await rig.settle(rig.worker(here))
    assert await handle.result() == "kept"
    there: Outlive[None] = Outlive(f"sqlite:///{copied(tmp_path)}")
    async with there:
        assert await there.handle(another, "run").result() == "kept"
