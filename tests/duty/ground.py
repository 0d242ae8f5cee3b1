"""What the tests of duties share: ended runs of any age, a shift that takes no time, what a store has left."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import psycopg

from outlive.duty.rota import Shift
from outlive.model.clock import SystemClock
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.operation import OperationStatus
from outlive.model.run import Status
from outlive.store.keeping import Kept
from outlive.store.port import Append, Change
from outlive.store.postgres import PostgresStore
from outlive.store.sqlite import SQLiteStore
from outlive.testing.store_scene import Scene, event, operation

LARGE = '"' + "x" * 40_000 + '"'
ENDED_TABLES = ("run", "entry", "operation", "inbox", "divergence", "blob")


class Unhurried(SystemClock):
    """Rests take no time."""

    async def sleep(self, seconds: float) -> None:
        return


def kept(scene: Scene) -> Kept:
    assert isinstance(scene.store, Kept)
    return scene.store


def shift_of(scene: Scene, name: str = "retention") -> Shift:
    return Shift(kept(scene), Unhurried(), name, "token")


async def end(
    scene: Scene, run: str, status: Status = "succeeded", *, operations: Sequence[OperationStatus] = (),
    entries: int = 1, payload: str | None = None,
) -> None:  # fmt: skip
    """A run that ends now, with so many entries beside those of its start, its claim and its end."""
    hold = await scene.hold(run)
    for _ in range(entries // 500):
        await scene.append(hold, *(event() for _ in range(500)))
    await scene.append(hold, *(event(payload=payload) for _ in range(entries % 500)))
    rows = tuple(replace(operation(hold, number), status=one) for number, one in enumerate(operations, start=1))
    await scene.act(hold, Append(hold.authority, hold.head, (event("end"),), Change(status), operations=rows))


def sql(scene: Scene, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    """One statement of somebody who is not the store."""
    store = scene.store
    if isinstance(store, SQLiteStore):
        with closing(sqlite3.connect(store._path, isolation_level=None, timeout=60)) as database:
            return database.execute(statement, parameters).fetchall()
    assert isinstance(store, PostgresStore)
    with psycopg.connect(store._place.conninfo, autocommit=True) as connection:
        cursor = connection.execute(statement.replace("?", "%s").encode(), parameters)
        return cursor.fetchall() if cursor.description is not None else []


def left(scene: Scene) -> dict[str, int]:
    """How many rows each table has of what belongs to runs."""
    return {table: int(str(sql(scene, f"select count(*) from {table}")[0][0])) for table in ENDED_TABLES}


async def is_there(scene: Scene, run: str) -> bool:
    return await scene.store.run(DEFAULT_TENANT, RunId(run)) is not None


CARL = Owner("carl")
