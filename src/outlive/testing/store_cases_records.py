"""Cases of the store suite: what people and other processes read and write beside the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.model.errors import NotSerialisable, UnknownRun
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.model.run import RunFilter
from outlive.store.port import Append, Change, Message
from outlive.testing.store_scene import ANNA, Raises, Scene, event, held, new_run, together, wish


async def a_tenants_key_never_changes(scene: Scene) -> None:
    other = await scene.other()
    keys = await together(scene.store.key(Tenant("t1")), other.key(Tenant("t1")), scene.store.key(Tenant("t2")))
    assert isinstance(keys[0], bytes)
    assert len(keys[0]) == 32
    assert keys[0] == keys[1] != keys[2]
    assert await (await scene.other()).key(Tenant("t1")) == keys[0]


async def time_is_that_of_the_clock_it_was_given(scene: Scene) -> None:
    assert await scene.store.now() == scene.now
    row = await scene.store.run(DEFAULT_TENANT, (await scene.start()).id)
    assert row is not None
    assert row.created_at == scene.now


async def what_is_unknown_is_none(scene: Scene) -> None:
    await scene.start()
    assert await scene.store.run(DEFAULT_TENANT, RunId("none")) is None
    assert await scene.store.run(Tenant("t2"), RunId("r")) is None
    assert await scene.store.window(DEFAULT_TENANT, RunId("none")) == []
    assert await scene.store.operations(DEFAULT_TENANT, RunId("none")) == []


async def tenants_do_not_see_each_other(scene: Scene) -> None:
    await scene.store.start(replace(new_run(), principal="one"), now=scene.now)
    await scene.store.start(replace(new_run(tenant=Tenant("t2")), principal="two"), now=scene.now)
    assert (await scene.row(tenant=Tenant("t2"))).principal == "two"
    assert [row.principal for row in await scene.store.runs(DEFAULT_TENANT, RunFilter())] == ["one"]
    assert [entry.body for entry in await scene.log()] != [entry.body for entry in await scene.log(tenant=Tenant("t2"))]
    await scene.store.post(Message(Tenant("t2"), RunId("r"), "news", "k", "{}"), now=scene.now)
    assert await scene.store.unread(DEFAULT_TENANT, RunId("r")) == []


async def runs_are_filtered_and_newest_come_first(scene: Scene) -> None:
    await scene.store.start(replace(new_run("a"), labels={"customer": "7", "kind": "x"}), now=scene.now)
    scene.advance(seconds=1)
    await scene.store.start(replace(new_run("b", agent="pilot"), labels={"customer": "7"}), now=scene.now)
    scene.advance(seconds=1)
    await scene.start("c", priority=1)
    [claimed] = await scene.claims(claim=wish(limit=1))
    await scene.append(held(claimed), event(), change=Change("blocked", "poison"))

    async def found(which: RunFilter) -> list[str]:
        return [row.id for row in await scene.store.runs(DEFAULT_TENANT, which)]

    assert await found(RunFilter()) == ["c", "b", "a"]
    assert await found(RunFilter(limit=2)) == ["c", "b"]
    assert await found(RunFilter(agent="pilot")) == ["b"]
    assert await found(RunFilter(statuses=("blocked", "failed"))) == ["c"]
    assert await found(RunFilter(reason="poison")) == ["c"]
    assert await found(RunFilter(labels={"customer": "7"})) == ["b", "a"]
    assert await found(RunFilter(labels={"customer": "7", "kind": "x"})) == ["a"]
    assert await found(RunFilter(labels={"customer": "8"})) == []
    assert (await scene.row("a")).labels == {"customer": "7", "kind": "x"}


async def runs_that_stand_still_are_told_from_those_that_do_not(scene: Scene) -> None:
    for run in ("a", "b", "c"):
        await scene.append(await scene.hold(run), event(), change=Change("waiting", paused=run != "b"))
        scene.advance(seconds=1)
    [ended] = await scene.store.runs(DEFAULT_TENANT, RunFilter(paused=True, limit=1))
    assert ended.id == "c"
    claimed = await scene.store.seize(DEFAULT_TENANT, ended.id, owner=ANNA, lease_ms=1000, now=scene.now)
    assert claimed is not None
    await scene.append(held(claimed), event(), change=Change("cancelled", paused=False))

    async def found(which: RunFilter) -> list[str]:
        return [row.id for row in await scene.store.runs(DEFAULT_TENANT, which)]

    assert await found(RunFilter(paused=True)) == ["a"]
    assert await found(RunFilter(paused=False)) == ["c", "b"]
    assert await found(RunFilter()) == ["c", "b", "a"]
    assert await found(RunFilter(paused=True, statuses=("ready",))) == []


async def a_message_is_added_once_per_sender_key(scene: Scene) -> None:
    row = await scene.start()
    assert await scene.post(key="k1")
    scene.advance(seconds=1)
    assert await scene.post(key="k2")
    assert not await scene.post(key="k1")
    unread = await scene.store.unread(DEFAULT_TENANT, row.id)
    assert [(one.sender_key, one.topic, one.body) for one in unread] == [
        ("k1", "news", '{"n":1}'), ("k2", "news", '{"n":1}'),
    ]  # fmt: skip
    assert [one.at for one in unread] == [scene.now - 1000, scene.now]
    other_topic = Message(DEFAULT_TENANT, row.id, "gossip", "k1", "{}")
    assert await scene.store.post(other_topic, now=scene.now)
    assert await scene.row() == row, "a sender does not touch the run's row"


async def a_message_that_was_taken_still_dedupes(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.post()
    [message] = await scene.store.unread(DEFAULT_TENANT, hold.run)
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), taken=(message.id,)))
    assert not await scene.post()
    assert await scene.store.unread(DEFAULT_TENANT, hold.run) == []


async def a_message_is_read_by_its_flag_not_by_a_cursor(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.post(key="early")
    await scene.post(key="late")
    early, late = await scene.store.unread(DEFAULT_TENANT, hold.run)
    # As when the earlier id became visible after the later one had been read.
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), taken=(late.id,)))
    assert await scene.store.unread(DEFAULT_TENANT, hold.run) == [early]
    await scene.become(hold, "waiting")
    assert len(await scene.claims()) == 1


async def only_the_owner_takes_messages_of_a_run(scene: Scene) -> None:
    mine, other = await scene.hold("mine"), await scene.hold("other")
    await scene.post("other")
    [message] = await scene.store.unread(DEFAULT_TENANT, other.run)
    await scene.act(mine, Append(mine.authority, mine.head, (event(),), taken=(message.id,)))
    assert await scene.store.unread(DEFAULT_TENANT, other.run) == [message]


async def a_message_for_nobody_is_refused(scene: Scene) -> None:
    async with Raises(UnknownRun):
        await scene.post("none")
    await scene.start()
    async with Raises(NotSerialisable):
        await scene.store.post(Message(DEFAULT_TENANT, RunId("r"), "news", "k", "\ud800"), now=scene.now)
    assert await scene.post()


async def a_store_of_the_suite_is_durable(scene: Scene) -> None:
    assert [setting for setting in await scene.store.durability() if "synchronous" not in setting] == []


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_tenants_key_never_changes,
    time_is_that_of_the_clock_it_was_given,
    what_is_unknown_is_none,
    tenants_do_not_see_each_other,
    runs_are_filtered_and_newest_come_first,
    runs_that_stand_still_are_told_from_those_that_do_not,
    a_message_is_added_once_per_sender_key,
    a_message_that_was_taken_still_dedupes,
    a_message_is_read_by_its_flag_not_by_a_cursor,
    only_the_owner_takes_messages_of_a_run,
    a_message_for_nobody_is_refused,
    a_store_of_the_suite_is_durable,
)
