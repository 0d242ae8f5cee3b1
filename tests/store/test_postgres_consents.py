"""Approvals on PostgreSQL while somebody else holds the row of the run, or of the approval: what is decided and used
waits, is compared with what is there then, and nothing is lost or used twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from outlive.model.approval import ApprovalRow, Vote
from outlive.model.clock import SystemClock
from outlive.model.errors import ApprovalClosed, ApprovalRefused, CommitUnknown, LeaseLost, MayNotDecide
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.port import Append, Store
from outlive.store.postgres import PostgresStore
from outlive.store.postgres.connection import place_of
from outlive.testing.store_cases_approvals import ADA, BEN, CEM, FIRST, asked, consume, seen, use, vote
from outlive.testing.store_scene import Scene, event, operation, together
from tests.store.postgres_scene import Hand, hand_on, scene_on

# Words of the statements, by which one that waits is known.
USING, DECIDING = "usable as materialized", "decided_at = case when"
RUN = "select 1 from run where id = 'r' for no key update"
APPROVAL = "select 1 from approval where id = 'ap-1' for no key update"
TAKEOVER = "update run set epoch = epoch + 1, token = 'other', next_seq = next_seq + 1 where id = 'r'"
REVOKED = "update approval set status = 'revoked', votes = votes + 1 where id = 'ap-1'"
USED = "update approval set used_at = 1 where id = 'ap-1'"
BY_BEN = (
    "with voted as (update approval set votes = votes + 1 where id = 'ap-1' returning *)"
    " insert into vote (tenant, approval, number, who, act, role, place, to_whom, why, digest, edited, nonce, at)"
    " select tenant, id, votes, 'ben', 'approve', 'finance', '', '', '', 'd', null, '', 1 from voted"
)
SENT = "select (select count(*) - 1 from entry where kind = 'emitted'), (select count(*) from operation)"


async def nothing_was_sent(hand: Hand, scene: Scene) -> None:
    assert await hand.see(SENT) == [(0, 0)]
    assert (await seen(scene)).row.used_at is None


async def test_a_use_waits_for_a_takeover_and_is_then_refused(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await asked(scene)
        await vote(scene, ADA)
        hand.do(TAKEOVER)
        using = asyncio.ensure_future(consume(scene, hold, use(hold)))
        await hand.until_waiting(USING)
        hand.commit()
        with pytest.raises(LeaseLost):
            await using
        await nothing_was_sent(hand, scene)


@pytest.mark.parametrize("held", [RUN, APPROVAL, TAKEOVER, REVOKED], ids=["run", "approval", "takeover", "revoked"])
async def test_a_use_goes_on_when_what_it_waits_for_is_undone(postgres: str, held: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await asked(scene)
        await vote(scene, ADA)
        hand.do(held)
        using = asyncio.ensure_future(consume(scene, hold, use(hold)))
        await hand.until_waiting(USING)
        hand.rollback()
        await using
        assert await hand.see(SENT) == [(1, 1)]
        assert (await seen(scene)).row.used_at == scene.now
        await scene.log()


async def test_what_is_taken_back_while_its_use_waits_is_not_used(postgres: str) -> None:
    """Whether the use waits for that very change, or for the run, so that it has looked at the approval before."""
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await asked(scene)
        await vote(scene, ADA)
        hand.do(RUN)
        using = asyncio.ensure_future(consume(scene, hold, use(hold)))
        await hand.until_waiting(USING)
        assert (await vote(scene, replace(BEN, act="revoke"))).status == "revoked"
        hand.rollback()
        with pytest.raises(ApprovalRefused):
            await using
        await nothing_was_sent(hand, scene)
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hand.do("update approval set status = 'approved'")
        hand.commit()
        hand.do(REVOKED)
        using = asyncio.ensure_future(consume(scene, hold, use(hold)))
        await hand.until_waiting(USING)
        hand.commit()
        with pytest.raises(ApprovalRefused):
            await using
        await nothing_was_sent(hand, scene)


async def test_what_is_approved_while_its_use_waits_is_used_by_the_next_one(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold = await asked(scene)
        hand.do(RUN)
        using = asyncio.ensure_future(consume(scene, hold, use(hold)))
        await hand.until_waiting(USING)
        assert (await vote(scene, ADA)).status == "approved"
        hand.rollback()
        with pytest.raises(ApprovalRefused):
            await using
        await nothing_was_sent(hand, scene)
        await consume(scene, hold, use(hold))
        assert await hand.see(SENT) == [(1, 1)]


async def test_two_owners_of_one_authority_use_an_approval_once(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        hold, other = await asked(scene), await scene.other()
        await vote(scene, ADA)
        hand.do(APPROVAL)
        intent = Append(hold.authority, hold.head, (event("intent"),), operations=(operation(hold),), use=use(hold))
        using = asyncio.ensure_future(
            together(*(store.append(intent, now=scene.now) for store in (scene.store, other)))
        )
        await hand.until_waiting(USING, count=2)
        hand.rollback()
        told = await using
        assert sorted(isinstance(one, LeaseLost) for one in told) == [False, True]
        assert await hand.see(SENT) == [(1, 1)]


@asynccontextmanager
async def by_the_servers_clock(postgres: str) -> AsyncIterator[Store]:
    """The store once more, without the clock of the scene."""
    store = PostgresStore(place_of(postgres), clock=SystemClock(), wait=30)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def expiring(store: Store, hand: Hand) -> int:
    """A moment that comes soon, in which the approval expires."""
    moment = await store.now() + 1000
    hand.do(f"update approval set expires_at = {moment}")
    hand.commit()
    return moment


async def until_over(store: Store, hand: Hand, moment: int, asking: asyncio.Future[Any], statement: str) -> None:
    """Once it waits for the row, and the moment has passed. It may have come too late even to wait."""
    waits = asyncio.ensure_future(hand.until_waiting(statement))
    await asyncio.wait([asking, waits], return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    await asyncio.wait([waits])
    while await store.now() < moment:
        pass


async def test_what_expires_while_its_use_waits_is_not_used(postgres: str) -> None:
    async with scene_on(postgres) as scene, by_the_servers_clock(postgres) as store, hand_on(postgres) as hand:
        hold = await asked(scene)
        await vote(scene, ADA)
        moment = await expiring(store, hand)
        hand.do(APPROVAL)
        intent = Append(hold.authority, hold.head, (event("intent"),), operations=(operation(hold),), use=use(hold))
        using = asyncio.ensure_future(store.append(intent))
        await until_over(store, hand, moment, using, USING)
        hand.rollback()
        with pytest.raises(ApprovalRefused):
            await using
        await nothing_was_sent(hand, scene)


async def test_what_expires_while_a_vote_waits_is_not_decided(postgres: str) -> None:
    async with scene_on(postgres) as scene, by_the_servers_clock(postgres) as store, hand_on(postgres) as hand:
        await asked(scene)
        moment = await expiring(store, hand)
        hand.do(APPROVAL)
        voting = asyncio.ensure_future(store.vote(DEFAULT_TENANT, FIRST, ADA))
        await until_over(store, hand, moment, voting, DECIDING)
        hand.rollback()
        with pytest.raises(ApprovalClosed, match="expired"):
            await voting
        found = await seen(scene)
        assert (found.row.status, found.row.votes, found.votes) == ("asked", 0, ())


def waiting(scene: Scene, *votes: Vote) -> asyncio.Future[list[object]]:
    """All of them at once, each with what came of it."""
    return asyncio.ensure_future(
        together(*(scene.store.vote(DEFAULT_TENANT, FIRST, one, now=scene.now) for one in votes))
    )


async def test_votes_that_wait_for_another_one_are_judged_with_it(postgres: str) -> None:
    """Of a quorum of two, one vote is being written and two wait for it: the second makes it, the third is told."""
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        await asked(scene, quorum=2)
        hand.do(BY_BEN)
        voting = waiting(scene, ADA, CEM)
        await hand.until_waiting(DECIDING, count=2)
        hand.commit()
        told = await voting
        assert sorted(type(one).__name__ for one in told) == ["ApprovalClosed", "ApprovalRow"]
        found = await seen(scene)
        assert (found.row.status, found.row.votes) == ("approved", 2)
        assert found.votes[0].who == "ben" and found.votes[1].who in ("ada", "cem")
        assert await hand.see("select count(*) from inbox where topic = 'approval'") == [(1,)]


@pytest.mark.parametrize("second", ["approve", "reject"])
async def test_a_vote_that_waits_for_one_that_is_undone_counts(postgres: str, second: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        await asked(scene)
        hand.do(BY_BEN)
        voting = waiting(scene, ADA, replace(CEM, act="reject"))
        await hand.until_waiting(DECIDING, count=2)
        hand.rollback()
        rows = [one for one in await voting if isinstance(one, ApprovalRow)]
        found = await seen(scene)
        assert [row.status for row in rows] == [found.row.status]
        assert len(found.votes) == found.row.votes == 1


async def test_nobody_takes_back_what_is_being_used(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        await asked(scene)
        await vote(scene, ADA)
        hand.do(USED)
        voting = waiting(scene, replace(BEN, act="revoke"))
        await hand.until_waiting(DECIDING)
        hand.commit()
        [told] = await voting
        assert isinstance(told, ApprovalClosed)
        assert told.status == "used"
        assert [one.who for one in (await seen(scene)).votes] == ["ada"]


async def test_a_row_that_is_held_for_too_long_leaves_an_unknown_commit_and_nothing_twice(postgres: str) -> None:
    """What was given up may still be done by the server, once the row is free; whoever repeats it changes nothing."""
    async with scene_on(postgres, wait=0.5) as scene, hand_on(postgres) as hand:
        hold = await asked(scene)
        hand.do(APPROVAL)
        with pytest.raises(CommitUnknown):
            await vote(scene, ADA)
        hand.rollback()
        with suppress(ApprovalClosed, MayNotDecide):
            await vote(scene, ADA)
        assert [one.who for one in (await seen(scene)).votes] == ["ada"]
        hand.do(RUN)
        with pytest.raises(CommitUnknown):
            await consume(scene, hold, use(hold))
        hand.rollback()
        with suppress(LeaseLost):
            await consume(scene, hold, use(hold))
        assert await hand.see(SENT) == [(1, 1)]
        assert (await seen(scene)).row.used_at == scene.now
        await scene.log()
