"""Workers behind PgBouncer in transaction mode: a few connections for all of them, each transaction on another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlive.store.postgres.connection import place_of
from tests.baddays.scene import bad_day
from tests.store.pooler import NEEDED, pooler

pytestmark = NEEDED


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"default_pool_size": 1},
        # Connections to the server go all the time; those of workers that are idle too.
        {"server_lifetime": 1, "server_idle_timeout": 1},
        {"client_idle_timeout": 2},
        {"server_reset_query_always": 1},
    ],
    ids=lambda settings: ",".join(settings) or "as it is",
)
async def test_workers_behind_a_pooler(url: str, tmp_path: Path, settings: dict[str, object]) -> None:
    with pooler(url, place_of(url).schema, **settings) as here:
        async with bad_day(tmp_path, here.url) as day:
            day.workers()
            await day.begun()
            await day.load()
            await day.judged()


async def test_a_pooler_that_is_started_again_costs_latency(url: str, tmp_path: Path) -> None:
    with pooler(url, place_of(url).schema) as here:
        async with bad_day(tmp_path, here.url) as day:
            day.workers()
            await day.begun()

            def disaster() -> None:
                here.stop()
                here.start()

            await day.pass_through(disaster)
            await day.judged()
