"""Cases of the store suite: the log, who may append, and transactions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.log.entry import Draft, verify
from outlive.model.errors import ChainBroken, LeaseLost, NotSerialisable, Refused, WrongState
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.model.run import ENDED, STATUSES, Head
from outlive.store.port import Append, Change, Divergence
from outlive.testing.store_scene import (
    ANNA,
    BORIS,
    LEASE,
    Hold,
    Raises,
    Scene,
    event,
    held,
    new_run,
    operation,
    together,
    wish,
)


async def start_makes_a_ready_run_and_its_first_entry(scene: Scene) -> None:
    new = replace(new_run(), priority=3, deadline_ms=5_000, principal="ada", purpose="billing")
    row = await scene.store.start(new, now=scene.now)
    assert (row.status, row.epoch, row.owner, row.head.seq) == ("ready", 0, None, 1)
    assert (row.created_at, row.deadline_at, row.priority) == (scene.now, scene.now + 5_000, 3)
    assert (row.principal, row.purpose, row.origin, row.root) == ("ada", "billing", "r", "r")
    [started] = await scene.log()
    assert (started.kind, started.seq, started.epoch, started.payload) == ("started", 0, 0, '{"invoice":1}')
    assert row == await scene.row()


async def a_second_start_changes_nothing(scene: Scene) -> None:
    first = await scene.start()
    scene.advance(seconds=1)
    other = replace(new_run(), input='{"invoice":2}', input_digest="another")
    assert await scene.store.start(other, now=scene.now) == first
    assert len(await scene.log()) == 1


async def two_starts_at_once_make_one_run(scene: Scene) -> None:
    other = await scene.other()
    rows = await together(scene.start(), scene.start(store=other), scene.start())
    assert all(row == rows[0] for row in rows), rows
    assert len(await scene.log()) == 1


async def appends_follow_each_other(scene: Scene) -> None:
    hold = await scene.hold()
    scene.advance(seconds=1)
    await scene.append(hold, event("a", payload="1"), event("b", key="k"))
    await scene.append(hold, event("c"))
    log = await scene.log()
    assert [entry.kind for entry in log] == ["started", "claimed", "emitted", "emitted", "emitted"]
    assert [entry.epoch for entry in log] == [0, 1, 1, 1, 1]
    assert (log[2].payload, log[3].payload, log[3].key) == ("1", None, "k")
    assert (await scene.row()).updated_at == scene.now


async def entries_are_read_in_pieces(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.append(hold, *[event(str(number)) for number in range(5)])
    pieces = await scene.store.entries(DEFAULT_TENANT, RunId("r"), after=2, limit=3)
    assert [entry.seq for entry in pieces] == [3, 4, 5]
    assert await scene.store.entries(DEFAULT_TENANT, RunId("r"), after=6) == []
    assert await scene.store.entries(Tenant("else"), RunId("r")) == []


async def an_authority_or_head_that_does_not_fit_is_refused(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.append(hold, event())
    good, head = hold.authority, hold.head
    before, entries = await scene.row(), await scene.log()
    wrong = [
        (replace(good, epoch=good.epoch + 1), head),
        (replace(good, epoch=good.epoch - 1), head),
        (replace(good, token="0" * 32), head),
        (replace(good, run=RunId("another")), head),
        (good, Head(head.seq - 1, head.digest)),
        (good, Head(head.seq + 1, head.digest)),
    ]
    for authority, at in wrong:
        full = Append(authority, at, (event(),), Change("failed"), (operation(Hold(authority, at)),))
        async with Raises(LeaseLost):
            await scene.store.append(full, now=scene.now)
    assert (await scene.row(), await scene.log()) == (before, entries)
    assert await scene.store.operations(DEFAULT_TENANT, RunId("r")) == []
    await scene.append(hold, event())


async def a_token_is_checked_even_with_the_right_epoch(scene: Scene) -> None:
    hold = await scene.hold()
    forged = Hold(replace(hold.authority, token="f" * 32), hold.head)
    async with Raises(LeaseLost) as raised:
        await scene.append(forged, event())
    assert isinstance(raised.error, LeaseLost)
    assert (raised.error.run, raised.error.epoch) == ("r", 1)


async def an_owner_is_stopped_by_a_takeover(scene: Scene) -> None:
    anna = await scene.hold()
    await scene.append(anna, event("intent"))
    other = await scene.other()
    scene.advance(milliseconds=LEASE)
    watched = replace(wish(BORIS), watched=frozenset([(DEFAULT_TENANT, anna.run, 1)]))
    [claimed] = await other.claim(watched, now=scene.now)
    boris = held(claimed)
    async with Raises(LeaseLost):
        await scene.append(anna, event("late"))
    await scene.append(boris, event("on"), store=other)
    assert [entry.kind for entry in await scene.log()] == ["started", "claimed", "emitted", "claimed", "emitted"]


async def a_takeover_amid_appends_sees_all_that_was_acknowledged(scene: Scene) -> None:
    anna = await scene.hold()
    other = await scene.other()
    acknowledged: list[int] = []

    async def append_until_stopped() -> None:
        async with Raises(LeaseLost):
            while True:
                await scene.append(anna, event())
                acknowledged.append(anna.head.seq)

    async def seize_and_read() -> None:
        while len(acknowledged) < 20:
            await scene.store.now()
        claimed = await other.seize(DEFAULT_TENANT, anna.run, owner=BORIS, lease_ms=LEASE, now=scene.now)
        assert claimed is not None
        seen = await other.window(DEFAULT_TENANT, anna.run)
        assert [entry.seq for entry in seen] == list(range(claimed.row.head.seq))
        assert seen[-1].kind == "claimed"

    async with asyncio.TaskGroup() as group:
        group.create_task(append_until_stopped())
        group.create_task(seize_and_read())
    # The last acknowledged entry is the one before the claim: nothing of Anna's came after it.
    assert acknowledged[-1] == (await scene.row()).head.seq - 1


async def of_appends_at_the_same_place_one_is_stored(scene: Scene) -> None:
    hold = await scene.hold()
    appends = [Append(hold.authority, hold.head, (event(str(number)),)) for number in range(8)]
    answers = await together(*[scene.store.append(append, now=scene.now) for append in appends])
    assert sum(isinstance(answer, Head) for answer in answers) == 1
    assert sum(isinstance(answer, LeaseLost) for answer in answers) == 7
    assert len(await scene.log()) == 3


async def a_large_payload_is_stored_once_and_filled_in(scene: Scene) -> None:
    hold = await scene.hold()
    large, small = json.dumps("ä" * 20_000, ensure_ascii=False), json.dumps("x" * 30_000)
    await scene.append(hold, event(payload=large), event(payload=small), event(payload=large))
    log = await scene.log()
    assert [entry.payload for entry in log[2:]] == [large, small, large]
    assert [entry.blob is not None for entry in log[2:]] == [True, False, True]
    assert log[2].blob == log[4].blob
    assert await scene.store.window(DEFAULT_TENANT, hold.run) == log


async def text_that_cannot_be_stored_harms_no_other_run(scene: Scene) -> None:
    bad, good = await scene.hold("bad"), await scene.hold("good")
    half = event(payload='"\ud800"')
    answers = await together(scene.append(bad, half), scene.append(good, event()))
    assert isinstance(answers[0], NotSerialisable), answers
    assert answers[1] is None
    for change in (Change("failed", detail="a\0b"), Change("failed", detail="\udfff")):
        async with Raises(NotSerialisable):
            await scene.append(bad, event(), change=change)
    for name in ("scope", "key", "body", "payload", "kind", "data_class", "key_id"):
        for text in ("a\0b", "\ud800"):
            draft = Draft(**{**_PLAIN, name: text}, version=1, at=0)
            async with Raises(NotSerialisable) as raised:
                await scene.append(bad, event(), draft)
            assert isinstance(raised.error, NotSerialisable)
            assert name in raised.error.what
    for input in ('"a\0b"', '"\ud800"'):
        async with Raises(NotSerialisable):
            await scene.store.start(replace(new_run("never"), input=input), now=scene.now)
    assert await scene.store.run(DEFAULT_TENANT, RunId("never")) is None
    await scene.append(bad, event())
    assert len(await scene.log("bad")) == 3


_PLAIN = {"kind": "emitted", "scope": "", "key": "", "body": "{}", "payload": "1", "data_class": "", "key_id": ""}


async def the_window_is_the_prologue_and_the_current_turn(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.append(hold, event("prologue"))
    assert len(await scene.store.window(DEFAULT_TENANT, hold.run)) == 3
    for turn in range(3):
        await scene.act(hold, Append(hold.authority, hold.head, (event(f"turn {turn}"), event("call")), turn=True))
        await scene.append(hold, event("more"))
    row = await scene.row()
    assert (row.prologue_seq, row.window_seq) == (3, 9)
    assert [entry.seq for entry in await scene.store.window(DEFAULT_TENANT, hold.run)] == [0, 1, 2, 9, 10, 11]
    assert len(await scene.log()) == 12


async def a_change_ends_the_authority(scene: Scene) -> None:
    changes = [
        Change("ready"), Change("waiting", wake_at=5), Change("waiting"), Change("blocked", "poison", "three lapses"),
        Change("succeeded"), Change("failed"), Change("cancelled"), Change("expired"),
    ]  # fmt: skip
    for number, change in enumerate(changes):
        hold = await scene.hold(f"r{number}")
        await scene.append(hold, event(), change=change)
        row = await scene.row(hold.run)
        assert (row.status, row.reason, row.detail) == (change.status, change.reason, change.detail)
        assert (row.owner, row.expires_at, row.lease_ms) == (None, None, None)
        assert row.wake_at == change.wake_at
        assert row.ended_at == (scene.now if row.ended else None)
        async with Raises(LeaseLost):
            await scene.append(hold, event())
        assert not scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now).kept
        if not row.ended:
            taken = await scene.store.seize(DEFAULT_TENANT, hold.run, owner=ANNA, lease_ms=LEASE, now=scene.now)
            assert taken is not None
            await scene.append(held(taken), change=Change("cancelled"))


async def no_append_makes_a_run_running(scene: Scene) -> None:
    hold = await scene.hold()
    async with Raises(Refused):
        await scene.append(hold, event(), change=Change("running"))
    assert (await scene.row()).head == hold.head


async def no_append_leaves_an_ended_status(scene: Scene) -> None:
    for status in sorted(ENDED):
        hold = await scene.hold(status)
        await scene.append(hold, event(), change=Change(status, "the reason"))
        scene.advance(seconds=1)
        await scene.post(status)
        [message] = await scene.store.unread(DEFAULT_TENANT, hold.run)
        claimed = await scene.store.seize(DEFAULT_TENANT, hold.run, owner=BORIS, lease_ms=LEASE, now=scene.now)
        assert claimed is not None
        controller, before, log = held(claimed), await scene.row(status), await scene.log(status)
        for other in sorted(set(STATUSES) - {status, "running"}):
            leaving = Append(
                controller.authority, controller.head, (event(),), Change(other, "another"), (operation(controller),),
                taken=(message.id,), divergence=Divergence("b1", "report"), forgive=True,
            )  # fmt: skip
            async with Raises(WrongState) as raised:
                await scene.store.append(leaving, now=scene.now)
            assert isinstance(raised.error, WrongState)
            assert (raised.error.run, raised.error.status) == (status, status)
            async with Raises(LeaseLost):
                await scene.store.append(replace(leaving, authority=hold.authority), now=scene.now)
        assert (await scene.row(status), await scene.log(status)) == (before, log)
        assert await scene.store.unread(DEFAULT_TENANT, hold.run) == [message]
        assert await scene.store.operations(DEFAULT_TENANT, hold.run) == []
        assert await scene.store.divergences(DEFAULT_TENANT, hold.run) == []
        await scene.append(controller, event(), change=Change(status))
        after = await scene.row(status)
        assert (after.status, after.reason, after.ended_at) == (status, "the reason", before.ended_at)
        assert after.ended_at is not None


async def a_change_that_is_refused_harms_no_other_run(scene: Scene) -> None:
    ended, good = await scene.hold("ended"), await scene.hold("good")
    await scene.become(ended, "failed")
    claimed = await scene.store.seize(DEFAULT_TENANT, ended.run, owner=BORIS, lease_ms=LEASE, now=scene.now)
    assert claimed is not None
    controller = held(claimed)
    answers = await together(scene.become(controller, "ready"), scene.append(good, event()))
    assert isinstance(answers[0], WrongState), answers
    assert answers[1] is None
    async with scene.store.transaction() as transaction:
        await transaction.execute("create table effect (number integer)")
        async with Raises(WrongState):
            reopening = Append(controller.authority, controller.head, (event(),), Change("ready"))
            await transaction.append(reopening, now=scene.now)
    await scene.append(controller, event())
    assert [entry.kind for entry in await scene.log("ended")] == ["started", "claimed", "emitted", "claimed", "emitted"]
    assert len(await scene.log("good")) == 3
    # The table of the transaction went with it.
    await _make_effects(scene, good)


async def progress_forgives_lapses(scene: Scene) -> None:
    hold = await scene.hold()
    for epoch in (1, 2):
        scene.advance(milliseconds=LEASE)
        watched = frozenset([(DEFAULT_TENANT, hold.run, epoch)])
        [claimed] = await scene.claims(claim=replace(wish(), watched=watched))
        hold = held(claimed)
    await scene.append(hold, event())
    assert (await scene.row()).lapses == 2
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), progress=True))
    assert (await scene.row()).lapses == 0


async def a_divergence_is_kept_until_it_is_forgiven(scene: Scene) -> None:
    hold = await scene.hold()
    told = Append(hold.authority, hold.head, (event(),), Change("ready"), divergence=Divergence("b1", "asks for x"))
    await scene.act(hold, told)
    assert await scene.store.divergences(DEFAULT_TENANT, hold.run) == [Divergence("b1", "asks for x")]
    assert await scene.claims() == []
    seized = await scene.store.seize(DEFAULT_TENANT, hold.run, owner=ANNA, lease_ms=LEASE, now=scene.now)
    assert seized is not None
    await scene.act(hold, Append(seized.authority, seized.row.head, (event(),), Change("ready"), forgive=True))
    assert await scene.store.divergences(DEFAULT_TENANT, hold.run) == []
    assert len(await scene.claims()) == 1


async def operations_follow_the_append(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), operations=(operation(hold, 2),)))
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), operations=(operation(hold, 1),)))
    settled = replace(
        operation(hold, 2), status="succeeded", outcome='{"id":9}', how="call", attempt=2, updated_at=99,
        notes={"ref": "x"}, not_before=5, duplicates=1, error="e",
    )  # fmt: skip
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), operations=(settled,)))
    assert await scene.store.operations(DEFAULT_TENANT, hold.run) == [settled, operation(hold, 1)]
    assert await scene.store.operation(DEFAULT_TENANT, settled.id) == settled
    assert await scene.store.operation(Tenant("else"), settled.id) is None


async def an_append_leaves_operations_of_other_runs_alone(scene: Scene) -> None:
    mine, other = await scene.hold("mine"), await scene.hold("other")
    theirs = operation(other)
    await scene.act(other, Append(other.authority, other.head, (event(),), operations=(theirs,)))
    forged = replace(theirs, status="failed")
    await scene.act(mine, Append(mine.authority, mine.head, (event(),), operations=(forged,)))
    assert await scene.store.operations(DEFAULT_TENANT, other.run) == [theirs]


async def a_changed_entry_breaks_the_chain(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.append(hold, event("a"), event("b"))
    log = await scene.log()
    secret = await scene.store.key(DEFAULT_TENANT)
    for number, entry in enumerate(log):
        damaged = [*log[:number], replace(entry, body=entry.body.replace('"', "'", 1)), *log[number + 1 :]]
        async with Raises(ChainBroken) as raised:
            verify(secret, "r", damaged)
        assert isinstance(raised.error, ChainBroken)
        assert raised.error.seq == number


async def a_transaction_commits_with_its_append(scene: Scene) -> None:
    hold = await scene.hold()
    async with scene.store.transaction() as transaction:
        await transaction.execute("create table effect (number integer)")
        await transaction.execute("insert into effect values (1)")
        assert await transaction.execute("select number from effect") == [(1,)]
        hold.head = await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        async with Raises(Refused):
            await transaction.execute("select 1")
    await scene.append(hold, event())
    assert len(await scene.log()) == 4
    assert await _effects(scene) == [(1,)]


async def a_transaction_without_an_append_is_rolled_back(scene: Scene) -> None:
    hold = await _with_effects(scene)
    async with scene.store.transaction() as transaction:
        await transaction.execute("insert into effect values (1)")
    async with Raises(ZeroDivisionError):
        async with scene.store.transaction() as transaction:
            await transaction.execute("insert into effect values (2)")
            raise ZeroDivisionError
    stale = replace(hold.authority, token="0" * 32)
    async with Raises(LeaseLost):
        async with scene.store.transaction() as transaction:
            await transaction.execute("insert into effect values (3)")
            await transaction.append(Append(stale, hold.head, (event(),)), now=scene.now)
    assert await _effects(scene) == []
    await scene.append(hold, event())


async def a_cancelled_transaction_is_rolled_back(scene: Scene) -> None:
    hold = await _with_effects(scene)
    entered = asyncio.Event()

    async def stay() -> None:
        async with scene.store.transaction() as transaction:
            await transaction.execute("insert into effect values (1)")
            entered.set()
            await asyncio.get_running_loop().create_future()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(stay())
        await entered.wait()
        task.cancel()
        await asyncio.wait([task], timeout=0)
        # Whoever is impatient cancels again, while the rollback is awaited.
        task.cancel()
    await scene.append(hold, event())
    assert await _effects(scene) == []


async def a_write_from_inside_a_transaction_does_not_hang(scene: Scene) -> None:
    hold = await _with_effects(scene)
    async with scene.store.transaction() as transaction:
        await transaction.execute("insert into effect values (1)")
        async with Raises(Refused):
            await scene.append(hold, event())
        assert (await scene.row()).head == hold.head
        hold.head = await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        await scene.append(hold, event())
    assert await _effects(scene) == [(1,)]


async def _with_effects(scene: Scene) -> Hold:
    hold = await scene.hold()
    await _make_effects(scene, hold)
    return hold


async def _make_effects(scene: Scene, hold: Hold) -> None:
    async with scene.store.transaction() as transaction:
        await transaction.execute("create table effect (number integer)")
        hold.head = await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)


async def _effects(scene: Scene) -> list[tuple[object, ...]]:
    async with scene.store.transaction() as transaction:
        return await transaction.execute("select number from effect")


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    start_makes_a_ready_run_and_its_first_entry,
    a_second_start_changes_nothing,
    two_starts_at_once_make_one_run,
    appends_follow_each_other,
    entries_are_read_in_pieces,
    an_authority_or_head_that_does_not_fit_is_refused,
    a_token_is_checked_even_with_the_right_epoch,
    an_owner_is_stopped_by_a_takeover,
    a_takeover_amid_appends_sees_all_that_was_acknowledged,
    of_appends_at_the_same_place_one_is_stored,
    a_large_payload_is_stored_once_and_filled_in,
    text_that_cannot_be_stored_harms_no_other_run,
    the_window_is_the_prologue_and_the_current_turn,
    a_change_ends_the_authority,
    no_append_makes_a_run_running,
    no_append_leaves_an_ended_status,
    a_change_that_is_refused_harms_no_other_run,
    progress_forgives_lapses,
    a_divergence_is_kept_until_it_is_forgiven,
    operations_follow_the_append,
    an_append_leaves_operations_of_other_runs_alone,
    a_changed_entry_breaks_the_chain,
    a_transaction_commits_with_its_append,
    a_transaction_without_an_append_is_rolled_back,
    a_cancelled_transaction_is_rolled_back,
    a_write_from_inside_a_transaction_does_not_hang,
)
