"""Registers the SQLite adapter with the store suite."""

import asyncio
from pathlib import Path

import pytest

from outlive.store.port import Append, Store
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import Scene, event
from outlive.testing.store_suite import CASES, Case, run_case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_sqlite(case: Case, tmp_path: Path) -> None:
    await in_file(case, tmp_path)


async def test_other_writers_wait_for_a_transaction(tmp_path: Path) -> None:
    await in_file(other_writers_wait_for_a_transaction, tmp_path)


async def in_file(case: Case, folder: Path) -> None:
    async def open_store(clock: ManualClock) -> Store:
        store = SQLiteStore(folder / "outlive.db", name="suite", clock=clock)
        await store.open()
        return store

    await run_case(case, open_store)


async def other_writers_wait_for_a_transaction(scene: Scene) -> None:
    """SQLite has one write lock, and the transaction holds it while it is open."""
    hold = await scene.hold()
    order: list[str] = []
    entered = asyncio.Event()

    async def write() -> None:
        await entered.wait()
        await scene.post()
        order.append("posted")

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        async with scene.store.transaction() as transaction:
            entered.set()
            await transaction.execute("create table effect (number integer)")
            order.append("written")
            hold.head = await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
    assert order == ["written", "posted"]
