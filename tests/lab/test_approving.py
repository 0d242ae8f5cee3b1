"""Approvals in a lab: given, refused, let expire; and swept, so that a worker dies at each step of one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlive import DidNotHappen, Happened, Operation, Outlive, Retry, Run
from outlive.approvals import Approval
from outlive.errors import BadArguments, Refused, Rejected
from outlive.testing import lab
from outlive.testing.lab import Lab


class Bank:
    """Counts what was moved, and can be asked."""

    def __init__(self) -> None:
        self.moved: dict[str, int] = {}
        self.times = 0


app: Outlive[Bank] = Outlive()


def large(cents: int) -> Approval | None:
    return Approval(role="finance", quorum=2, remind=timedelta(hours=1)) if cents > 1000 else None


async def find(op: Operation[Bank]) -> Happened[int] | DidNotHappen:
    return Happened(op.deps.moved[op.key]) if op.key in op.deps.moved else DidNotHappen()


@app.tool(reconcile=find, approval=large, settle_after=timedelta(seconds=1), retry=Retry(attempts=9))
async def charge(op: Operation[Bank], invoice: str, cents: int) -> int:
    op.deps.times += 1
    op.deps.moved[op.key] = cents
    return cents


@app.tool(effect="transactional", approval=Approval(role="finance"))
async def book(op: Operation[Bank], invoice: str) -> str:
    await op.connection.execute("create table if not exists booked (invoice text)")
    return invoice


@app.agent()
async def dun(run: Run[Bank], cents: int) -> str:
    try:
        charged = await run.call(charge, "INV-7", cents)
    except Rejected as rejected:
        return rejected.reason
    return f"{charged} for {await run.call(book, 'INV-7')}"


def bank_of(t: Lab[Bank]) -> Bank:
    return t._deps


async def test_a_test_approves_rejects_and_lets_expire() -> None:
    async with lab(app, deps=Bank()) as t:
        approved, small = await t.start(dun, 4200, id="a"), await t.start(dun, 900, id="small")
        await t.approve("charge", run="a", who="ada")
        assert t.sent("charge") == [{"invoice": "INV-7", "cents": 900}]
        await t.approve("charge", run="a", who="ben")
        await t.approve("book", run=approved)
        await t.reject("book", run="small", why="not yet")
        assert await approved.result() == "4200 for INV-7"
        await t.advance(seconds=1)
        assert await t.status(small) == "failed"
        rejected = await t.start(dun, 5000)
        await t.reject("charge", why="we do not owe it")
        assert await rejected.result() == "we do not owe it"
        late = await t.start(dun, 6000)
        await t.expire("charge")
        assert await late.result() == "expired: finance has not approved it in time"
        with pytest.raises(Refused, match="waits for 0 approvals"):
            await t.approve("charge")
        edited = await t.start(dun, 4200)
        for who in ("ada", "ben"):
            await t.approve("charge", who=who, arguments={"cents": 1500})
        await t.approve("book")
        assert await edited.result() == "1500 for INV-7"


@pytest.mark.parametrize("evict", [False, True])
async def test_a_worker_may_die_at_each_step_of_an_approval(evict: bool) -> None:
    bank = Bank()
    async with lab(app, deps=bank, evict=evict) as t:
        t.approver = lambda _: "approve"
        report = await t.sweep(dun, 4200, every=30 if evict else 3)
        assert set(report.ends) == {"succeeded"}
        assert report.count(method="append") > 10
    assert set(bank.moved.values()) == {4200}


async def test_a_rejection_comes_through_whatever_dies() -> None:
    bank = Bank()
    async with lab(app, deps=bank) as t:
        t.approver = lambda _: "reject"
        report = await t.sweep(dun, 4200, every=5)
        assert set(report.ends) == {"succeeded"}
    assert bank.times == 0


async def test_what_is_said_of_a_decision_has_its_length() -> None:
    async with lab(app, deps=Bank()) as t:
        run = await t.start(dun, 5000)
        await t.advance(minutes=1)
        for who, why in (("ada", "w" * 2001), ("n" * 201, "so")):
            with pytest.raises(BadArguments, match="reject"):
                await t.reject("charge", run=run, who=who, why=why)
        await t.reject("charge", run=run, who="n" * 200, why="w" * 2000)
        assert await run.result() == "w" * 2000
