"""Cases of the store suite: business keys, who has them, what became of them, and who is woken by that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.model.business import KEY, KeyFilter, KeyMark, KeyRow, KeyStatus
from outlive.model.errors import ApprovalRefused, KeyTaken, LeaseLost, NotSerialisable
from outlive.model.ids import DEFAULT_TENANT, ApprovalId, OperationId, RunId, Tenant
from outlive.model.operation import OperationStatus
from outlive.store.keeping import Kept
from outlive.store.port import Append, Change, Store
from outlive.testing.store_cases_approvals import ADA, asked, seen, use, vote
from outlive.testing.store_scene import ANNA, Hold, Raises, Scene, event, held, new_run, operation, together, wish

K = "digest of INV-7"


def mark(hold: Hold, number: int = 1, status: KeyStatus = "open", key: str = K, outcome: str | None = None) -> KeyMark:
    """What an append of this run says of a key."""
    id = OperationId(f"{hold.run}/op{number}")
    return KeyMark(key, f"text of {key}", "charge", "d", hold.run, id, status, outcome)


async def take(scene: Scene, hold: Hold, number: int = 1, key: str = K) -> None:
    """Take a key by an intent."""
    row = replace(operation(hold, number), business_key=key)
    taking = Append(hold.authority, hold.head, (event(),), operations=(row,), take=mark(hold, number, key=key))
    await scene.act(hold, taking)


async def say(
    scene: Scene, hold: Hold, status: KeyStatus, *, number: int = 1, outcome: str | None = None, key: str = K
) -> None:
    """Say what became of a key."""
    said = mark(hold, number, status, outcome=outcome, key=key)
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), marks=(said,)))


async def two(scene: Scene) -> tuple[Hold, Hold]:
    """Two claimed runs, *a* and *b*."""
    await scene.start("a")
    await scene.start("b")
    found = {claimed.row.id: held(claimed) for claimed in await scene.claims()}
    return found[RunId("a")], found[RunId("b")]


async def key(scene: Scene, key: str = K, tenant: Tenant = DEFAULT_TENANT) -> KeyRow:
    """A key that is there."""
    row = await scene.store.business_key(tenant, key)
    assert row is not None, f"there is no {key}"
    return row


async def wait(scene: Scene, run: str, *, changes: int | None = None, store: Store | None = None) -> bool:
    """Have a run woken when the key changes."""
    seen = (await key(scene)).changes if changes is None else changes
    return await (store or scene.store).await_key(DEFAULT_TENANT, K, RunId(run), changes=seen, now=scene.now)


async def woken(scene: Scene, run: str) -> int:
    """How many messages about the key a run has not read."""
    return len([one for one in await scene.store.unread(DEFAULT_TENANT, RunId(run)) if one.topic == KEY])


async def a_key_is_taken_once_and_says_by_whom(scene: Scene) -> None:
    a, b = await two(scene)
    assert await scene.store.business_key(DEFAULT_TENANT, K) is None
    await take(scene, a)
    row = await key(scene)
    assert (row.mark, row.tenant, row.waiters) == (mark(a), DEFAULT_TENANT, ())
    before = len(await scene.log("b"))
    async with Raises(KeyTaken):
        await take(scene, b)
    assert len(await scene.log("b")) == before and await scene.store.operations(DEFAULT_TENANT, b.run) == []
    assert (await key(scene)).mark == mark(a)
    await scene.append(b, event())  # refused as it was, the run goes on
    record = await scene.store.operation(DEFAULT_TENANT, OperationId("a/op1"))
    assert record is not None and record.business_key == K


async def a_key_is_a_tenants_own(scene: Scene) -> None:
    a, _ = await two(scene)
    await take(scene, a)
    tenant = Tenant("other")
    await scene.start("c", tenant=tenant)
    [claimed] = await scene.claims()
    c = held(claimed)
    await take(scene, c)
    assert ((await key(scene)).mark.run, (await key(scene, tenant=tenant)).mark.run) == ("a", "c")


async def an_operation_takes_its_own_key_again_while_it_is_open(scene: Scene) -> None:
    a, _ = await two(scene)
    await take(scene, a)
    await take(scene, a)
    await say(scene, a, "unknown")
    await take(scene, a)
    assert (await key(scene)).mark.status == "open"
    await say(scene, a, "succeeded", outcome='"r"')
    async with Raises(KeyTaken):
        await take(scene, a)
    assert ((await key(scene)).mark.status, (await key(scene)).mark.outcome) == ("succeeded", '"r"')
    async with Raises(KeyTaken):
        await take(scene, a, 2)  # another operation of the same run


async def a_key_that_became_free_is_taken_by_the_next(scene: Scene) -> None:
    a, b = await two(scene)
    await take(scene, a)
    await say(scene, a, "free")
    await take(scene, b)
    row = await key(scene)
    assert (row.mark.run, row.mark.status, row.created_at) == ("b", "open", scene.now)
    # Whoever had it says nothing of it any more.
    await say(scene, a, "succeeded", outcome="1")
    await say(scene, a, "free")
    assert (await key(scene)).mark == mark(b)


async def what_turns_out_to_have_acted_takes_a_free_key(scene: Scene) -> None:
    a, b = await two(scene)
    await take(scene, a)
    await say(scene, a, "free")
    await take(scene, b)
    await say(scene, b, "free")
    await say(scene, a, "unknown")
    assert (await key(scene)).mark == mark(a, status="unknown")
    await say(scene, b, "unknown", key="never taken")
    assert (await key(scene, "never taken")).mark.run == "b"


async def what_was_said_of_a_key_is_stored_with_the_append_or_not_at_all(scene: Scene) -> None:
    a, b = await two(scene)
    await take(scene, a)
    stale = replace(a.authority, token="somebody else's")
    async with Raises(LeaseLost):
        await scene.store.append(Append(stale, a.head, (event(),), marks=(mark(a, status="succeeded"),)), now=scene.now)
    async with Raises(LeaseLost):
        stale = replace(b.authority, epoch=9)
        await scene.store.append(Append(stale, b.head, (event(),), take=mark(b, key="k2")), now=scene.now)
    async with Raises(NotSerialisable):
        await scene.act(b, Append(b.authority, b.head, (event(),), take=replace(mark(b, key="k2"), shown="\0")))
    assert (await key(scene)).mark.status == "open" and await scene.store.business_key(DEFAULT_TENANT, "k2") is None


async def a_key_and_an_approval_are_used_by_one_commit_or_neither_is(scene: Scene) -> None:
    hold = await asked(scene)
    await vote(scene, ADA)
    await scene.start("b")
    [claimed] = await scene.claims()
    b = held(claimed)
    await take(scene, b)
    wanted = use(hold)

    def both(approval: str) -> Append:
        needed = replace(wanted, approval=ApprovalId(approval))
        return Append(hold.authority, hold.head, (event(),), use=needed, take=mark(hold))

    async with Raises(KeyTaken):
        await scene.act(hold, both(wanted.approval))
    assert (await seen(scene)).row.used_at is None
    await say(scene, b, "free")
    async with Raises(ApprovalRefused):
        await scene.act(hold, both("ap-none"))
    assert (await key(scene)).mark.status == "free"
    await scene.act(hold, both(wanted.approval))
    assert (await seen(scene)).row.used_at is not None and (await key(scene)).mark.run == "r"


async def who_waits_is_sent_a_message_when_the_key_changes(scene: Scene) -> None:
    a, b = await two(scene)
    await take(scene, a)
    assert await wait(scene, "b") and await wait(scene, "b")
    assert (await key(scene)).waiters == ("b",)
    await say(scene, a, "open")  # no change
    assert await woken(scene, "b") == 0
    await say(scene, a, "unknown")
    assert await woken(scene, "b") == 1 and (await key(scene)).waiters == ()
    assert await wait(scene, "b")
    await say(scene, a, "succeeded", outcome="1")
    assert await woken(scene, "b") == 2
    assert not await wait(scene, "b")  # it is settled
    del b


async def a_waiting_or_blocked_run_is_claimable_when_the_key_changes(scene: Scene) -> None:
    a, b = await two(scene)
    await take(scene, a)
    assert await wait(scene, "b")
    await scene.become(b, "waiting")
    assert await scene.claims() == []
    await say(scene, a, "unknown")
    assert (await scene.look()).claimable
    [claimed] = await scene.claims()
    b = held(claimed)
    taken = tuple(one.id for one in await scene.store.unread(DEFAULT_TENANT, b.run))
    assert await wait(scene, "b")
    await scene.act(b, Append(b.authority, b.head, (event(),), Change("blocked", reason="x"), taken=taken))
    assert await scene.claims() == []
    await say(scene, a, "free")
    assert [one.row.id for one in await scene.claims()] == ["b"]


async def who_has_seen_an_older_key_waits_for_nothing(scene: Scene) -> None:
    a, b = await two(scene)
    await take(scene, a)
    seen = (await key(scene)).changes
    await say(scene, a, "free")
    assert not await wait(scene, "b", changes=seen) and not await wait(scene, "b")
    await take(scene, b)
    assert not await wait(scene, "a", changes=seen)
    assert not await scene.store.await_key(DEFAULT_TENANT, "none", RunId("a"), changes=0, now=scene.now)
    assert (await key(scene)).waiters == ()


async def a_waiter_that_has_ended_or_never_was_holds_nothing_up(scene: Scene) -> None:
    a, b = await two(scene)
    await take(scene, a)
    assert await wait(scene, "b") and await wait(scene, "never was")
    await scene.become(b, "cancelled")
    await say(scene, a, "succeeded", outcome="1")
    assert await woken(scene, "b") == 0 and (await key(scene)).waiters == ()


async def a_compensated_operation_has_a_compensated_key(scene: Scene) -> None:
    a = await scene.hold("a")
    await take(scene, a)
    done = replace(operation(a), status="succeeded", business_key=K)
    await scene.act(
        a,
        Append(
            a.authority, a.head, (event(),), Change("failed"), (done,), marks=(mark(a, status="succeeded"),)
        ),
    )  # fmt: skip
    await scene.store.start(replace(new_run("back"), rolls_back=RunId("a")), now=scene.now)
    [claimed] = await scene.claims()
    back = held(claimed)
    statuses: list[OperationStatus] = ["pending", "succeeded"]
    for status in statuses:
        assert (await key(scene)).mark.status == "succeeded"
        undo = replace(operation(back), status=status, compensates=done.id)
        await scene.act(back, Append(back.authority, back.head, (event(),), operations=(undo,)))
    assert (await key(scene)).mark.status == "compensated"
    later = await scene.store.seize(DEFAULT_TENANT, a.run, owner=ANNA, lease_ms=1000, now=scene.now)
    assert later is not None
    again = held(later)
    await say(scene, again, "succeeded")
    assert (await key(scene)).mark.status == "compensated"


async def keys_are_listed_in_pages(scene: Scene) -> None:
    a, b = await two(scene)
    for number, name in enumerate(("k1", "k2", "k3"), start=1):
        await take(scene, a if number < 3 else b, number, name)
    await say(scene, a, "succeeded", number=2, key="k2")
    assert await scene.store.await_key(DEFAULT_TENANT, "k1", b.run, changes=0, now=scene.now)

    async def listed(which: KeyFilter) -> list[str]:
        return [row.mark.key for row in await scene.store.business_keys(DEFAULT_TENANT, which)]

    assert await listed(KeyFilter()) == ["k1", "k2", "k3"]
    assert await listed(KeyFilter(limit=2)) == ["k1", "k2"] and await listed(KeyFilter(after="k2")) == ["k3"]
    assert await listed(KeyFilter(run="b")) == ["k3"] and await listed(KeyFilter(text="of k3")) == ["k3"]
    assert await listed(KeyFilter(statuses=("succeeded",))) == ["k2"]
    assert await listed(KeyFilter(awaited=True)) == ["k1"]


async def old_keys_are_forgotten_but_for_what_is_open(scene: Scene) -> None:
    a, _ = await two(scene)
    assert isinstance(scene.store, Kept)
    words: list[KeyStatus] = ["succeeded", "free", "unknown", "open", "compensated"]
    for number, status in enumerate(words, start=1):
        await take(scene, a, number, status)
        await say(scene, a, status, number=number, key=status)
    assert await scene.store.forget_keys(older_ms=1000, most=10, now=scene.now) == 0
    scene.advance(seconds=2)
    await take(scene, a, 9, "new")
    await say(scene, a, "succeeded", number=9, key="new")
    assert await scene.store.forget_keys(older_ms=1000, most=2, now=scene.now) == 2
    assert await scene.store.forget_keys(older_ms=1000, most=2, now=scene.now) == 1
    left = await scene.store.business_keys(DEFAULT_TENANT, KeyFilter())
    assert [row.mark.key for row in left] == ["new", "open", "unknown"]


async def a_transaction_takes_a_key_before_it_writes(scene: Scene) -> None:
    a, b = await two(scene)
    async with scene.store.transaction() as transaction:
        assert await transaction.take_key(DEFAULT_TENANT, mark(a), now=scene.now) is None
        append = Append(a.authority, a.head, (event(),), marks=(mark(a, status="succeeded", outcome="1"),))
        a.head = await transaction.append(append, now=scene.now)
    assert (await key(scene)).mark.status == "succeeded"
    async with scene.store.transaction() as transaction:
        theirs = await transaction.take_key(DEFAULT_TENANT, mark(b), now=scene.now)
        assert theirs is not None and (theirs.mark.run, theirs.mark.outcome) == ("a", "1")
    async with scene.store.transaction() as transaction:
        assert await transaction.take_key(DEFAULT_TENANT, mark(b, key="k2"), now=scene.now) is None
    assert await scene.store.business_key(DEFAULT_TENANT, "k2") is None  # it was left without an append
    async with scene.store.transaction() as transaction:
        assert await transaction.take_key(DEFAULT_TENANT, mark(b, key="k2"), now=scene.now) is None
        async with Raises(Exception):
            await transaction.execute("insert into business_key (tenant) values ('x')")
            await transaction.append(Append(b.authority, b.head, (event(),)), now=scene.now)


async def of_many_that_want_a_key_at_once_one_has_it(scene: Scene) -> None:
    for name in "abcdefgh":
        await scene.start(name)
    holds = [held(claimed) for claimed in await scene.claims()]
    stores = [scene.store, await scene.other()]
    for round in range(10):
        wanted = [
            stores[place % 2].append(
                Append(hold.authority, hold.head, (event(),), take=mark(hold, key=f"k{round}")), now=scene.now
            )
            for place, hold in enumerate(holds)
        ]
        answers = await together(*wanted)
        lost = [one for one in answers if isinstance(one, KeyTaken)]
        assert len(lost) == len(holds) - 1, answers
        winner = next(place for place, one in enumerate(answers) if not isinstance(one, KeyTaken))
        assert (await key(scene, f"k{round}")).mark.run == holds[winner].run
        holds[winner].head = (await scene.row(holds[winner].run)).head


async def nobody_who_began_to_wait_is_forgotten(scene: Scene) -> None:
    waiters = [f"w{number}" for number in range(6)]
    for name in waiters:
        await scene.start(name)
    await scene.claims(claim=wish(limit=10))
    other = await scene.other()
    a = await scene.hold("a")
    for round in range(10):
        await take(scene, a)
        seen, before = (await key(scene)).changes, {name: await woken(scene, name) for name in waiters}
        end = Append(a.authority, a.head, (event(),), marks=(mark(a, status="free"),))
        first = [wait(scene, name, changes=seen, store=other) for name in waiters[: round % 3]]
        rest = [wait(scene, name, changes=seen, store=scene.store) for name in waiters[round % 3 :]]
        asked = await together(*first, scene.store.append(end, now=scene.now), *rest)
        a.head = (await scene.row("a")).head
        answers = [one for one in asked if isinstance(one, bool)]
        assert len(answers) == len(waiters), asked
        for name, waits in zip(waiters, answers, strict=True):
            assert await woken(scene, name) - before[name] == waits, (round, name, waits)
        assert (await key(scene)).waiters == ()


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_key_is_taken_once_and_says_by_whom,
    a_key_is_a_tenants_own,
    an_operation_takes_its_own_key_again_while_it_is_open,
    a_key_that_became_free_is_taken_by_the_next,
    what_turns_out_to_have_acted_takes_a_free_key,
    what_was_said_of_a_key_is_stored_with_the_append_or_not_at_all,
    a_key_and_an_approval_are_used_by_one_commit_or_neither_is,
    who_waits_is_sent_a_message_when_the_key_changes,
    a_waiting_or_blocked_run_is_claimable_when_the_key_changes,
    who_has_seen_an_older_key_waits_for_nothing,
    a_waiter_that_has_ended_or_never_was_holds_nothing_up,
    a_compensated_operation_has_a_compensated_key,
    keys_are_listed_in_pages,
    old_keys_are_forgotten_but_for_what_is_open,
    a_transaction_takes_a_key_before_it_writes,
    of_many_that_want_a_key_at_once_one_has_it,
    nobody_who_began_to_wait_is_forgotten,
)
