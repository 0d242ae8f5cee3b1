"""Registers the PostgreSQL adapter with the store suite."""

import pytest

from outlive.store.port import Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.testing.clock import ManualClock
from outlive.testing.store_suite import CASES, Case, run_case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("direct", ["yes", pytest.param("no", marks=pytest.mark.long)])
async def test_postgres(case: Case, direct: str, postgres: str) -> None:
    async def open_store(clock: ManualClock) -> Store:
        store = PostgresStore(place_of(f"{postgres}&direct={direct}"), clock=clock)
        await store.open()
        return store

    await run_case(case, open_store)
