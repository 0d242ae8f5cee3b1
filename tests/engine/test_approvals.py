"""Approvals: how one is asked for, waited for, decided and used, on both stores."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation, Outlive, Run
from outlive.approvals import Approval
from outlive.duty.letter import line
from outlive.errors import (
    ApprovalClosed,
    MayNotDecide,
    UnknownApproval,
)
from outlive.log.entry import Draft
from outlive.model.approval import Reading
from outlive.model.ids import DEFAULT_TENANT, ApprovalId, Owner, RunId, Tenant
from outlive.model.operation import Effect
from outlive.model.run import Head
from outlive.store.keeping import Aged, Kept
from outlive.store.port import Append, Change, Claim, Store
from outlive.store.telling import Telling
from tests.engine.payments import DAY, FINANCE, PAID, RUN, Bank, Desk, approvals_of, ended, large, payments
from tests.engine.rig import Rig


@pytest.fixture
def rig(either: Rig) -> Rig:
    """Each of these tests is for both stores."""
    return either


async def test_it_waits_without_a_worker_and_is_sent_once_when_approved(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason, row.owner) == ("waiting", "an approval of finance", None)
    asked = await desk.only()
    assert (asked.shown, asked.requester) == ('pay(to="acme", cents=4200)', "rita")
    assert row.wake_at == asked.expires_at
    await desk.approve()
    assert bank.moved == []
    await rig.settle(rig.worker(desk.app))
    assert bank.moved == PAID
    assert await ended(rig) == '"paid 4200 to acme"'
    assert await approvals_of(rig) == ["proposed", "decided", "intent", "outcome"]
    [operation] = await rig.operations(RUN)
    assert (operation.approval, operation.executed, operation.digest) == (asked.id, asked.proposed, asked.proposed)
    assert operation.id == asked.operation


async def test_only_what_the_rule_asks_for_waits(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, large, cents=900))
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    assert bank.moved == [("acme", 900)]
    assert await desk.statuses() == []


async def test_a_rejection_is_told_to_the_agent_and_nothing_is_sent(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    await desk.approvals.reject((await desk.only()).id[:9], who="ada", role="finance", why="we do not owe it")
    await rig.settle(worker)
    assert await ended(rig) == '"rejected: we do not owe it"'
    assert bank.moved == []


async def test_what_was_approved_with_other_arguments_is_what_is_sent(rig: Rig) -> None:
    bank = Bank(refuses=1)
    desk = Desk(rig, payments(bank, large))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    proposed = (await desk.only()).proposed
    await desk.approve(cents=4000)
    await rig.settle(worker)
    assert await approvals_of(rig) == ["proposed", "decided", "intent", "not acted"]
    await rig.until_ended(rig.worker(desk.app), RUN)
    assert bank.moved == [("acme", 4000)]
    [operation] = await rig.operations(RUN)
    assert operation.digest == proposed != operation.executed
    assert '"cents":4000' in operation.arguments
    unedited = Desk(rig, payments(Bank(), large))
    await unedited.start("other")
    await rig.settle(worker)
    assert bank.keys[0] == operation.key


async def test_an_edited_operation_has_another_key_than_the_one_that_was_proposed(rig: Rig) -> None:
    bank = Bank(refuses=1)
    desk = Desk(rig, payments(bank, Approval(role="finance", expires=timedelta(seconds=30))))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    await desk.approve()
    await rig.settle(worker)
    [first] = await rig.operations(RUN)
    # What was approved is over before the retry, so it is asked for anew: this time with other arguments.
    await rig.pass_time(worker, timedelta(seconds=31))
    await desk.approve(cents=4000, who="ben")
    await rig.settle(worker)
    [second] = await rig.operations(RUN)
    assert bank.moved == [("acme", 4000)]
    assert bank.keys == [second.key]
    assert second.key != first.key
    assert second.id == first.id


async def test_nobody_answers_they_are_reminded_others_are_asked_and_it_is_rejected(rig: Rig) -> None:
    bank = Bank()
    rule = Approval(
        role="finance", expires=DAY, remind=timedelta(hours=8), on_expiry="escalate", escalate_to="board"
    )  # fmt: skip
    desk = Desk(rig, payments(bank, rule))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    await rig.pass_time(worker, timedelta(hours=8))
    assert await approvals_of(rig) == ["proposed", "reminded"]
    await rig.pass_time(worker, timedelta(hours=16))
    assert await desk.statuses() == ["expired", "asked"]
    assert (await desk.only()).role == "board"
    with pytest.raises(MayNotDecide):
        await desk.approve()
    told = await cast(Telling, rig.store).unrouted("new", after=0, limit=9)
    assert sorted((one.kind, one.role) for one in told) == [
        ("approval", "board"), ("approval", "finance"), ("reminder", "finance"),
    ]  # fmt: skip
    await rig.pass_time(worker, DAY)
    assert await ended(rig) == '"rejected: expired: board has not approved it in time"'
    assert bank.moved == []


async def test_a_call_can_ask_for_what_its_tool_does_not(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, large, cents=10, option=Approval(role="finance", quorum=2)))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    await desk.approve()
    await rig.settle(worker)
    assert bank.moved == []
    await desk.approve(who="ben")
    await rig.settle(worker)
    assert bank.moved == [("acme", 10)]


@pytest.mark.parametrize("effect", ["read", "transactional", "idempotent"])
async def test_every_kind_of_tool_waits_for_its_approval(rig: Rig, effect: Effect) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE, effect=effect))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    assert bank.moved == []
    await desk.approve(cents=4100)
    await rig.settle(worker)
    assert bank.moved == [("acme", 4100)]
    assert await ended(rig) == '"paid 4100 to acme"'
    [row] = await desk.open(statuses=("approved",))
    assert row.used_at is not None


@pytest.mark.parametrize("effect", ["read", "transactional", "external"])
async def test_it_comes_to_the_same_when_it_is_unloaded_at_every_step(rig: Rig, effect: Effect) -> None:
    rig.evict = True
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE, effect=effect, twice=True))
    await desk.start()
    for _ in range(2):
        await rig.settle(rig.worker(desk.app))
        await desk.approve()
    await rig.settle(rig.worker(desk.app))
    assert await ended(rig) == '"paid 4200 to acme, paid 4200 to acme"'
    assert bank.moved == PAID * 2


async def test_the_deadline_of_a_run_withdraws_what_it_waits_for(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    worker = rig.worker(desk.app)
    await desk.app.start(desk.payer, "acme", id=RUN, deadline=timedelta(hours=1))
    await rig.settle(worker)
    asked = await desk.only()
    rig.clock.advance(timedelta(hours=1))
    await rig.settle(worker)
    await worker.idle()
    assert (await rig.row(RUN)).status == "expired"
    assert await desk.statuses() == ["withdrawn"]
    with pytest.raises(ApprovalClosed):
        await desk.approvals.approve(asked.id, who="ada", role="finance")
    assert bank.moved == []


async def test_a_branch_that_is_cancelled_withdraws_what_it_waits_for(rig: Rig) -> None:
    bank = Bank()
    app: Outlive[None] = Outlive()

    async def pay(op: Operation[None], to: str) -> str:
        return bank.pay(op.key, to, 1)

    async def payer(run: Run[None], to: str) -> str:
        name, _ = await run.first(paid=run.call(tool, to), late=run.sleep(timedelta(hours=1)))
        return name

    pay.__qualname__, payer.__qualname__ = "pay", "payer"
    tool = app.tool(approval=FINANCE)(pay)
    app.agent()(payer)
    desk = Desk(rig, app)
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    assert await desk.statuses() == ["asked"]
    await rig.pass_time(worker, timedelta(hours=1))
    assert await ended(rig) == '"late"'
    assert await desk.statuses() == ["withdrawn"]
    assert bank.moved == []


async def test_a_run_with_the_entries_of_another_has_none_of_its_approvals(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    worker = rig.worker(desk.app)
    await desk.start("parent")
    await rig.settle(worker)
    await desk.approve(run="parent")
    await rig.settle(worker)
    assert bank.moved == PAID
    given = [one for one in await rig.entries("parent") if one.kind in ("proposed", "decided")]
    await desk.start("copy")
    [claimed] = await rig.store.claim(Claim(Owner("hand"), {"payer": "x"}, 1, 30_000), now=rig.clock.now())
    drafts = [Draft(one.kind, one.version, one.at, one.scope, one.key, one.body, one.payload) for one in given]
    await rig.store.append(
        Append(claimed.authority, claimed.row.head, tuple(drafts), Change("ready")), now=rig.clock.now()
    )
    await rig.settle(worker)
    assert bank.moved == PAID
    assert await desk.statuses("parent") == ["approved"]
    assert await desk.statuses("copy") == ["asked"]


async def test_an_approval_is_found_by_the_beginning_of_its_id(rig: Rig) -> None:
    desk = Desk(rig, payments(Bank(), FINANCE))
    await desk.start("A")
    await desk.start("B")
    await rig.settle(rig.worker(desk.app))
    one = await desk.only("A")
    details = await desk.approvals.get(one.id[:12])
    assert (details.row, details.agent, details.votes) == (one, "payer", ())
    for unknown in ("ap-", "none", ""):
        with pytest.raises(UnknownApproval):
            await desk.approvals.get(unknown)


class Together:
    """A store that says what an approval is just before a branch has won: the other begins to wait as it ends."""

    def __init__(self, store: Store) -> None:
        self._store, self._won = store, asyncio.Event()

    async def approval(self, tenant: Tenant, id: ApprovalId) -> Reading | None:
        found = await self._store.approval(tenant, id)
        if not self._won.is_set():
            await self._won.wait()
        return found

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        head = await self._store.append(append, now=now)
        if any(draft.kind == "joined" for draft in append.drafts):
            self._won.set()
            loop = asyncio.get_running_loop()
            turn = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn
        return head

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_a_branch_that_begins_to_wait_as_it_is_cancelled_does_not_suspend_the_run(rig: Rig) -> None:
    app: Outlive[None] = Outlive()

    async def pay(op: Operation[None], to: str) -> str:
        raise AssertionError("it was sent")

    async def payer(run: Run[None], to: str) -> str:
        name, _ = await run.first(paid=run.call(tool, to), late=run.sleep(timedelta(hours=1)))
        return name

    pay.__qualname__, payer.__qualname__ = "pay", "payer"
    tool = app.tool(approval=FINANCE)(pay)
    app.agent()(payer)
    desk = Desk(rig, app)
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    rig.clock.advance(timedelta(hours=1))
    worker = rig.worker(desk.app, store=cast(Store, Together(rig.store)))
    await worker.claim()
    await worker.idle()
    assert await ended(rig) == '"late"'


@pytest.mark.parametrize("evict", [False, True])
async def test_a_run_that_is_cancelled_withdraws_what_it_waits_for(rig: Rig, evict: bool) -> None:
    rig.evict = evict
    bank = Bank()
    app: Outlive[None] = Outlive()

    async def pay(op: Operation[None], to: str) -> str:
        return bank.pay(op.key, to, 1)

    async def tidy(to: str) -> str:
        return f"told {to}"

    async def payer(run: Run[None], to: str) -> str:
        try:
            return await run.call(tool, to)
        finally:
            await run.step(tidy, to)

    pay.__qualname__, payer.__qualname__, tidy.__qualname__ = "pay", "payer", "tidy"
    tool = app.tool(approval=FINANCE)(pay)
    app.agent()(payer)
    desk = Desk(rig, app)
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    asked = await desk.only()
    await worker._patiently_announce()
    await desk.app.handle(desk.payer, RUN).cancel(who="rita", why="not needed")
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "cancelled"
    assert "step" in await rig.kinds(RUN)
    assert await desk.statuses() == ["withdrawn"]
    with pytest.raises(ApprovalClosed):
        await desk.approvals.approve(asked.id, who="ada", role="finance")
    assert bank.moved == []


async def test_a_run_is_forgotten_with_its_approvals(rig: Rig) -> None:
    desk = Desk(rig, payments(Bank(), FINANCE))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    row = await desk.approve()
    await rig.settle(worker)
    rig.clock.advance(timedelta(days=1))
    store, hour = rig.store, 3_600_000
    assert isinstance(store, Kept)
    aged = await store.aged("succeeded", older_ms=hour, after=Aged(), limit=10, now=rig.clock.now())
    await store.forget("succeeded", aged, older_ms=hour, most=100, now=rig.clock.now())
    assert await rig.store.run(DEFAULT_TENANT, RunId(RUN)) is None
    assert await rig.store.approval(DEFAULT_TENANT, row.id) is None


@pytest.mark.parametrize("how", ["approved", "rejected", "expired"])
async def test_an_approval_that_was_decided_is_told_to_nobody_any_more(rig: Rig, how: str) -> None:
    desk, store = Desk(rig, payments(Bank(), FINANCE)), cast(Telling, rig.store)
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    [told] = await store.unrouted("new", after=0, limit=9)
    assert not await store.is_moot(told, now=rig.clock.now())
    id = (await desk.only()).id
    assert f'to approve pay(to="acme", cents=4200); see: outlive approvals {id}' in line(told)
    match how:
        case "approved":
            await desk.approve()
        case "rejected":
            await desk.approvals.reject(id, who="ada", role="finance", why="no")
        case _:
            rig.clock.advance(DAY)
    assert await store.is_moot(told, now=rig.clock.now())
