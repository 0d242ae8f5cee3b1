"""Business keys of what needs an approval: who is asked, when nobody is any more, and which arguments count."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation, Outlive, Run
from outlive.app.approvals import Approvals
from outlive.approvals import Approval
from outlive.errors import KeyConflict
from outlive.model.approval import ApprovalFilter, ApprovalRow
from tests.engine import keyed
from tests.engine.keyed import bank, key, later, operation
from tests.engine.rig import Rig

app: Outlive[None] = Outlive()


def payment_key(to: str, cents: int) -> str:
    return f"pay/{to}/{cents}"


def large(cents: int) -> Approval | None:
    return Approval(role="finance", expires=timedelta(days=1)) if cents > 1000 else None


@app.tool(key=payment_key, approval=large)
async def pay(op: Operation[None], to: str, cents: int) -> str:
    if bank.hook is not None and (answer := await bank.hook(op)) is not None:
        return cast(str, answer)
    bank.charged.append(f"{to} {cents}")
    return f"paid {cents}"


@app.agent()
async def payer(run: Run[None], cents: int) -> str:
    try:
        return await run.call(pay, "acme", cents)
    except KeyConflict as conflict:
        return f"conflict: {conflict.why}"


@pytest.fixture(autouse=True)
def fresh() -> None:
    keyed.reset()


def desk(rig: Rig) -> Approvals:
    return Approvals(lambda: rig.store, rig.clock, app.registry, None)


async def waiting(rig: Rig) -> dict[str, ApprovalRow]:
    """By run, the approval that it waits for."""
    return {row.run: row for row in await desk(rig).list()}


async def start(rig: Rig, *runs: str, cents: int = 4200) -> None:
    for id in runs:
        await rig.app(app).start(payer, cents, id=id)
    await rig.settle(rig.worker(rig.app(app)))


async def approve(rig: Rig, run: str, **arguments: object) -> None:
    row = (await waiting(rig))[run]
    await desk(rig).approve(row.id, who="ada", role="finance", why="it is owed", arguments=arguments or None)
    await rig.settle(rig.worker(rig.app(app)))


async def result(rig: Rig, run: str) -> str | None:
    row = await rig.row(run)
    assert row.status == "succeeded", (row.status, row.reason, row.detail)
    return (await rig.entries(run))[-1].payload


async def test_nobody_is_asked_for_what_is_done(either: Rig) -> None:
    await start(either, "a")
    await approve(either, "a")
    await start(either, "b")
    assert await result(either, "b") == '"paid 4200"' and bank.charged == ["acme 4200"]
    assert await waiting(either) == {} and await either.kinds("b") == ["started", "shared", "ended"]


async def test_a_proposal_takes_no_key_and_what_another_run_did_meanwhile_is_shared(either: Rig) -> None:
    await start(either, "a", "b")
    assert set(await waiting(either)) == {"a", "b"}
    await approve(either, "b")
    await approve(either, "a")
    assert await result(either, "a") == await result(either, "b") == '"paid 4200"' and bank.charged == ["acme 4200"]
    first, second = await operation(either, "b"), await operation(either, "a")
    assert (second.how, second.shared_operation) == ("shared", first.id)
    every = await either.store.approvals(second.tenant, ApprovalFilter(statuses=()))
    assert {one.status for one in every} == {"approved", "withdrawn"}


async def test_who_waits_for_the_key_is_not_asked_before_it_is_known(either: Rig) -> None:
    bank.hook = later
    await start(either, "a")
    await approve(either, "a")
    await start(either, "b")
    assert (await either.row("b")).status == "waiting" and await waiting(either) == {}
    assert (await key(either)).waiters == ("b",)


async def test_the_key_is_that_of_the_arguments_that_are_executed(either: Rig) -> None:
    await start(either, "a")
    await approve(either, "a", to="acme", cents=4000)
    assert bank.charged == ["acme 4000"] and (await key(either)).mark.shown == "pay/acme/4000"
    await start(either, "b", cents=4000)
    assert await result(either, "b") == '"paid 4000"'
    await start(either, "c")
    assert set(await waiting(either)) == {"c"}, "what was proposed and not done is free"
    await approve(either, "c", to="acme", cents=4000)
    assert await result(either, "c") == '"paid 4000"' and bank.charged == ["acme 4000"]
    assert (await operation(either, "c")).how == "shared"
