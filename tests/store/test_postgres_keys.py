"""Business keys on PostgreSQL, two at once: what is decided under the lock of a key's row is decided by what is there
when the lock is had, not by what the statement saw when it began.
"""

import asyncio

import pytest

from outlive.model.errors import KeyTaken
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.port import Append
from outlive.testing.store_cases_keys import key, mark, say, take, two, wait, woken
from outlive.testing.store_scene import event
from tests.store.postgres_scene import hand_on, scene_on

# What their statements begin with, as the server shows them.
TAKES, MARKS = "taken as (", "1::bigint as place"
BEGIN_TO_WAIT = """update business_key set waiters = '["b"]'"""


async def test_who_begins_to_wait_while_the_key_changes_is_woken(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        a, _ = await two(scene)
        await take(scene, a)
        hand.do(BEGIN_TO_WAIT)
        changing = asyncio.ensure_future(say(scene, a, "succeeded", outcome="1"))
        await hand.until_waiting(MARKS)
        hand.commit()
        await changing
        assert await woken(scene, "b") == 1
        assert (await key(scene)).waiters == ()


async def test_who_begins_to_wait_behind_a_change_is_told_so(postgres: str) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        a, _ = await two(scene)
        await take(scene, a)
        hand.do("update business_key set status = 'unknown', changes = changes + 1")
        waiting = asyncio.ensure_future(wait(scene, "b"))
        await hand.until_waiting("jsonb")
        hand.commit()
        assert await waiting is False
        assert (await key(scene)).waiters == ()


@pytest.mark.parametrize("commits", [True, False])
async def test_who_takes_a_key_waits_for_who_is_taking_it(postgres: str, commits: bool) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        _, b = await two(scene)
        hand.do(
            "insert into business_key"
            " (tenant, key, shown, tool, digest, run_id, operation, status, created_at, updated_at)"
            " values ('default', 'digest of INV-7', 'x', 'charge', 'd', 'a', 'a/op1', 'open', 1, 1)"
        )
        taking = asyncio.ensure_future(take(scene, b))
        await hand.until_waiting(TAKES)
        (hand.commit if commits else hand.rollback)()
        if commits:
            with pytest.raises(KeyTaken):
                await taking
        else:
            await taking
        assert (await key(scene)).mark.run == ("a" if commits else "b")


@pytest.mark.parametrize("commits", [True, False])
async def test_a_transaction_waits_for_the_one_that_is_taking_the_key(postgres: str, commits: bool) -> None:
    async with scene_on(postgres) as scene, hand_on(postgres) as hand:
        a, b = await two(scene)
        other = await scene.other()
        async with scene.store.transaction() as first:
            assert await first.take_key(DEFAULT_TENANT, mark(a), now=scene.now) is None

            async def second() -> object:
                async with other.transaction() as transaction:
                    return await transaction.take_key(DEFAULT_TENANT, mark(b), now=scene.now)

            asking = asyncio.ensure_future(second())
            await hand.until_waiting("business_key as held")
            if commits:
                done = Append(a.authority, a.head, (event(),), marks=(mark(a, status="succeeded", outcome="1"),))
                await first.append(done, now=scene.now)
        answer = await asking
        assert (answer is None) != commits
        if commits:
            assert answer == await key(scene)
