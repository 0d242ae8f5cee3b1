"""The connection to the database is cut, or becomes a black hole: time-outs end it, and no run is lost."""

import asyncio
from pathlib import Path

import pytest

from examples.dunning.killer import Dice
from outlive.model.errors import CommitUnknown, StoreError, StoreUnavailable
from outlive.store.port import Append
from outlive.testing.store_scene import ANNA, LEASE, event
from tests.baddays.network import network
from tests.baddays.scene import bad_day, patiently
from tests.baddays.waiting import last
from tests.store.postgres_scene import scene_on


async def cut_often(url: str, directory: Path, *, seed: int, cuts: int, runs: int, each: int) -> None:
    dice = Dice(seed)
    # A claim whose answer is lost is nobody's until its lease has ended.
    async with network(url) as way, bad_day(directory, url, lease_s=4.0, moving=True) as day:
        day.workers(OUTLIVE_STORE=way.url)
        await day.begun()
        await day.load(runs, each=each)
        for number in range(cuts):
            least = (number + 1) * runs * each // (cuts + 2) - int(5 * dice.draw(f"moment {number}"))
            await day.effects(max(1, least))
            way.cut()
        await day.judged()
        assert way.cuts >= 2 * cuts


async def test_cut_at_random_moments(url: str, tmp_path: Path) -> None:
    await cut_often(url, tmp_path, seed=3, cuts=5, runs=8, each=10)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
async def test_cut_very_often(url: str, tmp_path: Path, seed: int) -> None:
    await cut_often(url, tmp_path, seed=seed, cuts=25, runs=12, each=20)


async def test_a_server_that_falls_silent_is_given_up(url: str) -> None:
    """Whatever waits for an answer is told in time that none comes, and goes on when the way is free again."""
    async with network(url) as way, scene_on(way.url, wait=0.3) as scene:
        hold = await scene.hold()
        await scene.append(hold, event())

        async def renewed() -> bool:
            answer = await asyncio.to_thread(scene.store.renew, ANNA, [hold.authority], LEASE)
            return answer.kept == {hold.authority}

        assert await renewed()
        async with scene.store.transaction() as transaction:
            way.darken()
            with pytest.raises(StoreUnavailable):
                await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        with pytest.raises(CommitUnknown):
            await scene.append(hold, event())
        with pytest.raises(StoreError):
            await renewed()
        with pytest.raises(StoreUnavailable):
            await scene.row()
        with pytest.raises(StoreError):
            await scene.post()
        way.lighten()
        assert await patiently(scene.post)
        assert len(await patiently(scene.log)) == 3
        assert await patiently(renewed)


@pytest.mark.long
async def test_a_black_hole_ends_by_time_outs(url: str, tmp_path: Path) -> None:
    """Within the lease, so that no run moves."""
    async with network(url) as way, bad_day(tmp_path, url, lease_s=45.0) as day:
        day.workers(OUTLIVE_STORE=way.url)
        await day.begun()
        await day.load()
        await day.effects(15)
        way.darken()
        await asyncio.to_thread(last, 5.0)
        way.lighten()
        await day.load(2, begin="later")
        await day.judged()


@pytest.mark.long
async def test_runs_of_a_worker_in_a_black_hole_are_taken_over(url: str, tmp_path: Path) -> None:
    async with network(url) as way, bad_day(tmp_path, url, lease_s=4.0, moving=True) as day:
        day.workers(1, OUTLIVE_STORE=way.url)
        await day.begun()
        await day.load()
        await day.effects(15)
        way.darken()
        day.workers(1)
        await day.judged()
        way.lighten()
        await day.load(2, begin="later")
        await day.judged()
