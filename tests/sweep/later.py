"""Agents whose tools have their outcome later: told in time, told early, told by nobody."""

from __future__ import annotations

from datetime import timedelta

from outlive import Agent, Operation, Run
from outlive.testing import Mail
from tests.sweep.corpus import SOON, Bank, app, charge, double, find, look, put


@app.tool(reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON)
async def order(op: Operation[Bank], what: str) -> str:
    op.deps.book(op.key, what)
    return op.pending(until=timedelta(hours=1))


@app.tool(effect="idempotent", retry=SOON)
async def order_once(op: Operation[Bank], what: str) -> str:
    op.deps.booked.setdefault(op.key, f"{what}#{len(what)}")
    return op.pending(until=timedelta(hours=1))


@app.agent()
async def orders(run: Run[Bank], input: str) -> list[object]:
    """One after the other, with effects before and after."""
    before = await run.call(charge, input)
    first = await run.call(order, input)
    second = await run.call(order_once, input)
    return [before, first, second, await run.step(double, len(second)), await run.call(put, input)]


@app.agent()
async def orders_beside(run: Run[Bank], input: str) -> list[object]:
    """While another branch has calls in flight."""

    async def works() -> list[str]:
        return [await run.call(look, f"{input}{number}") for number in range(3)] + [await run.call(charge, input)]

    return [*await run.gather(run.call(order, input), works())]


BY_TIME = (
    Mail("inv#3", completes="order", key="evt-1", at=timedelta(minutes=3)),
    Mail("inv#3", completes="order_once", key="evt-1", at=timedelta(minutes=9)),
    Mail("inv#3", completes="order", key="evt-2", at=timedelta(days=2)),
)

TOLD: tuple[tuple[Agent[str, object], tuple[Mail, ...]], ...] = (
    (orders, BY_TIME), (orders_beside, BY_TIME[:1]),
)  # fmt: skip
