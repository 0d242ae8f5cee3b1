"""The connection to PostgreSQL is lost: what is unknown is said to be, and a claim from ourselves settles it."""

import asyncio
from pathlib import Path

import pytest

from outlive.model.errors import CommitUnknown, LeaseLost, StoreUnavailable
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.port import Append
from outlive.testing.store_scene import ANNA, LEASE, Hold, Scene, event, held, together
from tests.store.postgres_scene import hand_on, raw, scene_on
from tests.store.proxy import Moment, proxied

BACKENDS = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'outlive%'"


async def settle(scene: Scene, hold: Hold) -> bool:
    """Claim again and read the tail; returns whether the lost append is there, and stores one more."""
    claimed = await scene.store.again(hold.authority, owner=ANNA, lease_ms=LEASE, now=scene.now)
    assert claimed is not None
    kinds = [entry.kind for entry in await scene.log(hold.run)]
    assert kinds[-1] == "claimed"
    late = Append(hold.authority, hold.head, (event("late"),))
    with pytest.raises(LeaseLost):
        await scene.store.append(late, now=scene.now)
    await scene.append(held(claimed), event("on"))
    return len(kinds) > hold.head.seq + 1


@pytest.mark.parametrize("moment", ["before", "during", "after"])
async def test_a_cut_around_a_commit_is_unknown_and_then_known(postgres: str, tmp_path: Path, moment: Moment) -> None:
    async with proxied(postgres, tmp_path) as (proxy, url), scene_on(url) as scene:
        first, second = await scene.hold("r1"), await scene.hold("r2")
        proxy.cut_at = moment
        answers = await together(scene.append(first, event()), scene.append(second, event()))
        assert [type(answer) for answer in answers] == [CommitUnknown, CommitUnknown]
        there = {await settle(scene, first), await settle(scene, second)}
        # While it is being executed, a claim of one of its runs may come before it and that of another after it.
        if moment != "during":
            assert there == {moment == "after"}


async def test_an_append_that_the_server_still_executes_is_ordered_before_the_claim(
    postgres: str, tmp_path: Path
) -> None:
    async with proxied(postgres, tmp_path) as (proxy, url), scene_on(url) as scene, hand_on(postgres) as hand:
        hold = await scene.hold()
        hand.do("select 1 from run for no key update")
        proxy.cut_at = "during"
        with pytest.raises(CommitUnknown):
            await scene.append(hold, event())
        await hand.until_waiting("1::bigint as place")
        assert len(await scene.store.entries(DEFAULT_TENANT, hold.run)) == 2
        claiming = asyncio.ensure_future(scene.store.again(hold.authority, owner=ANNA, lease_ms=LEASE, now=scene.now))
        await hand.until_waiting("for no key update")
        hand.rollback()
        claimed = await claiming
        assert claimed is not None
        assert [entry.kind for entry in await scene.log()] == ["started", "claimed", "emitted", "claimed"]


async def test_every_connection_may_be_ended_by_the_server(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        await scene.append(hold, event())
        assert scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now).kept == {hold.authority}
        with raw(postgres) as connection:
            connection.execute(BACKENDS)
        assert scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now).kept == {hold.authority}
        assert len(await scene.log()) == 3
        await scene.append(hold, event())
        assert await scene.post(), "nothing was sent over what had gone"
        assert len(await scene.log()) == 4


async def test_a_transaction_whose_connection_ends_leaves_nothing(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        with raw(postgres) as connection:
            connection.execute("create table effect (number integer)")
            with pytest.raises(StoreUnavailable):
                async with scene.store.transaction() as transaction:
                    await transaction.execute("insert into effect values (1)")
                    connection.execute(BACKENDS)
                    await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
            assert connection.execute("select * from effect").fetchall() == []
        assert len(await scene.log()) == 2


async def test_a_server_that_is_not_there_is_unavailable(postgres: str, tmp_path: Path) -> None:
    async with proxied(postgres, tmp_path) as (proxy, url), scene_on(url, wait=0.5) as scene:
        hold = await scene.hold()
        (tmp_path / ".s.PGSQL.5432").unlink()
        await proxy.close()
        with pytest.raises(StoreUnavailable):
            await scene.store.entries(DEFAULT_TENANT, hold.run)
        with pytest.raises((StoreUnavailable, CommitUnknown)):
            await scene.append(hold, event())
        with pytest.raises(StoreUnavailable):
            await scene.append(hold, event())
        with pytest.raises(StoreUnavailable):
            scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now)
