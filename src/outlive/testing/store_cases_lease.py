"""Cases of the store suite: leases, takeover, control claims, workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.log.kinds import ClaimedBy, read
from outlive.model.errors import LeaseLost
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import ENDED, STATUSES, Status
from outlive.store.port import Append, Attention, Change, Claimed, Overdue, Renewed, Store, WorkerRow
from outlive.testing.store_scene import ANNA, BORIS, LEASE, Hold, Raises, Scene, event, held, new_run, together, wish


async def a_lapsed_lease_is_taken_over_only_by_who_watched_it(scene: Scene) -> None:
    hold = await scene.hold()
    seen = (DEFAULT_TENANT, hold.run, 1)
    watching = replace(wish(BORIS), watched=frozenset([seen]))
    scene.advance(milliseconds=LEASE - 1)
    assert await scene.claims(claim=watching) == []
    scene.advance(milliseconds=1)
    assert await scene.claims(BORIS) == []
    assert await scene.claims(claim=replace(watching, watched=frozenset([(DEFAULT_TENANT, hold.run, 2)]))) == []
    [claimed] = await scene.claims(claim=watching)
    assert (claimed.why, claimed.row.owner, claimed.row.lapses, claimed.authority.epoch) == ("takeover", BORIS, 1, 2)
    assert read((await scene.log())[-1]) == ClaimedBy(owner=BORIS, why="takeover", code="b1")
    scene.advance(milliseconds=LEASE)
    assert await scene.claims(claim=watching) == [], "the watched epoch is over"


async def a_renewed_lease_is_not_taken_over(scene: Scene) -> None:
    hold = await scene.hold()
    scene.advance(milliseconds=LEASE)
    renewed = scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now)
    assert replace(renewed, database="") == Renewed(scene.now, frozenset([hold.authority]), frozenset())
    watched = frozenset([(DEFAULT_TENANT, hold.run, 1)])
    assert await scene.claims(claim=replace(wish(BORIS), watched=watched)) == []
    row = await scene.row()
    assert (row.expires_at, row.epoch, row.head) == (scene.now + LEASE, 1, hold.head)


async def a_lease_that_lapsed_untaken_goes_on(scene: Scene) -> None:
    hold = await scene.hold()
    scene.advance(hours=3)
    await scene.append(hold, event())
    assert scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now).kept == {hold.authority}
    await scene.become(hold, "succeeded")


async def a_renewal_tells_what_is_lost_and_what_is_unread(scene: Scene) -> None:
    first, second, third = await scene.hold("r1"), await scene.hold("r2"), await scene.hold("r3")
    await scene.post("r2")
    await scene.store.seize(DEFAULT_TENANT, third.run, owner=BORIS, lease_ms=LEASE, now=scene.now)
    forged = replace(first.authority, token="0" * 32)
    every = [second.authority, third.authority, forged, first.authority]
    renewed = await asyncio.to_thread(scene.store.renew, ANNA, every, LEASE, now=scene.now)
    assert renewed.kept == {first.authority, second.authority}
    assert renewed.unread == {(DEFAULT_TENANT, "r2")}
    assert scene.store.renew(ANNA, [], LEASE, now=scene.now).kept == frozenset()


async def appends_and_renewals_do_not_hinder_each_other(scene: Scene) -> None:
    other = await scene.other()
    holds = [await scene.hold(f"r{number}") for number in range(6)]
    authorities = [hold.authority for hold in holds]

    async def appending(hold: Hold) -> None:
        for _ in range(10):
            await scene.append(hold, event())

    async def renewing(backwards: bool) -> None:
        for _ in range(10):
            order = authorities[::-1] if backwards else authorities
            renewed = await asyncio.to_thread(other.renew, ANNA, order, LEASE, now=scene.now)
            assert len(renewed.kept) == 6

    answers = await together(*[appending(hold) for hold in holds], renewing(False), renewing(True))
    assert answers == [None] * 8
    for hold in holds:
        assert len(await scene.log(hold.run)) == 12


async def again_is_a_new_claim_of_the_same_owner(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.append(hold, event())
    scene.advance(seconds=1)
    # As after an append whose answer was lost: the caller's head is old, and again() does not need it.
    claimed = await scene.store.again(hold.authority, owner=ANNA, lease_ms=LEASE, now=scene.now)
    assert claimed is not None
    assert (claimed.why, claimed.authority.epoch, claimed.row.status) == ("again", 2, "running")
    assert (claimed.row.expires_at, claimed.row.head.seq) == (scene.now + LEASE, 4)
    assert claimed.row == await scene.row()
    async with Raises(LeaseLost):
        await scene.append(hold, event())
    assert await scene.store.again(hold.authority, owner=ANNA, lease_ms=LEASE, now=scene.now) is None
    hold = held(claimed)
    await scene.become(hold, "ready")
    assert await scene.store.again(hold.authority, owner=ANNA, lease_ms=LEASE, now=scene.now) is None
    assert [entry.kind for entry in await scene.log()] == ["started", "claimed", "emitted", "claimed", "emitted"]


async def again_and_a_lost_append_have_an_order(scene: Scene) -> None:
    other = await scene.other()
    for number in range(10):
        hold = await scene.hold(f"r{number}")
        lost = Append(hold.authority, hold.head, (event(),))
        answers = await together(
            scene.store.append(lost, now=scene.now),
            other.again(hold.authority, owner=ANNA, lease_ms=LEASE, now=scene.now),
        )
        kinds = [entry.kind for entry in await scene.log(hold.run)]
        if isinstance(answers[0], LeaseLost):
            assert kinds == ["started", "claimed", "claimed"]
        else:
            assert kinds == ["started", "claimed", "emitted", "claimed"]


async def seize_leaves_the_status_as_it_is(scene: Scene) -> None:
    assert await scene.store.seize(DEFAULT_TENANT, RunId("none"), owner=BORIS, lease_ms=LEASE, now=scene.now) is None
    for change in (Change("ready"), Change("waiting", "approval", wake_at=9), Change("blocked", "poison", "why")):
        hold = await scene.hold(change.status)
        await scene.append(hold, event(), change=change)
        before = await scene.row(hold.run)
        claimed = await scene.store.seize(DEFAULT_TENANT, hold.run, owner=BORIS, lease_ms=LEASE, now=scene.now)
        assert claimed is not None
        row = claimed.row
        assert (claimed.why, row.epoch, row.owner, row.expires_at) == ("control", 2, None, None)
        assert (row.status, row.reason, row.detail, row.wake_at) == (
            before.status, before.reason, before.detail, before.wake_at,
        )  # fmt: skip
        controller = held(claimed)
        await scene.append(controller, event("still here"))
        await scene.append(controller, event(), change=Change("cancelled", "asked"))
        assert (await scene.row(hold.run)).status == "cancelled"
        await scene.log(hold.run)


async def seize_takes_a_running_run_and_its_lease(scene: Scene) -> None:
    hold = await scene.hold()
    claimed = await scene.store.seize(DEFAULT_TENANT, hold.run, owner=BORIS, lease_ms=5_000, now=scene.now)
    assert claimed is not None
    assert (claimed.row.status, claimed.row.owner, claimed.row.expires_at) == ("running", BORIS, scene.now + 5_000)
    async with Raises(LeaseLost):
        await scene.append(hold, event())
    # The controller died before its append: somebody takes over.
    scene.advance(seconds=5)
    watched = frozenset([(DEFAULT_TENANT, hold.run, 2)])
    [taken] = await scene.claims(claim=replace(wish(), watched=watched))
    assert taken.authority.epoch == 3


async def a_seize_of_some_statuses_leaves_the_others_as_they_are(scene: Scene) -> None:
    for status in STATUSES:
        run = await _of_status(scene, status)
        before, log = await scene.row(run), await scene.log(run)
        others = frozenset(STATUSES) - {status}
        for only in (others, frozenset[Status]()):
            assert await _seize(scene, scene.store, run, only=only) is None
        assert (await scene.row(run), await scene.log(run)) == (before, log)
        claimed = await _seize(scene, scene.store, run, only=frozenset((status,)))
        assert claimed is not None
        assert (claimed.row.status, claimed.authority.epoch) == (status, before.epoch + 1)
        await scene.log(run)


async def a_seize_spares_a_live_lease_if_asked(scene: Scene) -> None:
    hold = await scene.hold()
    scene.advance(milliseconds=LEASE - 1)
    before = await scene.row()
    assert await _seize(scene, scene.store, hold.run, unless_live=True) is None
    assert await scene.row() == before
    await scene.append(hold, event("undisturbed"))
    scene.advance(milliseconds=1)
    assert await _seize(scene, scene.store, hold.run, only=frozenset(("ready",)), unless_live=True) is None
    claimed = await _seize(scene, scene.store, hold.run, only=frozenset(("running",)), unless_live=True)
    assert claimed is not None
    assert (claimed.row.status, claimed.row.expires_at) == ("running", scene.now + LEASE)
    async with Raises(LeaseLost):
        await scene.append(hold, event())
    for status in sorted(set(STATUSES) - {"running"}):
        assert await _seize(scene, scene.store, await _of_status(scene, status), unless_live=True) is not None


async def a_seize_of_a_blocked_run_and_a_claim_have_an_order(scene: Scene) -> None:
    other = await scene.other()
    for number in range(10):
        hold = await scene.hold(f"r{number}")
        await scene.append(hold, event(), change=Change("blocked", "diverged"))
        seized, claimed = await together(
            _seize(scene, scene.store, hold.run, only=frozenset(("blocked",))), scene.claims(BORIS, store=other)
        )
        row = await scene.row(hold.run)
        kinds = [read(entry) for entry in await scene.log(hold.run)]
        if isinstance(seized, Claimed):
            assert seized.row.status == "blocked"
            assert ClaimedBy(owner=BORIS, why="control") == kinds[3]
        else:
            assert seized is None
            assert isinstance(claimed, list)
            assert [one.row for one in claimed] == [row], "the claim was first, and nothing came after it"
        if row.status == "blocked":
            await scene.claims()


async def a_seize_of_a_lapsed_run_and_its_renewal_have_an_order(scene: Scene) -> None:
    other = await scene.other()
    for number in range(10):
        hold = await scene.hold(f"r{number}")
        scene.advance(milliseconds=LEASE)
        seized, renewed = await together(
            _seize(scene, other, hold.run, unless_live=True),
            asyncio.to_thread(scene.store.renew, ANNA, [hold.authority], LEASE, now=scene.now),
        )
        assert isinstance(renewed, Renewed)
        assert (seized is None) == (hold.authority in renewed.kept)
        assert (await scene.row(hold.run)).epoch == (1 if seized is None else 2)


async def an_abandoned_control_claim_hinders_nobody(scene: Scene) -> None:
    await scene.start()
    claimed = await scene.store.seize(DEFAULT_TENANT, RunId("r"), owner=BORIS, lease_ms=LEASE, now=scene.now)
    assert claimed is not None
    assert len(await scene.claims()) == 1
    async with Raises(LeaseLost):
        await scene.append(held(claimed), event())


async def an_ended_run_takes_late_entries_by_seize_alone(scene: Scene) -> None:
    for status in sorted(ENDED):
        hold = await scene.hold(status)
        await scene.append(hold, event(), change=Change(status, "the reason", "the detail"))
        ended = await scene.row(hold.run)
        scene.advance(hours=1)
        await scene.post(status)
        assert await scene.claims(BORIS) == []
        assert (await scene.look()).attention == (Attention(DEFAULT_TENANT, hold.run, "late"),)
        claimed = await scene.store.seize(DEFAULT_TENANT, hold.run, owner=BORIS, lease_ms=LEASE, now=scene.now)
        assert claimed is not None
        controller = held(claimed)
        await scene.append(controller, event("evidence"))
        [message] = await scene.store.unread(DEFAULT_TENANT, hold.run)
        last = Append(controller.authority, controller.head, (event(),), Change(status), taken=(message.id,))
        await scene.act(controller, last)
        row = await scene.row(hold.run)
        assert (row.status, row.reason, row.detail, row.ended_at) == (
            status,
            "the reason",
            "the detail",
            ended.ended_at,
        )
        async with Raises(LeaseLost):
            await scene.append(controller, event())
        assert (await scene.look()).attention == ()


async def overdue_is_a_third_of_the_lease(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.start("ready")
    scene.advance(milliseconds=LEASE // 3 - 1)
    assert (await scene.look()).overdue == ()
    scene.advance(milliseconds=1)
    expected = Overdue(DEFAULT_TENANT, hold.run, 1, scene.now - LEASE // 3, LEASE)
    assert expected.expires_at == (await scene.row()).expires_at
    assert (await scene.look()).overdue == (expected,)
    scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now)
    assert (await scene.look()).overdue == ()


async def what_has_expired_longest_ago_is_seen_first(scene: Scene) -> None:
    for number in range(12):
        await scene.hold(f"r{number:02}")
        scene.advance(seconds=1)
    scene.advance(milliseconds=LEASE)
    look = await scene.look(most=1)
    assert [one.run for one in look.overdue] == [f"r{number:02}" for number in range(10)]
    assert not look.claimable, "what has lapsed is for the worker to judge"


async def a_deadline_asks_for_attention_unless_an_owner_lives(scene: Scene) -> None:
    running = await scene.hold("running", deadline_ms=1000)
    waiting = await scene.hold("waiting", deadline_ms=2000)
    await scene.become(waiting, "waiting")
    await scene.start("ready", deadline_ms=3000)
    await scene.start("later", deadline_ms=10**9)
    scene.advance(seconds=5)
    scene.store.renew(ANNA, [running.authority], LEASE, now=scene.now)
    assert [one.run for one in (await scene.look()).attention] == ["waiting", "ready"]
    assert [one.run for one in (await scene.look(most=1)).attention] == ["waiting"]
    scene.advance(milliseconds=LEASE)
    asked = (await scene.look()).attention
    assert asked == tuple(Attention(DEFAULT_TENANT, RunId(run), "deadline") for run in ("running", "waiting", "ready"))


async def workers_are_known_while_they_give_signs_of_life(scene: Scene) -> None:
    anna = WorkerRow(ANNA, 11, {"clerk": "b1"}, scene.now, scene.now, skew_ms=0)
    await scene.store.announce(anna, now=scene.now)
    scene.advance(seconds=20)
    boris = WorkerRow(BORIS, 12, {"pilot": "b2", "clerk": "b2"}, scene.now, scene.now, skew_ms=0)
    await scene.store.announce(boris, now=scene.now)
    scene.advance(seconds=20)
    assert await scene.store.workers(within_ms=30_000, now=scene.now) == [boris]
    scene.store.renew(ANNA, [], LEASE, now=scene.now)
    anna = replace(anna, seen_at=scene.now)
    assert await scene.store.workers(within_ms=30_000, now=scene.now) == [anna, boris]
    scene.advance(seconds=40)
    await scene.look()
    assert await scene.store.workers(within_ms=30_000, now=scene.now) == []
    signed = await scene.store.look(wish(BORIS), sign=True, now=scene.now)
    assert signed == await scene.look(BORIS)
    boris = replace(boris, seen_at=scene.now)
    assert await scene.store.workers(within_ms=30_000, now=scene.now) == [boris]
    await scene.store.look(wish(Owner("nobody")), sign=True, now=scene.now)
    await scene.store.announce(replace(anna, serves={"clerk": "b3"}), now=scene.now)
    assert (await scene.store.workers(within_ms=1, now=scene.now))[0].serves == {"clerk": "b3"}
    await scene.store.leave(ANNA)
    await scene.store.leave(Owner("nobody"))
    assert await scene.store.workers(within_ms=30_000, now=scene.now) == [boris]


async def _of_status(scene: Scene, status: Status) -> RunId:
    """A run of its own with that status; a running one has a lease."""
    if status == "ready":
        # In a queue of its own, so that nobody who holds another run is given this one.
        return (await scene.store.start(replace(new_run(status), queue="elsewhere"), now=scene.now)).id
    hold = await scene.hold(status)
    if status != "running":
        await scene.become(hold, status, reason="poison" if status == "blocked" else "")
    return hold.run


async def _seize(
    scene: Scene, store: Store, run: RunId, *, only: frozenset[Status] | None = None, unless_live: bool = False
) -> Claimed | None:
    return await store.seize(
        DEFAULT_TENANT, run, owner=BORIS, lease_ms=LEASE, only=only, unless_live=unless_live, now=scene.now
    )


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_lapsed_lease_is_taken_over_only_by_who_watched_it,
    a_renewed_lease_is_not_taken_over,
    a_lease_that_lapsed_untaken_goes_on,
    a_renewal_tells_what_is_lost_and_what_is_unread,
    appends_and_renewals_do_not_hinder_each_other,
    again_is_a_new_claim_of_the_same_owner,
    again_and_a_lost_append_have_an_order,
    seize_leaves_the_status_as_it_is,
    seize_takes_a_running_run_and_its_lease,
    a_seize_of_some_statuses_leaves_the_others_as_they_are,
    a_seize_spares_a_live_lease_if_asked,
    a_seize_of_a_blocked_run_and_a_claim_have_an_order,
    a_seize_of_a_lapsed_run_and_its_renewal_have_an_order,
    an_abandoned_control_claim_hinders_nobody,
    an_ended_run_takes_late_entries_by_seize_alone,
    overdue_is_a_third_of_the_lease,
    what_has_expired_longest_ago_is_seen_first,
    a_deadline_asks_for_attention_unless_an_owner_lives,
    workers_are_known_while_they_give_signs_of_life,
)
