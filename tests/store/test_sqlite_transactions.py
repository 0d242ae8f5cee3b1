"""Transactions of a tool's own on SQLite: what its SQL can do to the transaction, and what it cannot."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from outlive.errors import Refused, StoreUnavailable
from outlive.model.run import Head
from outlive.store.port import Append
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import Hold, Scene, event, together

# Each ends the transaction as a side effect of an error that the tool can catch.
ENDING = {
    "or rollback": "insert or rollback into plain values (1)",
    "update or rollback": "update or rollback plain set number = 1 where number = 2",
    "on conflict rollback": "insert into strict_ones values (1)",
    "raise(rollback)": "insert into guarded values (1)",
}
TABLES = """
    create table plain (number integer primary key);
    create table strict_ones (number integer primary key on conflict rollback);
    create table guarded (number integer);
    create trigger guard before insert on guarded begin select raise(rollback, 'no more'); end;
    insert into plain values (1), (2);
    insert into strict_ones values (1);
"""


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    path = tmp_path / "outlive.db"

    async def open_store(clock: ManualClock) -> SQLiteStore:
        store = SQLiteStore(path, name="test", clock=clock)
        await store.open()
        return store

    scene = await Scene.set(open_store)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(TABLES)
    yield scene
    await scene.close()


@pytest.mark.parametrize("sql", ENDING.values(), ids=list(ENDING))
async def test_nothing_joins_a_transaction_that_its_own_sql_has_ended(scene: Scene, sql: str) -> None:
    hold = await scene.hold()
    async with scene.store.transaction() as transaction:
        await transaction.execute("insert into plain values (7)")
        with pytest.raises(sqlite3.IntegrityError):
            await transaction.execute(sql)
        with pytest.raises(Refused, match="rolled it back"):
            await transaction.execute("insert into plain values (8)")
        with pytest.raises(Refused, match="rolled it back"):
            await transaction.execute("savepoint begins_one")
        with pytest.raises(Refused, match="rolled it back"):
            await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
    await nothing_was_written(scene, hold)


@pytest.mark.parametrize("sql", ENDING.values(), ids=list(ENDING))
async def test_what_was_asked_for_before_the_end_is_known_does_not_join_either(scene: Scene, sql: str) -> None:
    hold = await scene.hold()
    append = Append(hold.authority, hold.head, (event(),))
    async with scene.store.transaction() as transaction:
        await transaction.execute("insert into plain values (7)")
        answers = await together(
            transaction.execute(sql),
            transaction.execute("insert into plain values (8)"),
            transaction.append(append, now=scene.now),
        )
    assert [type(answer) for answer in answers] == [sqlite3.IntegrityError, Refused, Refused]
    await nothing_was_written(scene, hold)


async def test_a_statement_behind_an_append_is_not_a_commit_of_its_own(scene: Scene) -> None:
    hold = await scene.hold()
    async with scene.store.transaction() as transaction:
        append = transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        behind = [transaction.execute("insert into plain values (8)"), transaction.execute("update run set epoch = 9")]
        answers = await together(append, *behind)
    assert [type(answer) for answer in answers] == [Head, Refused, Refused]
    assert await numbers(scene) == [1, 2]
    assert (await scene.row()).epoch == 1


async def test_an_error_that_leaves_the_transaction_open_ends_nothing(scene: Scene) -> None:
    hold = await scene.hold()
    async with scene.store.transaction() as transaction:
        await transaction.execute("insert into plain values (7)")
        for sql in ("insert into plain values (1)", "insert or fail into plain values (1)", "selec 1"):
            with pytest.raises(sqlite3.Error):
                await transaction.execute(sql)
        hold.head = await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
    assert await numbers(scene) == [1, 2, 7]
    assert len(await scene.log()) == 3


async def test_a_rollback_during_the_append_itself_leaves_nothing(scene: Scene, tmp_path: Path) -> None:
    hold = await scene.hold()
    with closing(sqlite3.connect(tmp_path / "outlive.db")) as database:
        database.executescript(
            "create trigger late after insert on entry begin select raise(rollback, 'not this one'); end"
        )
    async with scene.store.transaction() as transaction:
        await transaction.execute("insert into plain values (7)")
        with pytest.raises(StoreUnavailable, match="not this one"):
            await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
    with closing(sqlite3.connect(tmp_path / "outlive.db")) as database:
        database.executescript("drop trigger late")
    await nothing_was_written(scene, hold)


async def test_nothing_temporary_takes_the_place_of_the_stores_tables(scene: Scene) -> None:
    hold = await scene.hold()
    async with scene.store.transaction() as transaction:
        for sql in (
            "create temp table entry as select * from main.entry where 0",
            "create temp view run as select 1 as epoch",
            "create temp trigger swallow before insert on main.entry begin select raise(ignore); end",
        ):
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                await transaction.execute(sql)
        await transaction.execute("create temp table mine (number integer)")
        hold.head = await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
    assert len(await scene.log()) == 3


async def nothing_was_written(scene: Scene, hold: Hold) -> None:
    """Neither the rows nor the entry; and the store goes on."""
    assert await numbers(scene) == [1, 2]
    assert (await scene.row()).head == hold.head
    await scene.append(hold, event())
    assert len(await scene.log()) == 3


async def numbers(scene: Scene) -> list[object]:
    async with scene.store.transaction() as transaction:
        return [number for [number] in await transaction.execute("select number from plain order by number")]
