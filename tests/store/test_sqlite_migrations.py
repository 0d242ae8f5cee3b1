"""Migrations of a SQLite file: one upgrade at a time, all of a file or nothing, and who has it open meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from outlive.model.clock import SystemClock
from outlive.model.errors import SchemaTooNew, StoreUnavailable
from outlive.store import sqlite as adapter
from outlive.store.sqlite import SQLiteStore
from outlive.store.sqlite.migrate import migrations
from outlive.testing.store_scene import Raises, new_run, together
from tests.store.releases import FIRST, act, hand_over, release, take, upgrading, upkeep_to, work

ADDS = "alter table run add column mood text;"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The migrations of a release that adds something."""
    return release(tmp_path / "newer", FIRST[adapter], whole_0002=ADDS)


@asynccontextmanager
async def opened(path: Path, folder: Path | None = None, *, existing: bool = False) -> AsyncIterator[SQLiteStore]:
    known = None if folder is None else migrations(folder)
    store = SQLiteStore(path, name=path.name, clock=SystemClock(), known=known, existing=existing)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def applied(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        return [row[0] for row in database.execute("select number from migration order by number")]


def names(path: Path) -> list[str]:
    return [one.name for one in path.iterdir()]


async def upgrade(path: Path, folder: Path) -> list[str]:
    told = list[str]()
    await upkeep_to(f"sqlite:///{path}", folder).migrate(
        finish=False, told=lambda name, step: told.append(f"{step} {name}")
    )
    return told


async def test_who_has_the_file_open_goes_on_with_what_was_added(tmp_path: Path, newer: Path) -> None:
    path = tmp_path / "x.db"
    async with opened(path) as old:
        await work(old, "before", 2)
        await old.start(new_run("long", agent="long"))
        held = await take(old, "old", "long")
        assert await together(work(old, "meanwhile", 20), upgrade(path, newer)) == [
            None, ["applying 0002_later.sql", "applied 0002_later.sql"],
        ]  # fmt: skip
        async with opened(path, newer) as new:
            await act(old, held)
            assert await together(work(old, "old", 10), work(new, "new", 10)) == [None, None]
            await hand_over(old, new, "to the new one")
            await hand_over(new, old, "to the old one")
    for existing in (False, True):
        with pytest.raises(SchemaTooNew) as raised:
            async with opened(path, existing=existing):
                pass
        assert (raised.value.found, raised.value.known) == (2, 1)


async def test_of_many_upgrades_one_applies_each_file(tmp_path: Path, newer: Path) -> None:
    path = tmp_path / "x.db"
    async with opened(path):
        pass
    answers = await together(*[upgrade(path, newer) for _ in range(6)])
    assert sorted(map(str, answers)) == [str(["applying 0002_later.sql", "applied 0002_later.sql"]), *["[]"] * 5]
    assert applied(path) == [1, 2]


async def test_an_upgrade_that_is_killed_leaves_all_of_a_file_or_nothing(tmp_path: Path) -> None:
    path, endless = tmp_path / "x.db", "insert into two with recursive n(i) as (select 1 union all select 1 from n)"
    later = release(
        tmp_path / "later", FIRST[adapter], whole_0002="create table two (a integer);",
        whole_0003=f"{ADDS}\n{endless} select i from n;",
    )  # fmt: skip
    async with opened(path):
        pass
    with upgrading(f"sqlite:///{path}", later) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [
            "applying 0002_later.sql\n", "applied 0002_later.sql\n", "applying 0003_later.sql\n",
        ]  # fmt: skip
        process.kill()
    assert applied(path) == [1, 2]
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("select count(*) from two").fetchone() == (0,)
        assert "mood" not in [row[1] for row in database.execute("pragma table_info(run)")]
    async with opened(path, release(tmp_path / "mended", FIRST[adapter], whole_0002="create table two (a integer);")):
        pass


async def test_a_file_that_fails_leaves_nothing_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    async with opened(path):
        pass
    broken = release(tmp_path / "broken", FIRST[adapter], whole_0002=f"{ADDS}\ninsert into nowhere values (1);")
    async with Raises(StoreUnavailable) as raised:
        await upgrade(path, broken)
    assert "nowhere" in str(raised.error)
    assert applied(path) == [1]
    with closing(sqlite3.connect(path)) as database:
        assert "mood" not in [row[1] for row in database.execute("pragma table_info(run)")]


async def test_who_only_reads_makes_nothing_and_upgrades_nothing(tmp_path: Path, newer: Path) -> None:
    path = tmp_path / "x.db"
    async with Raises(StoreUnavailable) as raised, opened(path, existing=True):
        pass
    assert "the first start makes it" in str(raised.error)
    assert names(tmp_path) == ["newer"]
    async with opened(path):
        pass
    async with Raises(StoreUnavailable) as raised, opened(path, newer, existing=True):
        pass
    assert "an older release made it" in str(raised.error)
    assert applied(path) == [1]
    await upgrade(path, newer)
    async with opened(path, newer, existing=True) as store:
        assert await store.now() > 0
