"""Cases of the store suite: which runs a claim takes, in which order, and that no wake-up is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.log.kinds import ClaimedBy, read
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId, Tenant
from outlive.model.run import Status
from outlive.store.port import Append, Change, Claim, Claimed, Divergence
from outlive.testing.store_scene import ANNA, BORIS, LEASE, Scene, event, held, new_run, together, wish


async def a_claim_gives_authority_lease_and_entry(scene: Scene) -> None:
    before = await scene.start()
    scene.advance(seconds=1)
    [claimed] = await scene.claims()
    row = claimed.row
    assert (claimed.why, claimed.now, claimed.authority.epoch) == ("start", scene.now, 1)
    assert (row.status, row.owner, row.lease_ms) == ("running", ANNA, LEASE)
    assert (row.expires_at, row.head.seq, row.lapses) == (scene.now + LEASE, before.head.seq + 1, 0)
    assert row == await scene.row()
    log = await scene.log()
    assert read(log[-1]) == ClaimedBy(owner=ANNA, why="start", code="b1")
    assert (log[-1].at, log[-1].epoch) == (scene.now, 1)
    assert await scene.claims(BORIS) == []


async def each_claim_has_a_token_of_its_own(scene: Scene) -> None:
    tokens = set()
    hold = await scene.hold()
    for _ in range(3):
        tokens.add(hold.authority.token)
        await scene.become(hold, "ready")
        [claimed] = await scene.claims()
        assert claimed.why == "resume"
        hold = held(claimed)
    assert len(tokens) == 3
    assert hold.authority.epoch == 4


async def the_most_urgent_and_longest_due_come_first(scene: Scene) -> None:
    urgency = {"late": 0, "early": 0, "urgent": 5, "lowest": -1}
    for run, priority in urgency.items():
        await scene.start(run, priority=priority)
        scene.advance(seconds=1)
    holds = {claimed.row.id: held(claimed) for claimed in await scene.claims()}
    assert list(holds) == ["urgent", "late", "early", "lowest"]
    scene.advance(seconds=9)
    for run in ("urgent", "late"):
        await scene.become(holds[RunId(run)], "ready")
    # A timer counts from when it was due, which is before the others became ready.
    for run in ("early", "lowest"):
        await scene.become(holds[RunId(run)], "waiting", wake_at=scene.now - 1000)
    order = [claimed.row.id for claimed in await scene.claims()]
    assert order == ["urgent", "early", "late", "lowest"]


async def a_claim_takes_no_more_than_its_limit(scene: Scene) -> None:
    for number in range(5):
        await scene.start(f"r{number}")
    assert len(await scene.claims(claim=wish(limit=2))) == 2
    assert len(await scene.claims(claim=wish(limit=10))) == 3


async def only_what_was_asked_for_is_claimed(scene: Scene) -> None:
    await scene.start("other agent", agent="pilot")
    await scene.store.start(replace(new_run("other queue"), queue="slow"), now=scene.now)
    await scene.start("other tenant", tenant=Tenant("t2"))
    assert await scene.claims(claim=replace(wish(), tenants=(DEFAULT_TENANT,))) == []
    assert await scene.claims(claim=replace(wish(), serves={})) == []
    assert await _claimed(scene, replace(wish(), tenants=(Tenant("t2"),))) == ["other tenant"]
    assert await _claimed(scene, replace(wish(), queues=("slow", "slower"))) == ["other queue"]
    assert await _claimed(scene, replace(wish(), serves={"pilot": "p9", "clerk": "b1"})) == ["other agent"]


async def a_run_past_its_deadline_is_not_claimed(scene: Scene) -> None:
    await scene.start(deadline_ms=1000)
    scene.advance(seconds=1)
    assert await scene.claims() == []


async def a_timer_wakes_when_its_time_has_come(scene: Scene) -> None:
    assert (await scene.look()).due_ms is None
    await scene.become(await scene.hold(), "waiting", wake_at=scene.now + 5000)
    assert await _seen(scene) == (False, 5000)
    scene.advance(milliseconds=4999)
    assert await scene.claims() == []
    assert await _seen(scene) == (False, 1)
    scene.advance(milliseconds=1)
    assert await _seen(scene) == (True, None)
    [claimed] = await scene.claims()
    assert (claimed.why, claimed.row.wake_at) == ("resume", None)
    assert await _seen(scene) == (False, None)


async def the_next_timer_of_all_agents_that_are_served_is_found(scene: Scene) -> None:
    for agent, seconds in [("bookkeeper", 7), ("archivist", 2), ("clerk", 3), ("pilot", 5)]:
        await scene.start(agent, agent=agent)
        [claimed] = await scene.claims(claim=replace(wish(), serves={agent: "b"}))
        await scene.become(held(claimed), "waiting", wake_at=scene.now + seconds * 1000)
    serves = replace(wish(), serves={"bookkeeper": "b", "clerk": "b", "pilot": "b"})
    assert (await scene.look(claim=serves)).due_ms == 3000
    assert (await scene.look(claim=replace(serves, serves={}))).due_ms is None
    # A timer that has come and cannot be claimed hides no later one.
    scene.advance(seconds=4)
    look = await scene.look(claim=replace(serves, tenants=(Tenant("another"),)))
    assert (look.claimable, look.due_ms) == (False, 1000)
    assert (await scene.look(claim=replace(serves, queues=("another",)))).due_ms is None, "they are not in its queues"


async def due_timers_are_taken_by_urgency_then_in_order(scene: Scene) -> None:
    for number, (priority, seconds) in enumerate([(0, 3), (5, 4), (0, 1), (5, 90), (-2, 2), (9, 91)]):
        hold = await scene.hold(f"r{number}", priority=priority)
        await scene.become(hold, "waiting", wake_at=scene.now + seconds * 1000)
    assert await _seen(scene) == (False, 1000)
    scene.advance(seconds=5)
    assert await _seen(scene) == (True, 85_000)
    assert await _claimed(scene, wish(limit=3)) == ["r1", "r2", "r0"]
    assert await _claimed(scene, wish()) == ["r4"]
    assert await _seen(scene) == (False, 85_000)


async def a_backlog_of_one_kind_keeps_no_other_waiting(scene: Scene) -> None:
    for number in range(6):
        await scene.become(await scene.hold(f"timer{number}"), "waiting", wake_at=scene.now + 1000)
    hold = await scene.hold("told")
    await scene.become(hold, "waiting")
    scene.advance(seconds=60)
    await scene.start("new")
    await scene.post("told")
    assert {"new", "told"} < set(await _claimed(scene, wish(limit=3)))
    for number in range(6):
        await scene.start(f"start{number}")
    taken = [await _claimed(scene, replace(wish(limit=1), turn=turn)) for turn in range(4)]
    assert sum(run.startswith("timer") for [run] in taken) == 2, "with room for one they take turns"


async def a_paused_run_is_claimed_by_nobody_until_it_is_not(scene: Scene) -> None:
    """However it would be claimable. When it was paused stays as it was, until it is told to go on."""
    paused_at, late = scene.now, replace(wish(code="b2"), turn=1)
    ways: dict[Status, Change] = {
        "ready": Change("ready", paused=True),
        "waiting": Change("waiting", wake_at=scene.now + 1000, paused=True),
        "blocked": Change("blocked", reason="diverged", paused=True),
    }
    for run, change in ways.items():
        await scene.append(await scene.hold(run), event(), change=change)
        await scene.post(run)
    scene.advance(seconds=2)
    seen = await scene.look(claim=late)
    assert (seen.claimable, seen.due_ms, await _claimed(scene, late)) == (False, None, [])
    for run, change in ways.items():
        for paused in (True, None):
            taken = await scene.store.seize(DEFAULT_TENANT, RunId(run), owner=ANNA, lease_ms=LEASE, now=scene.now)
            assert taken is not None
            await scene.append(held(taken), event(), change=replace(change, paused=paused))
            assert (await scene.row(run)).paused_at == paused_at
    assert await _claimed(scene, late) == []
    for run, change in ways.items():
        taken = await scene.store.seize(DEFAULT_TENANT, RunId(run), owner=ANNA, lease_ms=LEASE, now=scene.now)
        assert taken is not None
        await scene.append(held(taken), event(), change=replace(change, paused=False))
        assert (await scene.row(run)).paused_at is None
    assert sorted(await _claimed(scene, late)) == ["blocked", "ready", "waiting"]


async def a_run_is_claimed_until_its_grace_is_over(scene: Scene) -> None:
    """By any way to be claimable; then it needs attention, and one that nobody could claim at its deadline."""
    patient = replace(wish(), grace_ms=500)
    stands = {
        "timer": Change("waiting", wake_at=scene.now + 1000), "message": Change("waiting"),
        "blocked": Change("blocked", reason="poison"), "paused": Change("waiting", paused=True),
        "ready": Change("ready"),
    }  # fmt: skip
    for run, change in stands.items():
        await scene.append(await scene.hold(run, deadline_ms=1000), event(), change=change)
    scene.advance(milliseconds=999)
    await scene.post("message")
    assert (await scene.look(claim=patient)).attention == ()
    scene.advance(milliseconds=500)
    seen = await scene.look(claim=patient)
    assert sorted(one.run for one in seen.attention if one.why == "deadline") == ["blocked", "paused"]
    assert seen.claimable
    assert not (await scene.look()).claimable, "without grace it is too late"
    assert await _claimed(scene, wish()) == []
    other = await scene.other()
    late = await other.look(replace(patient, grace_ms=499), now=scene.now)
    assert sorted(one.run for one in late.attention if one.why == "deadline") == [
        "blocked", "message", "paused", "ready", "timer",
    ]  # fmt: skip
    assert sorted(await _claimed(scene, patient)) == ["message", "ready", "timer"]


async def a_quick_claim_takes_what_is_ready_and_what_was_told(scene: Scene) -> None:
    await scene.become(await scene.hold("told", priority=3), "waiting")
    sleeps = await scene.hold("sleeps", priority=9)
    await scene.become(sleeps, "waiting", wake_at=scene.now)
    await scene.start("low")
    await scene.start("high", priority=5)
    await scene.start("other agent", agent="pilot", priority=9)
    await scene.post("told")
    assert await _claimed(scene, replace(wish(), quick=True)) == ["high", "told", "low"]
    assert await _claimed(scene, replace(wish(), quick=True)) == []
    assert await _claimed(scene, wish()) == ["sleeps"]


async def a_deadline_is_due_when_it_comes(scene: Scene) -> None:
    await scene.start(deadline_ms=9000)
    await scene.start("other agent", agent="pilot", deadline_ms=4000)
    assert (await scene.look()).due_ms == 4000
    scene.advance(seconds=4)
    look = await scene.look()
    assert (look.due_ms, [one.run for one in look.attention]) == (5000, ["other agent"])


async def a_look_sees_what_a_claim_would_find(scene: Scene) -> None:
    assert not (await scene.look()).claimable
    for run, claim in {
        "other agent": replace(wish(), serves={"pilot": "p9"}),
        "other queue": replace(wish(), queues=("slow", "slower")),
        "other tenant": replace(wish(), tenants=(Tenant("t2"),)),
    }.items():
        new = new_run(run, agent="pilot" if run == "other agent" else "clerk")
        new = replace(new, queue="slow") if run == "other queue" else new
        await scene.store.start(replace(new, tenant=Tenant("t2")) if run == "other tenant" else new, now=scene.now)
        assert not (await scene.look(claim=replace(wish(), tenants=(DEFAULT_TENANT,)))).claimable
        assert (await scene.look(claim=claim)).claimable
        [claimed] = await scene.claims(claim=claim)
        assert not (await scene.look(claim=claim)).claimable
        diverged = Divergence("b1", "report")
        told = Append(
            claimed.authority, claimed.row.head, (event(),), Change("blocked", "diverged"), divergence=diverged
        )
        await scene.store.append(told, now=scene.now)
        agents = dict.fromkeys(claim.serves, "b1")
        assert not (await scene.look(claim=replace(claim, serves=agents))).claimable
        assert (await scene.look(claim=replace(claim, serves=dict.fromkeys(agents, "b2")))).claimable
        await scene.claims(claim=replace(claim, serves=dict.fromkeys(agents, "b2")))


async def a_look_sees_a_message_to_a_run_that_sleeps(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.post()
    assert not (await scene.look()).claimable, "its owner lives"
    await scene.become(hold, "waiting", wake_at=scene.now + 10**9)
    assert await _seen(scene) == (True, 10**9)


async def a_look_tells_an_owner_which_of_its_runs_were_sent_something(scene: Scene) -> None:
    hold, other = await scene.hold(), await scene.hold("other", owner=BORIS)
    assert (await scene.look()).unread == frozenset()
    await scene.post()
    await scene.post(other.run)
    assert (await scene.look()).unread == {(DEFAULT_TENANT, hold.run)}
    assert (await scene.look(sign=True)).unread == {(DEFAULT_TENANT, hold.run)}
    assert (await scene.look(BORIS)).unread == {(DEFAULT_TENANT, other.run)}
    [message] = await scene.store.unread(DEFAULT_TENANT, hold.run)
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), taken=(message.id,)))
    assert (await scene.look()).unread == frozenset(), "it was taken"
    await scene.post(key="k2")
    await scene.become(hold, "waiting")
    assert (await scene.look()).unread == frozenset(), "nobody drives it"


async def a_message_opens_a_waiting_and_a_blocked_run(scene: Scene) -> None:
    for status in ("waiting", "blocked"):
        hold = await scene.hold(status)
        await scene.append(hold, event(), change=Change("waiting" if status == "waiting" else "blocked", "approval"))
    assert await scene.claims() == []
    await scene.post("waiting")
    await scene.post("blocked")
    claimed = await scene.claims()
    assert sorted(one.row.id for one in claimed) == ["blocked", "waiting"]
    assert {(one.row.reason, one.row.status) for one in claimed} == {("", "running")}


async def a_message_before_the_sleep_is_not_lost(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.post()
    await scene.become(hold, "waiting", reason="approval", wake_at=scene.now + 10**9)
    assert len(await scene.claims()) == 1


async def a_message_sent_while_a_run_goes_to_sleep_is_not_lost(scene: Scene) -> None:
    other = await scene.other()
    hold = await scene.hold()
    for number in range(15):
        answers = await together(
            scene.become(hold, "waiting"), scene.post(key=f"k{number}", store=other), scene.claims(BORIS, store=other)
        )
        assert [answer for answer in answers if isinstance(answer, Exception)] == []
        claimed = [one for one in answers[2] if isinstance(one, Claimed)] if isinstance(answers[2], list) else []
        [claimed_now] = claimed or await scene.claims()
        unread = await scene.store.unread(DEFAULT_TENANT, hold.run)
        assert [message.sender_key for message in unread] == [f"k{number}"]
        hold = held(claimed_now)
        await scene.act(hold, Append(hold.authority, hold.head, (event(),), taken=(unread[0].id,)))


async def a_message_that_was_taken_wakes_nobody(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.post()
    [message] = await scene.store.unread(DEFAULT_TENANT, hold.run)
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), Change("waiting"), taken=(message.id,)))
    assert await scene.store.unread(DEFAULT_TENANT, hold.run) == []
    assert await scene.claims() == []


async def a_build_that_diverged_leaves_the_run_to_others(scene: Scene) -> None:
    hold = await scene.hold()
    diverged = Divergence("b1", "the log has a, the code asks for b")
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), Change("ready"), divergence=diverged))
    assert await scene.claims(claim=wish(code="b1")) == []
    [claimed] = await scene.claims(claim=wish(BORIS, code="b2"))
    hold = held(claimed)
    diverged = replace(diverged, code="b2")
    await scene.act(
        hold, Append(hold.authority, hold.head, (event(),), Change("blocked", "diverged"), divergence=diverged)
    )
    await scene.post()
    assert await scene.claims(claim=wish(code="b1")) == []
    assert await scene.claims(claim=wish(code="b2")) == []
    assert len(await scene.claims(claim=wish(code="b3"))) == 1


async def a_run_that_diverged_is_open_to_a_new_build_alone(scene: Scene) -> None:
    for run, reason in [("old", "diverged"), ("unread", "undecodable"), ("poison", "poison")]:
        hold = await scene.hold(run)
        told = Append(
            hold.authority, hold.head, (event(),), Change("blocked", reason), divergence=Divergence("b1", "report")
        )
        await scene.act(hold, told)
    assert await scene.claims(claim=wish(code="b1")) == []
    assert sorted(await _claimed(scene, wish(code="b2"))) == ["old", "unread"]


async def a_run_is_claimed_once_however_many_ask(scene: Scene) -> None:
    stores = [scene.store, await scene.other(), await scene.other()]
    for number in range(30):
        await scene.start(f"r{number:02}")
    won: list[str] = []
    for _ in range(30):
        answers = await together(
            *[
                store.claim(Claim(Owner(f"w{number}"), {"clerk": "b1"}, 2, LEASE), now=scene.now)
                for number, store in enumerate(stores)
            ]
        )
        for answer in answers:
            assert isinstance(answer, list), answer
            won += [claimed.row.id for claimed in answer]
    assert sorted(won) == [f"r{number:02}" for number in range(30)]
    for run in won:
        assert [entry.kind for entry in await scene.log(run)] == ["started", "claimed"]


async def a_run_that_is_claimable_twice_is_claimed_once(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.become(hold, "waiting", wake_at=scene.now)
    await scene.post(key="k1")
    await scene.post(key="k2")
    assert len(await scene.claims()) == 1


async def a_run_that_is_claimable_twice_is_due_since_the_first(scene: Scene) -> None:
    hold = await scene.hold("both")
    await scene.become(hold, "waiting", wake_at=scene.now + 2000)
    await scene.post("both")
    scene.advance(seconds=1)
    await scene.start("between")
    scene.advance(seconds=1)
    assert await _claimed(scene, wish()) == ["both", "between"]


async def _seen(scene: Scene) -> tuple[bool, int | None]:
    look = await scene.look()
    assert look.now == scene.now
    return look.claimable, look.due_ms


async def _claimed(scene: Scene, claim: Claim) -> list[RunId]:
    return [claimed.row.id for claimed in await scene.claims(claim=claim)]


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_claim_gives_authority_lease_and_entry,
    each_claim_has_a_token_of_its_own,
    the_most_urgent_and_longest_due_come_first,
    a_claim_takes_no_more_than_its_limit,
    only_what_was_asked_for_is_claimed,
    a_run_past_its_deadline_is_not_claimed,
    a_timer_wakes_when_its_time_has_come,
    the_next_timer_of_all_agents_that_are_served_is_found,
    due_timers_are_taken_by_urgency_then_in_order,
    a_backlog_of_one_kind_keeps_no_other_waiting,
    a_paused_run_is_claimed_by_nobody_until_it_is_not,
    a_run_is_claimed_until_its_grace_is_over,
    a_quick_claim_takes_what_is_ready_and_what_was_told,
    a_deadline_is_due_when_it_comes,
    a_look_sees_what_a_claim_would_find,
    a_look_sees_a_message_to_a_run_that_sleeps,
    a_look_tells_an_owner_which_of_its_runs_were_sent_something,
    a_message_opens_a_waiting_and_a_blocked_run,
    a_message_before_the_sleep_is_not_lost,
    a_message_sent_while_a_run_goes_to_sleep_is_not_lost,
    a_message_that_was_taken_wakes_nobody,
    a_build_that_diverged_leaves_the_run_to_others,
    a_run_that_diverged_is_open_to_a_new_build_alone,
    a_run_is_claimed_once_however_many_ask,
    a_run_that_is_claimable_twice_is_claimed_once,
    a_run_that_is_claimable_twice_is_due_since_the_first,
)
