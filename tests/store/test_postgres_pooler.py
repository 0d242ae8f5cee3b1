"""The store suite and the property test again, behind a pooler that gives each transaction another connection."""

from collections.abc import Iterator

import pytest

from outlive.store.port import Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.testing.clock import ManualClock
from outlive.testing.store_suite import CASES, Case, run_case
from tests.store.pooler import NEEDED, pooled
from tests.store.test_property import check, on_place

pytestmark = NEEDED


@pytest.fixture
def through_pooler(postgres: str) -> Iterator[str]:
    with pooled(postgres, place_of(postgres).schema) as url:
        yield url


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_postgres_behind_a_pooler(case: Case, through_pooler: str) -> None:
    async def open_store(clock: ManualClock) -> Store:
        store = PostgresStore(place_of(through_pooler), clock=clock)
        await store.open()
        return store

    await run_case(case, open_store)


@pytest.mark.timeout(1800)
def test_store_and_model_agree_behind_a_pooler(through_pooler: str) -> None:
    check(on_place(place_of(through_pooler)), examples=40, steps=40)
