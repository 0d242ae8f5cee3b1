"""A payload whose blob has gone is an error wherever it is needed, and never None: not to replay, nor to who waits."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from outlive import Outlive, Run
from outlive.app.audit import check_chain
from outlive.errors import ChainBroken, UndecodableEntry
from outlive.model.ids import DEFAULT_TENANT
from tests.engine.rig import rig_at

LARGE = "z" * 40_000

app = Outlive()
given: list[object] = []


async def fetch() -> str | None:
    return LARGE


async def end() -> int:
    return 1


@app.agent()
async def reader(run: Run[None], _: None) -> str:
    given.append(await run.step(fetch))
    await run.step(end)
    return "read"


@app.agent()
async def writer(run: Run[None], _: None) -> str | None:
    return LARGE


async def test_a_step_with_a_lost_result_is_not_replayed_as_none(tmp_path: Path) -> None:
    given.clear()
    async with rig_at(tmp_path) as rig:
        here = rig.app(app)
        await here.start(reader, None, id="r")
        rig.evict = True
        worker = rig.worker(here)
        await worker.claim()
        await worker.idle()
        lose_blobs(tmp_path)
        rig.evict = False
        rig.clock.advance(timedelta(seconds=1))
        await rig.settle(rig.worker(here))
        row = await rig.row("r")
        with pytest.raises(ChainBroken):
            await check_chain(rig.store, DEFAULT_TENANT, "r")
    assert (row.status, row.reason) == ("blocked", "undecodable")
    assert "entry 2" in row.detail
    assert None not in given


async def test_a_run_with_a_lost_result_does_not_answer_none(tmp_path: Path) -> None:
    async with rig_at(tmp_path) as rig:
        here = rig.app(app)
        handle = await here.start(writer, None, id="r")
        await rig.settle(rig.worker(here))
        assert await handle.result() == LARGE
        lose_blobs(tmp_path)
        with pytest.raises(UndecodableEntry, match="its payload is lost"):
            await handle.result()


def lose_blobs(folder: Path) -> None:
    [path] = folder.glob("*.db")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("delete from blob").rowcount > 0
        database.commit()
