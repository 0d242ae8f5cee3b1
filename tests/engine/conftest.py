"""Fixtures of the engine's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine import subject
from tests.engine.lagging import Database
from tests.engine.rig import Rig, rig_at, rig_on


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    subject.reset()
    async with rig_at(tmp_path) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """A rig on each of the stores in turn."""
    subject.reset()
    store = rig_at(tmp_path) if request.param == "sqlite" else rig_on(str(request.getfixturevalue("postgres")))
    async with store as made:
        yield made


@pytest.fixture
async def database(rig: Rig, tmp_path: Path) -> AsyncIterator[Database]:
    """The database of all workers, which can fail over."""
    primary, database = rig.store, Database(rig, tmp_path)
    yield database
    await database.close()
    rig.store = primary
