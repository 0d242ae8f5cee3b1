"""Cases of the store suite: approvals are decided once, by whom they may be, and consumed by what needs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.model.approval import ApprovalFilter, ApprovalRow, Reading, Use, Vote
from outlive.model.errors import (
    ApprovalClosed,
    ApprovalRefused,
    LeaseLost,
    LinkUsed,
    MayNotDecide,
    NotSerialisable,
    UnknownApproval,
)
from outlive.model.ids import DEFAULT_TENANT, ApprovalId, OperationId, RunId, Tenant
from outlive.store.port import Append, Change
from outlive.testing.store_scene import Hold, Raises, Scene, event, held, operation, together

_DAY = 24 * 3600 * 1000
FIRST = ApprovalId("ap-1")
ADA, BEN, CEM = (Vote(who, "approve", "finance", digest="d") for who in ("ada", "ben", "cem"))


def ask(scene: Scene, hold: Hold, id: str = FIRST, *, quorum: int = 1) -> ApprovalRow:
    """An approval that finance is asked for."""
    return ApprovalRow(
        tenant=hold.authority.tenant, run=hold.run, id=ApprovalId(id), operation=OperationId(f"{hold.run}/op1"),
        tool="charge", shown="charge(4200)", arguments='{"cents":4200}', proposed="d", policy="p1", role="finance",
        quorum=quorum, requester="rita", expires_at=scene.now + _DAY,
    )  # fmt: skip


async def asked(scene: Scene, run: str = "r", *, id: str = FIRST, quorum: int = 1) -> Hold:
    """A claimed run that has asked."""
    hold = await scene.hold(run)
    row = ask(scene, hold, id, quorum=quorum)
    await scene.act(hold, Append(hold.authority, hold.head, (event("proposed"),), asks=(row,)))
    return hold


async def vote(scene: Scene, vote: Vote, id: str = FIRST) -> ApprovalRow:
    """Vote now."""
    return await scene.store.vote(DEFAULT_TENANT, ApprovalId(id), vote, now=scene.now)


async def seen(scene: Scene, id: str = FIRST) -> Reading:
    """An approval that is there."""
    found = await scene.store.approval(DEFAULT_TENANT, ApprovalId(id))
    assert found is not None, f"{id} has gone"
    return found


def use(hold: Hold, id: str = FIRST) -> Use:
    """What the operation that asked needs."""
    return Use(ApprovalId(id), OperationId(f"{hold.run}/op1"), "d", "p1")


async def consume(scene: Scene, hold: Hold, use: Use) -> None:
    """The append of an intent that depends on an approval."""
    await scene.act(
        hold, Append(hold.authority, hold.head, (event("intent"),), operations=(operation(hold),), use=use)
    )  # fmt: skip


async def what_is_asked_is_there_with_the_append_or_not_at_all(scene: Scene) -> None:
    hold = await asked(scene)
    row = (await seen(scene)).row
    assert row == replace(ask(scene, hold), asked_at=scene.now)
    lost = replace(hold.authority, token="another")
    async with Raises(LeaseLost):
        second = ask(scene, hold, "ap-2")
        await scene.store.append(Append(lost, hold.head, (event(),), asks=(second,)), now=scene.now)
    assert await scene.store.approval(DEFAULT_TENANT, ApprovalId("ap-2")) is None
    assert await scene.store.approval(Tenant("t2"), FIRST) is None


async def approvals_are_listed_oldest_first_and_filtered(scene: Scene) -> None:
    first = await asked(scene, "a", id="ap-9")
    scene.advance(seconds=1)
    second = await asked(scene, "b", id="ap-1")
    await vote(scene, replace(ADA, act="reject"), "ap-1")

    async def found(which: ApprovalFilter) -> list[str]:
        return [row.id for row in await scene.store.approvals(DEFAULT_TENANT, which)]

    assert await found(ApprovalFilter(statuses=())) == ["ap-9", "ap-1"]
    assert await found(ApprovalFilter()) == ["ap-9"]
    assert await found(ApprovalFilter(statuses=("rejected",))) == ["ap-1"]
    assert await found(ApprovalFilter(statuses=(), run=second.run)) == ["ap-1"]
    assert await found(ApprovalFilter(statuses=(), run=first.run, role="finance", limit=1)) == ["ap-9"]
    assert await found(ApprovalFilter(role="board")) == []


async def a_decision_wakes_the_run_in_the_same_commit(scene: Scene) -> None:
    hold = await asked(scene)
    await scene.become(hold, "waiting", wake_at=scene.now + _DAY)
    assert await scene.claims() == []
    row = await vote(scene, replace(ADA, why="it is due"))
    assert (row.status, row.executed, row.why, row.decided_at) == ("approved", "d", "it is due", scene.now)
    [message] = await scene.store.unread(DEFAULT_TENANT, hold.run)
    assert message.topic == "approval"
    assert len(await scene.claims()) == 1
    assert [one.who for one in (await seen(scene)).votes] == ["ada"]


async def it_takes_as_many_different_people_as_the_quorum_says(scene: Scene) -> None:
    await asked(scene, quorum=2)
    assert (await vote(scene, ADA)).status == "asked"
    assert await scene.store.unread(DEFAULT_TENANT, RunId("r")) == []
    for again in (ADA, replace(ADA, who=" ADA "), replace(ADA, act="reject")):
        async with Raises(MayNotDecide):
            await vote(scene, again)
    assert (await vote(scene, BEN)).status == "approved"
    assert (await seen(scene)).row.votes == 2


async def nobody_decides_about_what_they_ask_for(scene: Scene) -> None:
    await asked(scene)
    for who in ("rita", "Rita ", "ＲＩＴＡ"):
        async with Raises(MayNotDecide):
            await vote(scene, replace(ADA, who=who))
    for wrong in (replace(ADA, role="sales"), replace(ADA, role=""), replace(ADA, who=" ")):
        async with Raises(MayNotDecide):
            await vote(scene, wrong)
    found = await seen(scene)
    assert (found.row.status, found.row.votes, found.votes) == ("asked", 0, ())


async def votes_of_a_quorum_are_for_the_same_arguments(scene: Scene) -> None:
    await asked(scene, quorum=2)
    await vote(scene, ADA)
    edited = replace(BEN, digest="e", edited='{"cents":4000}')
    assert (await vote(scene, edited)).status == "asked"
    row = await vote(scene, replace(edited, who="cem"))
    assert (row.status, row.executed, row.edited, row.proposed) == ("approved", "e", '{"cents":4000}', "d")


async def one_rejection_is_enough_and_nothing_follows_a_decision(scene: Scene) -> None:
    await asked(scene, quorum=2)
    await vote(scene, ADA)
    row = await vote(scene, replace(BEN, act="reject", why="too much"))
    assert (row.status, row.why, row.executed) == ("rejected", "too much", "")
    async with Raises(ApprovalClosed):
        await vote(scene, CEM)
    assert (await seen(scene)).row.status == "rejected"


async def nobody_decides_after_the_time_is_over(scene: Scene) -> None:
    await asked(scene)
    scene.advance(hours=24)
    for act in (ADA, replace(ADA, act="reject")):
        async with Raises(ApprovalClosed):
            await vote(scene, act)
    assert (await seen(scene)).row.votes == 0


async def a_delegate_decides_once_in_the_place_of_another(scene: Scene) -> None:
    await asked(scene, quorum=2)
    delegation = replace(ADA, act="delegate", digest="", to="dora")
    for wrong in ("rita", "ada", ""):
        async with Raises(MayNotDecide):
            await vote(scene, replace(delegation, to=wrong))
    assert (await vote(scene, delegation)).status == "asked"
    async with Raises(MayNotDecide):
        await vote(scene, replace(ADA, who="eve", role="", place="ada"))
    await vote(scene, replace(ADA, who="dora", role="", place="ada"))
    for again in (ADA, replace(ADA, who="dora")):
        async with Raises(MayNotDecide):
            await vote(scene, again)
    assert (await vote(scene, BEN)).status == "approved"


async def a_link_is_good_for_one_decision(scene: Scene) -> None:
    await asked(scene, quorum=2)
    linked = replace(ADA, nonce="n1")
    await vote(scene, linked)
    for again in (linked, replace(linked, who="ben"), replace(linked, act="reject")):
        async with Raises(LinkUsed):
            await vote(scene, again)
    assert (await seen(scene)).row.votes == 1


async def an_approval_is_consumed_by_the_append_that_needs_it(scene: Scene) -> None:
    hold = await asked(scene)
    before = await scene.log()
    async with Raises(ApprovalRefused):
        await consume(scene, hold, use(hold))
    await vote(scene, ADA)
    wrong = use(hold)
    for other in (
        replace(wrong, operation=OperationId("r/op2")), replace(wrong, executed="e"), replace(wrong, policy="p2"),
        replace(wrong, approval=ApprovalId("ap-2")),
    ):  # fmt: skip
        async with Raises(ApprovalRefused):
            await consume(scene, hold, other)
    assert await scene.log() == before
    assert await scene.store.operations(DEFAULT_TENANT, hold.run) == []
    scene.advance(seconds=1)
    await consume(scene, hold, use(hold))
    assert (await seen(scene)).row.used_at == scene.now
    scene.advance(seconds=1)
    await consume(scene, hold, use(hold))
    assert (await seen(scene)).row.used_at == scene.now - 1000


async def an_approval_of_one_run_is_nothing_to_another(scene: Scene) -> None:
    await asked(scene, "a")
    await vote(scene, ADA)
    other = await scene.hold("b")
    async with Raises(ApprovalRefused):
        await consume(scene, other, Use(FIRST, OperationId("a/op1"), "d", "p1"))


async def an_approval_is_over_by_the_databases_clock(scene: Scene) -> None:
    hold = await asked(scene)
    await vote(scene, ADA)
    early = await scene.store.end_approval(DEFAULT_TENANT, FIRST, "expired", "over", now=scene.now)
    assert early is not None
    assert early.status == "approved"
    scene.advance(hours=24)
    async with Raises(ApprovalRefused):
        await consume(scene, hold, use(hold))
    ended = await scene.store.end_approval(DEFAULT_TENANT, FIRST, "expired", "over", now=scene.now)
    assert ended is not None
    assert (ended.status, ended.why, ended.decided_at) == ("expired", "over", scene.now)


async def a_lost_lease_comes_before_what_was_approved(scene: Scene) -> None:
    hold = await asked(scene)
    stale = replace(hold, authority=replace(hold.authority, token="another"))
    async with Raises(LeaseLost):
        await consume(scene, stale, use(hold))
    await vote(scene, ADA)
    async with Raises(LeaseLost):
        await consume(scene, stale, use(hold))
    assert (await seen(scene)).row.used_at is None


async def what_was_approved_can_be_taken_back_until_it_is_used(scene: Scene) -> None:
    hold = await asked(scene)
    revocation = Vote("ben", "revoke", "finance", why="the contract has ended")
    async with Raises(ApprovalClosed):
        await vote(scene, revocation)
    await vote(scene, ADA)
    async with Raises(MayNotDecide):
        await vote(scene, replace(revocation, role="sales"))
    assert (await vote(scene, revocation)).status == "revoked"
    async with Raises(ApprovalRefused):
        await consume(scene, hold, use(hold))
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), asks=(ask(scene, hold, "ap-2"),)))
    await vote(scene, ADA, "ap-2")
    await consume(scene, hold, use(hold, "ap-2"))
    async with Raises(ApprovalClosed):
        await vote(scene, revocation, "ap-2")


async def the_end_of_a_run_withdraws_what_is_open(scene: Scene) -> None:
    hold = await asked(scene)
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), asks=(ask(scene, hold, "ap-2"),)))
    await vote(scene, ADA, "ap-2")
    await asked(scene, "other", id="ap-3")
    await scene.append(hold, event(), change=Change("failed"))
    assert [(await seen(scene, id)).row.status for id in ("ap-1", "ap-2", "ap-3")] == [
        "withdrawn", "withdrawn", "asked",
    ]  # fmt: skip
    async with Raises(ApprovalClosed):
        await vote(scene, ADA)


async def what_is_superseded_cannot_be_decided(scene: Scene) -> None:
    hold = await asked(scene)
    row = await scene.store.end_approval(DEFAULT_TENANT, FIRST, "superseded", "the rule has changed", now=scene.now)
    assert row is not None
    assert row.status == "superseded"
    async with Raises(ApprovalClosed):
        await vote(scene, ADA)
    assert await scene.store.end_approval(DEFAULT_TENANT, FIRST, "withdrawn", "again", now=scene.now) == row
    async with Raises(ApprovalRefused):
        await consume(scene, hold, use(hold))
    assert await scene.store.end_approval(DEFAULT_TENANT, ApprovalId("none"), "withdrawn", "", now=scene.now) is None
    async with Raises(UnknownApproval):
        await vote(scene, ADA, "none")
    async with Raises(NotSerialisable):
        await vote(scene, replace(ADA, why="\ud800"))


async def a_quorum_is_reached_once_however_many_vote_at_once(scene: Scene) -> None:
    hold = await asked(scene, quorum=2)
    other = await scene.other()
    people = [replace(ADA, who=f"person {number}") for number in range(6)]
    stores = (scene.store, other)
    told = await together(
        *(stores[n % 2].vote(DEFAULT_TENANT, FIRST, one, now=scene.now) for n, one in enumerate(people))
    )
    statuses = [one.status if isinstance(one, ApprovalRow) else type(one).__name__ for one in told]
    assert sorted(statuses) == ["ApprovalClosed"] * 4 + ["approved", "asked"], statuses
    found = await seen(scene)
    assert (found.row.votes, len(found.votes)) == (2, 2)
    assert len(await scene.store.unread(DEFAULT_TENANT, hold.run)) == 1


async def one_of_two_consuming_at_once_is_refused(scene: Scene) -> None:
    """As of two owners of one run, of which one does not know that it is no more."""
    hold = await asked(scene)
    await vote(scene, ADA)
    await scene.become(hold, "ready")
    [claimed] = await scene.claims()
    now, before = held(claimed), hold
    other = await scene.other()
    needs = use(now)
    appends = [
        Append(one.authority, now.head, (event("intent"),), operations=(operation(one),), use=needs)
        for one in (before, now)
    ]
    told = await together(other.append(appends[0], now=scene.now), scene.store.append(appends[1], now=scene.now))
    assert isinstance(told[0], LeaseLost), told
    assert not isinstance(told[1], Exception), told


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    what_is_asked_is_there_with_the_append_or_not_at_all,
    approvals_are_listed_oldest_first_and_filtered,
    a_decision_wakes_the_run_in_the_same_commit,
    it_takes_as_many_different_people_as_the_quorum_says,
    nobody_decides_about_what_they_ask_for,
    votes_of_a_quorum_are_for_the_same_arguments,
    one_rejection_is_enough_and_nothing_follows_a_decision,
    nobody_decides_after_the_time_is_over,
    a_delegate_decides_once_in_the_place_of_another,
    a_link_is_good_for_one_decision,
    an_approval_is_consumed_by_the_append_that_needs_it,
    an_approval_of_one_run_is_nothing_to_another,
    an_approval_is_over_by_the_databases_clock,
    a_lost_lease_comes_before_what_was_approved,
    what_was_approved_can_be_taken_back_until_it_is_used,
    the_end_of_a_run_withdraws_what_is_open,
    what_is_superseded_cannot_be_decided,
    a_quorum_is_reached_once_however_many_vote_at_once,
    one_of_two_consuming_at_once_is_refused,
)
