"""Two at once on PostgreSQL: a statement of the store waits, or must not wait, for a transaction that is held open."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from outlive.model.errors import LeaseLost, NotSerialisable
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.run import Head
from outlive.store.port import Append, Change
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import ANNA, BORIS, LEASE, event, new_run, operation, together, wish
from tests.store.postgres_scene import hand_on, raw, scene_on

TAKEOVER = "update run set epoch = epoch + 1, token = 'other', next_seq = next_seq + 1 where id = %s"
LOCK = "select 1 from run where id = %s for no key update"
ONE, MANY = "1::bigint as place", "for no key update of run"
FORMS = pytest.mark.parametrize(("change", "waiting"), [(None, ONE), (Change("ready"), MANY)], ids=["one", "change"])


@FORMS
async def test_an_append_waits_for_a_takeover_and_is_then_refused(
    postgres: str, change: Change | None, waiting: str
) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await scene.hold()
        hand.do(TAKEOVER, "r")
        appending = asyncio.ensure_future(scene.append(hold, event(), change=change))
        await hand.until_waiting(waiting)
        hand.commit()
        with pytest.raises(LeaseLost):
            await appending
        assert await hand.see("select count(*) from entry where kind = 'emitted'") == [(0,)]


async def test_an_append_goes_on_when_a_takeover_is_undone_or_a_lease_was_renewed(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await scene.hold()
        for change, end in [
            (TAKEOVER, hand.rollback),
            ("update run set expires_at = expires_at + 1 where id = %s", hand.commit),
        ]:
            hand.do(change, "r")
            appending = asyncio.ensure_future(scene.append(hold, event()))
            await hand.until_waiting(ONE)
            end()
            await appending
        assert len(await scene.log()) == 4


async def test_a_control_claim_waits_for_an_append_and_sees_it(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await scene.hold()
        hand.do("update run set next_seq = next_seq + 1, head = 'x' where id = 'r'")
        hand.do(
            "insert into entry (tenant, run_id, seq, epoch, kind, version, at, scope, key, body, digest)"
            " values ('default', 'r', 2, 1, 'emitted', 1, 1, '', '', '{}', 'x')"
        )
        seizing = asyncio.ensure_future(
            scene.store.seize(DEFAULT_TENANT, hold.run, owner=BORIS, lease_ms=LEASE, now=scene.now)
        )
        await hand.until_waiting("for no key update")
        hand.commit()
        claimed = await seizing
        assert claimed is not None
        assert [entry.seq for entry in await scene.store.window(DEFAULT_TENANT, hold.run)] == [0, 1, 2, 3]
        assert claimed.row.head.seq == 4


async def test_a_claim_leaves_out_a_run_that_is_being_written(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        await scene.start("busy")
        await scene.start("free")
        hand.do(LOCK, "busy")
        assert [one.row.id for one in await scene.claims()] == ["free"]
        hand.rollback()
        assert [one.row.id for one in await scene.claims()] == ["busy"]


async def test_a_sender_that_commits_after_the_run_went_to_sleep_wakes_it(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await scene.hold()
        hand.do(
            "insert into inbox (tenant, run_id, topic, sender_key, body, at)"
            " values ('default', 'r', 'news', 'k', '{}', 1)"
        )
        await scene.become(hold, "waiting")
        assert await scene.claims() == []
        hand.commit()
        assert len(await scene.claims()) == 1


async def test_a_message_with_an_earlier_id_that_commits_later_is_not_lost(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await scene.hold()
        hand.do(
            "insert into inbox (tenant, run_id, topic, sender_key, body, at)"
            " values ('default', 'r', 'news', 'early', '{}', 1)"
        )
        await scene.post(key="late")
        [late] = await scene.store.unread(DEFAULT_TENANT, hold.run)
        await scene.act(hold, Append(hold.authority, hold.head, (event(),), taken=(late.id,)))
        hand.commit()
        [early] = await scene.store.unread(DEFAULT_TENANT, hold.run)
        assert early.id < late.id
        assert early.sender_key == "early"


async def test_what_gathers_while_a_commit_is_on_its_way_is_one_commit(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        first, *others = [await scene.hold(f"r{number}") for number in range(5)]
        stale = others.pop()
        forged = Append(replace(stale.authority, token="0" * 32), stale.head, (event(),))
        hand.do(LOCK, "r0")
        leading = asyncio.ensure_future(scene.append(first, event()))
        await hand.until_waiting(ONE)
        following = asyncio.ensure_future(
            together(*[scene.append(hold, event()) for hold in others], scene.store.append(forged, now=scene.now))
        )
        await asyncio.wait([following], timeout=0)
        hand.rollback()
        await leading
        *done, refused = await following
        assert done == [None] * 3
        assert isinstance(refused, LeaseLost)
        commits = await hand.see("select run_id, xmin::text from entry where kind = 'emitted' order by run_id")
        assert [run for run, _ in commits] == ["r0", "r1", "r2", "r3"]
        assert len({commit for _, commit in commits}) == 2
        for hold in (first, *others):
            await scene.log(hold.run)


async def test_what_cannot_be_stored_fails_alone(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        first, good, bad = [await scene.hold(run) for run in ("first", "good", "bad")]
        too_big = Append(bad.authority, bad.head, (event(),), operations=(replace(operation(bad), attempt=2**70),))
        hand.do(LOCK, "first")
        leading = asyncio.ensure_future(scene.append(first, event()))
        await hand.until_waiting(ONE)
        following = asyncio.ensure_future(
            together(scene.append(good, event()), scene.store.append(too_big, now=scene.now))
        )
        await asyncio.wait([following], timeout=0)
        hand.rollback()
        await leading
        done, refused = await following
        assert done is None
        assert isinstance(refused, NotSerialisable)
        assert (await scene.row("bad")).head == bad.head
        await scene.append(bad, event())


async def test_a_cancelled_append_is_stored_before_its_caller_goes(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        first, gone, stays = [await scene.hold(run) for run in ("first", "gone", "stays")]
        hand.do(LOCK, "first")
        leading = asyncio.ensure_future(scene.append(first, event()))
        await hand.until_waiting(ONE)
        leaving, staying = [asyncio.ensure_future(scene.append(one, event())) for one in (gone, stays)]
        await asyncio.wait([leaving, staying], timeout=0)
        for one in (leading, leaving):
            one.cancel()
        await asyncio.wait([leading, leaving], timeout=0)
        assert not leading.done()
        assert not leaving.done()
        hand.rollback()
        await asyncio.wait([leading, leaving, staying])
        assert (leading.cancelled(), leaving.cancelled(), staying.cancelled()) == (True, True, False)
        assert [len(await scene.store.entries(DEFAULT_TENANT, RunId(run))) for run in ("first", "gone", "stays")] == [
            3, 3, 3,
        ]  # fmt: skip
        assert first.head.seq == 3, "the caller has learned the outcome"


async def test_a_statement_that_cannot_be_ordered_is_sent_again(postgres: str) -> None:
    strict = postgres.replace("&options=", "&options=-cdefault_transaction_isolation%3Drepeatable%5C%20read%20")
    async with scene_on(strict) as scene, hand_on(postgres) as hand:
        hold = await scene.hold()
        hand.do("update run set expires_at = expires_at + 1 where id = 'r'")
        appending = asyncio.ensure_future(scene.append(hold, event()))
        await hand.until_waiting(ONE)
        hand.commit()
        await appending
        hand.do("update run set expires_at = expires_at + 1 where id = 'r'")
        renewing = asyncio.ensure_future(
            asyncio.to_thread(scene.store.renew, ANNA, [hold.authority], LEASE, now=scene.now)
        )
        await hand.until_waiting(MANY)
        hand.commit()
        assert (await renewing).kept == {hold.authority}


async def test_a_run_that_starts_twice_at_once_is_one(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hand.do(
            "insert into run (tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at,"
            " input_digest, origin, queue, priority, ready_at) values ('default', 'r', 'other', '1', 'ready', 0, 0, '',"
            " 1, 1, '', 'r', 'default', 0, 1)"
        )
        starting = asyncio.ensure_future(scene.store.start(new_run("r"), now=scene.now))
        await hand.until_waiting("insert into")
        hand.commit()
        assert (await starting).agent == "other"
        assert await hand.see("select count(*) from entry") == [(0,)]


class Meddling(ManualClock):
    """Somebody is faster: when a claim asks for a token, after reading and before writing, `act` happens."""

    act: Callable[[], object] | None = None

    def token(self) -> str:
        if self.act is not None:
            self.act()
        return super().token()


@pytest.mark.parametrize(
    "change",
    [
        "update run set epoch = epoch + 1, next_seq = next_seq + 1",
        "update run set status = 'waiting'",
        "update run set paused_at = 1",
        "update run set expires_at = expires_at + 1 where status = 'running'",
    ],
)
async def test_a_claim_leaves_out_what_has_changed_since_it_was_read(postgres: str, change: str) -> None:
    clock = Meddling()
    store = PostgresStore(place_of(postgres), clock=clock)
    await store.open()
    await store.start(new_run("r"))
    if "expires_at" in change:
        await store.claim(wish())
        clock.advance(timedelta(milliseconds=LEASE))
    with raw(postgres) as connection:
        clock.act = partial(connection.execute, change.encode())
        assert await store.claim(replace(wish(), watched=frozenset([(DEFAULT_TENANT, RunId("r"), 1)]))) == []
        assert connection.execute("select count(*) from entry where epoch > 1").fetchone() == (0,)
    await store.close()


async def test_the_same_run_twice_in_a_batch_is_two_commits(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        first, twice = await scene.hold("first"), await scene.hold("twice")
        hand.do(LOCK, "first")
        leading = asyncio.ensure_future(scene.append(first, event()))
        await hand.until_waiting(ONE)
        same = [Append(twice.authority, twice.head, (event(name),)) for name in ("one", "two")]
        following = asyncio.ensure_future(together(*[scene.store.append(one, now=scene.now) for one in same]))
        await asyncio.wait([following], timeout=0)
        hand.rollback()
        await leading
        won, lost = await following
        assert isinstance(won, Head)
        assert isinstance(lost, LeaseLost)
        assert len(await scene.log("twice")) == 3
