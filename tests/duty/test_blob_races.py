"""Whoever drops a blob and whoever names it again, at once, over two connections: no entry is left without its blob."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from outlive.errors import UnknownRun
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.keeping import Aged
from outlive.store.port import Append
from outlive.store.postgres.append import prepare, statement
from outlive.store.postgres.connection import Statements, place_of
from outlive.store.sqlite import SQLiteStore
from outlive.store.sqlite.append import execute
from outlive.store.sqlite.append import prepare as prepare_in_file
from outlive.store.sqlite.connection import connect
from outlive.testing.store_cases_fork import fork
from outlive.testing.store_scene import Hold, Scene, event, held
from tests.duty.conftest import in_file, in_schema
from tests.duty.ground import LARGE, end, kept, left, sql
from tests.store.postgres_scene import hand_on

DAY = 86_400_000


async def forget_old(scene: Scene) -> tuple[int, int]:
    """Forget what is old; how many runs and blobs went."""
    found = [one for one in await kept(scene).aged("succeeded", after=Aged(), limit=99, older_ms=DAY) if not one.why]
    gone = await kept(scene).forget("succeeded", found, most=100, older_ms=DAY)
    return gone.runs, await kept(scene).drop_blobs(gone.blobs)


async def one_old_one_live(scene: Scene) -> Hold:
    await end(scene, "old", payload=LARGE)
    scene.advance(days=2)
    return await scene.hold("live")


async def naming(scene: Scene, url: str, hold: Hold) -> tuple[bytes, dict[str, object]]:
    """The append of the same payload to the live run, as the store sends it."""
    prepared = prepare(
        await scene.store.key(DEFAULT_TENANT), Append(hold.authority, hold.head, (event(payload=LARGE),)), scene.now
    )  # fmt: skip
    return statement(Statements(place_of(url).schema), [prepared])


async def test_a_blob_that_an_append_is_just_naming_is_kept(postgres: str) -> None:
    scene = await Scene.set(in_schema(postgres))
    async with hand_on(postgres) as hand:
        hold = await one_old_one_live(scene)
        query, parameters = await naming(scene, postgres, hold)
        hand._holding.execute(query, parameters)
        forgetting = asyncio.ensure_future(forget_old(scene))
        await hand.until_waiting("for update of blob")
        hand.commit()
        assert await forgetting == (1, 0)
        assert (await scene.log("live"))[-1].payload == LARGE
    await scene.close()


async def test_a_blob_that_is_just_dropped_is_stored_again_by_an_append(postgres: str) -> None:
    scene = await Scene.set(in_schema(postgres))
    async with hand_on(postgres) as hand:
        hold = await one_old_one_live(scene)
        hand.do("delete from entry where run_id = 'old'")
        hand.do("select from blob for update")
        hand.do("delete from blob where not exists (select from entry where entry.blob = blob.address)")
        appending = asyncio.ensure_future(scene.append(hold, event(payload=LARGE)))
        await hand.until_waiting("blob")
        hand.commit()
        await appending
        assert (await scene.log("live"))[-1].payload == LARGE
    await scene.close()


async def test_a_blob_is_dropped_when_the_append_that_named_it_is_undone(postgres: str) -> None:
    scene = await Scene.set(in_schema(postgres))
    async with hand_on(postgres) as hand:
        hold = await one_old_one_live(scene)
        query, parameters = await naming(scene, postgres, hold)
        hand._holding.execute(query, parameters)
        forgetting = asyncio.ensure_future(forget_old(scene))
        await hand.until_waiting("for update of blob")
        hand.rollback()
        assert await forgetting == (1, 1)
    await scene.close()


async def test_two_appends_of_one_batch_may_name_one_blob(postgres: str) -> None:
    scene = await Scene.set(in_schema(postgres))
    one, two = await scene.hold("one"), await scene.hold("two")
    secret = await scene.store.key(DEFAULT_TENANT)
    both = [
        prepare(secret, Append(hold.authority, hold.head, (event(payload=LARGE),) * 2), None) for hold in (one, two)
    ]
    query, parameters = statement(Statements(place_of(postgres).schema), both)
    async with hand_on(postgres) as hand:
        hand._holding.execute(query, parameters)
        hand.commit()
    assert [entry.payload for entry in (await scene.log("two"))[-2:]] == [LARGE, LARGE]
    assert left(scene)["blob"] == 1
    await scene.close()


async def test_a_run_that_somebody_is_just_posting_to_is_kept(postgres: str) -> None:
    scene = await Scene.set(in_schema(postgres))
    async with hand_on(postgres) as hand:
        await end(scene, "old")
        scene.advance(days=2)
        sql_of = Statements(place_of(postgres).schema)
        message = {"tenant": "default", "run": "old", "topic": "t", "sender_key": "k", "body": "{}", "now": 1}
        hand._holding.execute(sql_of["add_message"], message)
        assert await forget_old(scene) == (0, 0)
        hand.commit()
        assert await forget_old(scene) == (0, 0)
        assert len(await scene.store.unread(DEFAULT_TENANT, RunId("old"))) == 1
    await scene.close()


async def test_an_origin_of_which_somebody_is_just_forking_a_run_is_kept(postgres: str) -> None:
    """The fork is not there yet, and would ask what the first run has done."""
    scene = await Scene.set(in_schema(postgres))
    async with hand_on(postgres) as hand:
        await end(scene, "old")
        await fork(scene, "fork", 1, "old")
        [claimed] = await scene.claims()
        await scene.become(held(claimed), "succeeded")
        scene.advance(days=2)
        hand.do("update run set forked = 1 where id = 'fork'")
        assert await forget_old(scene) == (0, 0)
        hand.commit()
        assert await forget_old(scene) == (2, 0)
    await scene.close()


async def test_a_message_to_a_run_that_is_just_forgotten_is_refused(postgres: str) -> None:
    scene = await Scene.set(in_schema(postgres))
    async with hand_on(postgres) as hand:
        await end(scene, "old")
        hand.do("select from run where id = 'old' for update")
        hand.do("delete from run where id = 'old'")
        posting = asyncio.ensure_future(scene.post("old"))
        await hand.until_waiting("insert into")
        hand.commit()
        with pytest.raises(UnknownRun):
            await posting
        assert sql(scene, "select count(*) from inbox") == [(0,)]
    await scene.close()


async def test_posting_to_a_live_run_waits_for_nobody_who_writes_to_it(postgres: str) -> None:
    scene = await Scene.set(in_schema(postgres))
    async with hand_on(postgres) as hand:
        await scene.start("live")
        hand.do("select from run where id = 'live' for update")
        assert await scene.post("live")
    await scene.close()


async def test_in_a_file_an_append_and_a_drop_follow_each_other(tmp_path: Path) -> None:
    """Each is one transaction under the one write lock: whichever is first, the entry has its blob."""
    scene = await Scene.set(in_file(tmp_path))
    hold = await one_old_one_live(scene)
    assert isinstance(scene.store, SQLiteStore)
    secret = await scene.store.key(DEFAULT_TENANT)
    prepared = prepare_in_file(secret, Append(hold.authority, hold.head, (event(payload=LARGE),)))
    with closing(connect(scene.store._path, wait=10)) as other:
        other.execute("begin immediate")
        execute(other, prepared, scene.now)
        forgetting = asyncio.ensure_future(forget_old(scene))
        while not forgetting.done() and not scene.store._writer()._requests.empty():
            await asyncio.to_thread(lambda: None)
        assert not forgetting.done()
        other.execute("commit")
        assert await forgetting == (1, 0)
    assert (await scene.log("live"))[-1].payload == LARGE
    await scene.close()
