"""Cases of the store suite about notifications: written with what they tell of, once, and delivered in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from outlive.model.errors import LeaseLost, NotSerialisable
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.model.notice import Notice, Notification
from outlive.model.run import Head
from outlive.store.port import Append, Change, Message, Stalled, WorkerRow
from outlive.store.telling import RouteState, Telling, Told, Untold
from outlive.testing.store_scene import ANNA, BORIS, LEASE, Hold, Raises, Scene, event

_NEAR = 3_600_000


def telling(scene: Scene) -> Telling:
    """The store as what knows of notifications."""
    assert isinstance(scene.store, Telling), f"{type(scene.store).__name__} does not know what has to be told"
    return scene.store


async def told(scene: Scene, *, undelivered: bool = False, tenant: Tenant = DEFAULT_TENANT) -> list[Told]:
    """What there is, oldest first."""
    return (await telling(scene).notifications(tenant, undelivered=undelivered, limit=100))[::-1]


async def notify(scene: Scene, hold: Hold, *numbers: int) -> list[Notification]:
    """One append for each number, that tells of its entry; what is stored of them."""
    for number in numbers:
        notice = Notice("blocked", f"{hold.run}-{number}", role="ops", facts={"number": number})
        await scene.act(hold, Append(hold.authority, hold.head, (event(),), notices=(notice,)))
    wanted = {f"{hold.run}-{number}" for number in numbers}
    return [one.notification for one in await told(scene) if one.notification.id in wanted]


async def a_notice_is_stored_with_its_append_and_with_nothing_else(scene: Scene) -> None:
    hold = await scene.hold()
    first, second = Notice("unknown operation", "one", 0, facts={"why": "é"}), Notice("blocked", "two", 2, "ops")
    drafts = (event("a"), event("b"), event("c"))
    wrong = Append(hold.authority, Head(hold.head.seq + 1, hold.head.digest), drafts, notices=(first,))
    async with Raises(LeaseLost):
        await scene.store.append(wrong, now=scene.now)
    assert await told(scene) == []
    await scene.act(
        hold, Append(hold.authority, hold.head, drafts, Change("blocked", "poison"), notices=(first, second))
    )
    found = [one.notification for one in await told(scene)]
    shown = [(one.run, one.agent, one.seq, one.kind, one.id, one.role, one.facts, one.at) for one in found]
    assert shown == [
        ("r", "clerk", 2, "unknown operation", "one", "", {"why": "é"}, scene.now),
        ("r", "clerk", 4, "blocked", "two", "ops", {}, scene.now),
    ]


async def the_same_fact_is_told_once(scene: Scene) -> None:
    hold = await scene.hold()
    await notify(scene, hold, 1)
    store, run = telling(scene), RunId("r")
    again = Notice("blocked", "another id", place=2)
    assert not await store.tell(DEFAULT_TENANT, run, again, now=scene.now)
    assert await store.tell(DEFAULT_TENANT, run, Notice("poison", "p", place=2), now=scene.now)
    assert not await store.tell(DEFAULT_TENANT, RunId("none"), Notice("poison", "q"), now=scene.now)
    assert [one.notification.kind for one in await told(scene)] == ["blocked", "poison"]


async def text_that_no_database_takes_is_refused_with_its_append(scene: Scene) -> None:
    hold = await scene.hold()
    for role in ("a\0b", "\ud800"):
        async with Raises(NotSerialisable):
            await scene.store.append(
                Append(hold.authority, hold.head, (event(),), notices=(Notice("blocked", "x", role=role),)),
                now=scene.now,
            )
    await scene.append(hold, event())
    assert await told(scene) == []


async def what_no_route_takes_is_kept_and_what_one_takes_is_due(scene: Scene) -> None:
    hold, store = await scene.hold(), telling(scene)
    one, two, three = await notify(scene, hold, 1, 2, 3)
    assert await store.unrouted("new", after=0, limit=2) == [one, two]
    assert await store.unrouted("new", after=two.position, limit=2) == [three]
    assert await store.untold() == Untold(3, scene.now)
    await store.assign([(one, []), (two, ["mail", "page"]), (three, ["mail"])], now=scene.now)
    assert (await store.unrouted("new", after=0, limit=9), await store.unrouted("kept", after=0, limit=9)) == (
        [],
        [one],
    )
    assert await store.untold() == Untold(1, scene.now)
    assert [due.notification for due in await store.due_deliveries("mail", limit=9, now=scene.now)] == [two, three]
    assert [due.notification for due in await store.due_deliveries("page", limit=9, now=scene.now)] == [two]
    await store.assign([(one, ["mail"]), (two, ["mail"]), (two, [])], now=scene.now)
    assert await store.unrouted("kept", after=0, limit=9) == []
    assert [due.notification.id for due in await store.due_deliveries("mail", limit=9, now=scene.now)] == [
        "r-1", "r-2", "r-3",
    ]  # fmt: skip


async def a_delivery_that_fails_holds_those_behind_it_of_its_run_alone(scene: Scene) -> None:
    mine, store = await scene.hold("mine"), telling(scene)
    one, two = await notify(scene, mine, 1, 2)
    [other] = await notify(scene, await scene.hold("other"), 1)
    await store.assign([(one, ["mail"]), (two, ["mail"]), (other, ["mail"])], now=scene.now)
    await store.undelivered(one, "mail", error="refused", after_ms=5000, now=scene.now)
    [three] = await notify(scene, mine, 3)
    await store.assign([(three, ["mail"])], now=scene.now)
    assert [due.notification for due in await store.due_deliveries("mail", limit=9, now=scene.now)] == [other]
    assert await store.next_delivery(["mail"], now=scene.now) == 0
    await store.delivered(other, "mail", now=scene.now)
    assert await store.next_delivery(["mail"], now=scene.now) == 5000
    assert await store.next_delivery(["page"], now=scene.now) is None
    assert await store.routes() == [RouteState("mail", 3, 0, scene.now, "refused")]
    scene.advance(seconds=5)
    due = await store.due_deliveries("mail", limit=9, now=scene.now)
    assert [(one.notification.id, one.attempts, one.failing_ms) for one in due] == [
        ("mine-1", 1, 5000), ("mine-2", 0, 5000), ("mine-3", 0, 0),
    ]  # fmt: skip
    await store.delivered(one, "mail", now=scene.now)
    await store.undelivered(one, "mail", error="late", after_ms=1, now=scene.now)
    await store.undelivered(two, "mail", error="gone", after_ms=None, now=scene.now)
    assert [due.notification for due in await store.due_deliveries("mail", limit=9, now=scene.now)] == [three]
    assert await store.routes() == [RouteState("mail", 1, 1, None, "")]
    ends = [
        (way.attempts, way.delivered_at, way.given_up_at, way.error)
        for one in await told(scene)
        for way in one.deliveries
    ]
    assert ends == [
        (2, scene.now, None, ""),
        (1, None, scene.now, "gone"),
        (1, scene.now - 5000, None, ""),
        (0, None, None, ""),
    ]
    assert [one.notification.id for one in await told(scene, undelivered=True)] == ["mine-2", "mine-3"]


async def a_deadline_is_near_for_the_last_tenth_and_told_once(scene: Scene) -> None:
    store = telling(scene)
    assert not await store.has_deadlines()
    await scene.start("short", deadline_ms=600_000)
    await scene.start("long", deadline_ms=100 * _NEAR)
    await scene.start("never")
    assert await store.has_deadlines()
    assert await store.nearing(lead_ms=_NEAR, limit=9, now=scene.now) == []
    scene.advance(milliseconds=539_999)
    assert await store.nearing(lead_ms=_NEAR, limit=9, now=scene.now) == []
    scene.advance(milliseconds=1)
    [short] = await store.nearing(lead_ms=_NEAR, limit=9, now=scene.now)
    assert (short.run, short.status, short.left_ms) == ("short", "ready", 60_000)
    notice = Notice("deadline near", "d")
    assert await store.tell(short.tenant, short.run, notice, now=scene.now)
    assert await store.nearing(lead_ms=_NEAR, limit=9, now=scene.now) == []
    scene.advance(milliseconds=99 * _NEAR - 540_000)
    [long] = await store.nearing(lead_ms=_NEAR, limit=9, now=scene.now)
    assert (long.run, long.left_ms) == ("long", _NEAR)
    scene.advance(milliseconds=_NEAR)
    assert await store.nearing(lead_ms=_NEAR, limit=9, now=scene.now) == []


async def a_stalled_worker_is_told_of_by_the_run_that_blocks_it(scene: Scene) -> None:
    store = telling(scene)
    for owner in (ANNA, BORIS):
        await scene.store.announce(WorkerRow(owner, 7, {"clerk": "b1"}, scene.now, scene.now), now=scene.now)
    holds = [await scene.hold(run) for run in ("a", "b")]
    await scene.hold("other", owner=BORIS)
    authorities = [hold.authority for hold in holds]

    def renew(stalled: Stalled | None) -> None:
        scene.store.renew(ANNA, authorities, LEASE, stalled=stalled, now=scene.now)

    async def found() -> list[tuple[str, int, int, bool, int]]:
        every = await store.standstills(limit=9, now=scene.now)
        return [(one.run, one.seq, one.for_ms, one.blocks, one.runs) for one in every]

    assert await found() == []
    renew(Stalled(5000))
    assert await found() == [("a", 1, 5000, False, 2)]
    renew(Stalled(5000, "b"))
    assert await found() == [("b", 1, 5000, True, 2)]
    assert await store.tell(DEFAULT_TENANT, RunId("b"), Notice("stalled run", "s", 1), now=scene.now)
    assert await found() == []
    await scene.append(holds[1], event())
    assert await found() == [("b", 2, 5000, True, 2)]
    renew(None)
    assert await found() == []
    renew(Stalled(5000, "b"))
    scene.advance(seconds=61)
    assert await found() == [], "it gives no sign of life any more: that is something else"


async def what_was_done_meanwhile_is_moot_and_can_be_dropped(scene: Scene) -> None:
    hold, store = await scene.hold(), telling(scene)
    asks = (
        Notice("question", "q", 0, "tax", {"question": "is it right?", "question_id": "answer:ask", "until": None}),
        Notice("blocked", "b", 1, facts={"question_id": "answer:ask"}),
    )
    await scene.act(hold, Append(hold.authority, hold.head, (event("a"), event("b")), notices=asks))
    question, blocked = [one.notification for one in await told(scene)]
    await store.assign([(question, ["mail"]), (blocked, ["mail"])], now=scene.now)
    assert not await store.is_moot(question, now=scene.now)
    await scene.store.post(Message(DEFAULT_TENANT, RunId("r"), "mail:answer:other", "ada", "true"), now=scene.now)
    assert not await store.is_moot(question, now=scene.now)
    await scene.store.post(Message(DEFAULT_TENANT, RunId("r"), "mail:answer:ask", "ada", "true"), now=scene.now)
    assert (await store.is_moot(question, now=scene.now), await store.is_moot(blocked, now=scene.now)) == (True, False)
    await store.drop_delivery(question, "mail", why="nobody has to", now=scene.now)
    assert [due.notification for due in await store.due_deliveries("mail", limit=9, now=scene.now)] == [blocked]
    [way] = (await told(scene))[0].deliveries
    assert (way.attempts, way.given_up_at, way.error) == (0, scene.now, "nobody has to")
    await store.delivered(blocked, "mail", now=scene.now)
    await store.drop_delivery(blocked, "mail", why="too late", now=scene.now)
    assert [one.deliveries[0].given_up_at for one in await told(scene)] == [scene.now, None]


async def tenants_do_not_see_what_others_are_told(scene: Scene) -> None:
    await notify(scene, await scene.hold(), 1)
    assert await told(scene, tenant=Tenant("other")) == []
    assert len(await told(scene)) == 1


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_notice_is_stored_with_its_append_and_with_nothing_else,
    the_same_fact_is_told_once,
    text_that_no_database_takes_is_refused_with_its_append,
    what_no_route_takes_is_kept_and_what_one_takes_is_due,
    a_delivery_that_fails_holds_those_behind_it_of_its_run_alone,
    a_deadline_is_near_for_the_last_tenth_and_told_once,
    a_stalled_worker_is_told_of_by_the_run_that_blocks_it,
    what_was_done_meanwhile_is_moot_and_can_be_dropped,
    tenants_do_not_see_what_others_are_told,
)
