"""A rig on either store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.testing.clock import ManualClock
from tests.engine import subject
from tests.engine.rig import Rig, rig_at


@pytest.fixture(params=["sqlite", "postgres"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    subject.reset()
    if request.param == "sqlite":
        async with rig_at(tmp_path) as made:
            yield made
        return
    clock = ManualClock()
    store = PostgresStore(place_of(str(request.getfixturevalue("postgres"))), clock=clock)
    await store.open()
    try:
        yield Rig(store, clock)
    finally:
        await store.close()
