"""What approvals must not let through, on both stores, with a bank that counts what was moved."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from outlive.approvals import Approval
from outlive.errors import (
    ApprovalClosed,
    ApprovalRefused,
    BadArguments,
    LinkExpired,
    LinkForged,
    LinkUsed,
    MayNotDecide,
    Refused,
)
from outlive.model.approval import Use
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.store.port import Append
from tests.engine.payments import DAY, FINANCE, PAID, RUN, Bank, Desk, Rule, Stops, approvals_of, ended, large, payments
from tests.engine.rig import Rig


@pytest.fixture
def rig(either: Rig) -> Rig:
    """Each of these tests is for both stores."""
    return either


async def test_approve_one_and_run_another(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE, twice=True))
    worker = rig.worker(desk.app)
    await desk.start("A", to="acme")
    await desk.start("B", to="globex")
    await rig.settle(worker)
    await desk.approve(run="A")
    await rig.settle(worker)
    assert bank.moved == PAID
    # Neither the other run nor the same call a second time in the same run.
    assert await desk.statuses("A") == ["approved", "asked"]
    assert (await rig.row("A")).status == (await rig.row("B")).status == "waiting"


async def test_two_concurrent_resumes(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    await desk.start()
    workers = [rig.worker(desk.app) for _ in range(2)]
    await rig.settle(workers[0])
    await desk.approve()
    await asyncio.gather(*(worker.claim() for worker in workers))
    for worker in workers:
        await worker.idle()
        await rig.settle(worker)
    assert bank.moved == PAID
    assert await approvals_of(rig) == ["proposed", "decided", "intent", "outcome"]


async def test_an_approval_covers_a_retry_that_did_not_act_and_nothing_after_it_has_expired(rig: Rig) -> None:
    bank = Bank(refuses=2)
    desk = Desk(rig, payments(bank, Approval(role="finance", expires=timedelta(seconds=2))))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    await desk.approve()
    await rig.settle(worker)
    assert bank.refuses == 1
    await rig.pass_time(worker, timedelta(seconds=1))
    assert bank.refuses == 0
    await rig.pass_time(worker, timedelta(seconds=10))
    assert bank.moved == []
    assert await desk.statuses() == ["expired", "asked"]
    assert (await approvals_of(rig))[-2:] == ["decided", "proposed"]
    await desk.approvals.reject((await desk.only()).id, who="ben", role="finance", why="too late now")
    await rig.settle(worker)
    [operation] = await rig.operations(RUN)
    assert (operation.status, operation.how) == ("failed", "person")
    assert await ended(rig) == '"rejected: too late now"'
    assert bank.moved == []


async def test_an_approval_that_was_used_is_not_used_by_the_next_call(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE, twice=True))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    first = await desk.approve()
    await rig.settle(worker)
    second = await desk.only()
    assert (second.proposed, second.role) == (first.proposed, first.role)
    assert second.operation != first.operation
    assert bank.moved == PAID


async def test_approval_after_expiry(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    asked = await desk.only()
    rig.clock.advance(DAY)
    with pytest.raises(ApprovalClosed):
        await desk.approvals.approve(asked.id, who="ada", role="finance")
    await rig.settle(worker)
    assert await ended(rig) == '"rejected: expired: finance has not approved it in time"'
    assert bank.moved == []


async def test_what_was_approved_in_time_is_not_sent_after_it(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    await desk.approve()
    rig.clock.advance(DAY)
    await rig.settle(worker)
    assert bank.moved == []
    assert await desk.statuses() == ["expired", "asked"]


async def test_approval_by_the_requester(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    worker = rig.worker(desk.app)
    await desk.start(principal="Ada")
    await rig.settle(worker)
    with pytest.raises(MayNotDecide, match="whoever asks"):
        await desk.approve(who="ada")
    with pytest.raises(MayNotDecide):
        await desk.approvals.delegate((await desk.only()).id, who="ben", role="finance", to="ADA")
    await rig.settle(worker)
    assert bank.moved == []


async def test_approval_after_the_role_was_revoked(rig: Rig) -> None:
    bank, roles = Bank(), {"ada": {"finance"}, "ben": {"finance"}}

    async def directory(who: str) -> set[str]:
        return roles.get(who, set())

    app = payments(bank, FINANCE)
    app.roles = directory
    desk = Desk(rig, app)
    worker = rig.worker(desk.app)
    worker.kit = replace(worker.kit, roles=directory)
    await desk.start()
    await rig.settle(worker)
    with pytest.raises(MayNotDecide):
        await desk.approve(who="eve")
    await desk.approve()
    roles["ada"] = set()
    await rig.settle(worker)
    assert bank.moved == []
    assert await desk.statuses() == ["superseded", "asked"]
    with pytest.raises(MayNotDecide):
        await desk.approve()
    await desk.approve(who="ben")
    await rig.settle(worker)
    assert bank.moved == PAID


async def test_approval_that_was_taken_back(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    row = await desk.approve()
    await desk.approvals.revoke(row.id, who="ben", role="finance", why="the contract has ended")
    await rig.settle(worker)
    assert bank.moved == []
    assert await desk.statuses() == ["revoked", "asked"]


async def test_edited_arguments_that_no_longer_validate(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, large))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    for wrong in ({"cents": "many"}, {"dollars": 1}):
        with pytest.raises(BadArguments, match="do not fit"):
            await desk.approve(**wrong)
    assert await desk.statuses() == ["asked"]
    await rig.settle(worker)
    assert bank.moved == []


async def test_edited_arguments_that_no_longer_validate_after_a_deploy(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    await desk.approve(cents=6000)
    narrower = Desk(rig, payments(bank, FINANCE, most=5000))
    worker = rig.worker(narrower.app, code="second")
    await rig.settle(worker)
    assert bank.moved == []
    assert await desk.statuses() == ["superseded", "asked"]
    await narrower.approve(who="ben")
    await rig.settle(worker)
    assert bank.moved == PAID


async def test_edited_arguments_that_would_take_another_approval(rig: Rig) -> None:
    def by_size(cents: int) -> Approval | None:
        return Approval(role="board", quorum=2) if cents > 10_000 else FINANCE

    bank = Bank()
    desk = Desk(rig, payments(bank, by_size))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    with pytest.raises(BadArguments, match="2 of board"):
        await desk.approve(cents=20_000)
    await rig.settle(worker)
    assert bank.moved == []


async def test_a_tool_renamed_by_a_deploy_while_the_approval_waits(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    await desk.start()
    await rig.settle(rig.worker(desk.app, code="first"))
    await desk.approve()
    renamed = Desk(rig, payments(bank, FINANCE, tool="transfer"))
    await rig.settle(rig.worker(renamed.app, code="second"))
    assert bank.moved == []
    assert (await rig.row(RUN)).reason == "diverged"
    assert len(await desk.statuses()) == 1
    await rig.settle(rig.worker(desk.app, code="first again"))
    assert bank.moved == PAID


async def test_its_arguments_changed_by_a_deploy_while_the_approval_waits(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    await desk.start()
    await rig.settle(rig.worker(desk.app, code="first"))
    await desk.approve()
    dearer = Desk(rig, payments(bank, FINANCE, cents=4300))
    await rig.settle(rig.worker(dearer.app, code="second"))
    assert bank.moved == []
    assert (await rig.row(RUN)).reason == "diverged"


@pytest.mark.parametrize(
    "changed",
    [
        Approval(role="board", expires=DAY), Approval(role="finance", quorum=2, expires=DAY),
        Approval(role="finance", expires=2 * DAY), large,
    ],
    ids=["role", "quorum", "expiry", "another rule"],
)  # fmt: skip
async def test_its_rule_changed_by_a_deploy_while_the_approval_waits(rig: Rig, changed: Rule) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    await desk.start()
    await rig.settle(rig.worker(desk.app, code="first"))
    await desk.approve()
    stricter = Desk(rig, payments(bank, changed))
    await rig.settle(rig.worker(stricter.app, code="second"))
    assert bank.moved == []
    assert await desk.statuses() == ["superseded", "asked"]


async def test_code_that_changes_elsewhere_leaves_an_approval_as_it_is(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, large))
    await desk.start()
    await rig.settle(rig.worker(desk.app, code="first"))
    await desk.approve()
    await rig.settle(rig.worker(Desk(rig, payments(bank, large)).app, code="second"))
    assert bank.moved == PAID


async def test_a_rule_that_asks_no_more_withdraws_what_it_has_asked_for(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    await desk.start()
    await rig.settle(rig.worker(desk.app, code="first"))
    await desk.approve(cents=1)
    await rig.settle(rig.worker(Desk(rig, payments(bank)).app, code="second"))
    assert bank.moved == PAID
    assert await desk.statuses() == ["withdrawn"]


@pytest.mark.parametrize("after", [False, True], ids=["between use and send", "between send and record"])
async def test_a_worker_killed_around_the_send(rig: Rig, after: bool) -> None:
    """Its approval was used by the intent: nothing is sent again on it but what is known not to have acted."""
    bank = Stops(after=after)
    desk = Desk(rig, payments(bank, FINANCE, act=bank.act))
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    approved = await desk.approve()
    await rig.crash(rig.mortal(desk.app), bank.reached)
    assert (await desk.approvals.get(approved.id)).row.used_at is not None
    worker = rig.worker(desk.app)
    await rig.take_over(worker)
    assert bank.moved == (PAID if after else [])
    [operation] = await rig.operations(RUN)
    assert (operation.status, (await rig.row(RUN)).status) == ("unknown", "blocked")
    await rig.pass_time(worker, timedelta(hours=1))
    assert bank.moved == (PAID if after else [])


async def test_a_worker_killed_before_its_approval_is_used(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    await desk.approve()
    # It has copied the decision, and dies before the intent: the next one goes on from there.
    rig.evict = True
    worker = rig.worker(desk.app)
    await worker.claim()
    await worker.idle()
    rig.evict = False
    await rig.settle(rig.worker(desk.app))
    assert bank.moved == PAID
    assert await approvals_of(rig) == ["proposed", "decided", "intent", "outcome"]


async def test_a_repetition_of_what_is_in_doubt_is_not_covered_for_ever(rig: Rig) -> None:
    """The other side dedupes, but who approved it may not want it any more: then a person settles it."""
    bank = Stops(after=False)
    rule = Approval(role="finance", expires=timedelta(minutes=5))
    desk = Desk(rig, payments(bank, rule, effect="idempotent", act=bank.act))
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    await desk.approve()
    await rig.crash(rig.mortal(desk.app), bank.reached)
    rig.clock.advance(timedelta(minutes=5))
    await rig.take_over(rig.worker(desk.app))
    assert bank.moved == []
    [operation] = await rig.operations(RUN)
    assert (operation.status, (await rig.row(RUN)).status) == ("unknown", "blocked")


async def test_a_repetition_within_its_time_is_covered(rig: Rig) -> None:
    bank = Stops(after=True)
    desk = Desk(rig, payments(bank, FINANCE, effect="idempotent", act=bank.act))
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    await desk.approve()
    await rig.crash(rig.mortal(desk.app), bank.reached)
    await rig.take_over(rig.worker(desk.app))
    assert await ended(rig) == '"paid 4200 to acme"'
    assert len(set(bank.keys)) == 1


async def test_a_forged_a_replayed_and_a_late_link(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, Approval(role="finance", quorum=2, expires=DAY)))
    worker = rig.worker(desk.app)
    await desk.start("A")
    await desk.start("B")
    await rig.settle(worker)
    a, b = [(await desk.only(run)).id for run in ("A", "B")]
    link = await desk.approvals.link(a, who="ada")
    body, signature = link.split(".")
    other = (await desk.approvals.link(b, who="ada")).split(".")
    forged = [
        "", "x", "é.x", link[:-1] + ("0" if link[-1] != "0" else "1"), f"{other[0]}.{signature}",
        f"{body}.{other[1]}", f"{body}.", body,
    ]  # fmt: skip
    for one in forged:
        with pytest.raises(LinkForged):
            await desk.approvals.redeem(one, "approve")
    with pytest.raises(LinkForged):
        await desk.approvals.of("another tenant").redeem(link, "approve")
    row = await desk.approvals.redeem(link, "approve")
    assert (row.votes, row.status) == (1, "asked")
    for decision in ("approve", "reject"):
        with pytest.raises(LinkUsed):
            await desk.approvals.redeem(link, decision)
    late = await desk.approvals.link(a, who="ben", valid=timedelta(minutes=1))
    rig.clock.advance(timedelta(minutes=1))
    with pytest.raises(LinkExpired):
        await desk.approvals.redeem(late, "approve")
    with pytest.raises(MayNotDecide):
        await desk.approvals.redeem(await desk.approvals.link(a, who="rita"), "approve")
    await desk.approvals.redeem(await desk.approvals.link(a, who="ben"), "approve")
    await rig.settle(worker)
    assert bank.moved == PAID
    with pytest.raises(ApprovalClosed):
        await desk.approvals.link(a, who="cem")
    with pytest.raises(Refused):
        await desk.approvals.link(b, who="cem", valid=timedelta(0))


async def test_a_quorum_raced_by_three_approvers(rig: Rig) -> None:
    bank = Bank()
    desk = Desk(rig, payments(bank, Approval(role="finance", quorum=2, expires=DAY)))
    worker = rig.worker(desk.app)
    await desk.start()
    await rig.settle(worker)
    id = (await desk.only()).id
    told = await asyncio.gather(
        *(desk.approvals.approve(id, who=who, role="finance") for who in ("ada", "ben", "cem")),
        return_exceptions=True,
    )
    assert sorted(type(one).__name__ for one in told) == ["ApprovalClosed", "ApprovalRow", "ApprovalRow"]
    await rig.settle(worker)
    assert bank.moved == PAID
    assert (await desk.approvals.get(id)).row.votes == 2


async def test_an_intent_that_nobody_has_approved_is_not_written(rig: Rig) -> None:
    """The last word has the commit, whatever an engine believes: here one that does not even look."""
    bank = Bank()
    desk = Desk(rig, payments(bank, FINANCE))
    await desk.start()
    await rig.settle(rig.worker(desk.app))
    asked = await desk.only()
    claimed = await rig.store.seize(DEFAULT_TENANT, RunId(RUN), owner=Owner("x"), lease_ms=1000, now=rig.clock.now())
    assert claimed is not None
    use = Use(asked.id, asked.operation, asked.proposed, asked.policy)
    with pytest.raises(ApprovalRefused):
        await rig.store.append(Append(claimed.authority, claimed.row.head, (), use=use), now=rig.clock.now())
