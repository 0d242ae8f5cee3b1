"""Registers the SQLite adapter with the store suite."""

from pathlib import Path

import pytest

from outlive.store.port import Store
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from outlive.testing.store_suite import CASES, Case, run_case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_sqlite(case: Case, tmp_path: Path) -> None:
    async def open_store(clock: ManualClock) -> Store:
        store = SQLiteStore(tmp_path / "outlive.db", name="suite", clock=clock)
        await store.open()
        return store

    await run_case(case, open_store)
