"""A scene of the store suite on each store: `scene.store` can be kept in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite import SQLiteStore
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import OpenStore, Scene


@pytest.fixture(params=["sqlite", "postgres"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    opener = in_file(tmp_path) if request.param == "sqlite" else in_schema(request.getfixturevalue("postgres"))
    made = await Scene.set(opener)
    try:
        yield made
    finally:
        await made.close()


def in_file(folder: Path) -> OpenStore:
    async def open_store(clock: ManualClock) -> SQLiteStore:
        store = SQLiteStore(folder / "runs.db", name="runs", clock=clock, unsafe_durability=True, synchronous="off")
        await store.open()
        return store

    return open_store


def in_schema(url: str) -> OpenStore:
    async def open_store(clock: ManualClock) -> PostgresStore:
        store = PostgresStore(place_of(url), clock=clock)
        await store.open()
        return store

    return open_store
