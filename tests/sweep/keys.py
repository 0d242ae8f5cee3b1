"""Agents whose tools have business keys, for the sweep: two runs, or two branches of one, do the same."""

from __future__ import annotations

from datetime import timedelta

from outlive import Agent, Operation, Outlive, Run
from outlive.errors import KeyConflict
from outlive.testing import Mail
from tests.sweep.corpus import SOON, Bank, find

app: Outlive[Bank] = Outlive()
SETTLE, TIMEOUT = timedelta(seconds=5), timedelta(seconds=30)


def what_key(what: str) -> str:
    return f"once/{what}"


@app.tool(reconcile=find, settle_after=SETTLE, timeout=TIMEOUT, retry=SOON, key=what_key)
async def charge_once(op: Operation[Bank], what: str, cents: int) -> str:
    return op.deps.book(op.key, what)


@app.tool(settle_after=SETTLE, timeout=TIMEOUT, retry=SOON, key=what_key)
async def wire_once(op: Operation[Bank], what: str, cents: int) -> str:
    """Nobody can look it up."""
    return op.deps.book(op.key, what)


@app.tool(effect="idempotent", retry=SOON, key=what_key)
async def put_once(op: Operation[Bank], what: str, cents: int) -> str:
    return op.deps.booked.setdefault(op.key, f"{what}#{len(what)}")


@app.tool(effect="transactional", retry=SOON, key=what_key)
async def store_once(op: Operation[Bank], what: str, cents: int) -> str:
    await op.connection.execute("create table if not exists stored (what text)")
    await op.connection.execute(f"insert into stored values ({op.deps.mark})", (what,))
    return f"{what}#{len(what)}"


@app.tool(reconcile=find, settle_after=SETTLE, timeout=TIMEOUT, retry=SOON, key=what_key)
async def order_keyed(op: Operation[Bank], what: str, cents: int) -> str:
    op.deps.book(op.key, what)
    return op.pending(until=timedelta(hours=1))


@app.agent()
async def charges(run: Run[Bank], what: str) -> list[str]:
    return [await run.call(charge_once, what, 1), await run.call(put_once, f"{what} put", 1)]


@app.agent()
async def wires(run: Run[Bank], what: str) -> list[str]:
    return [await run.call(wire_once, what, 1)]


@app.agent()
async def stores(run: Run[Bank], what: str) -> list[str]:
    return [await run.call(store_once, what, 1), await run.call(charge_once, f"{what} too", 1)]


@app.agent()
async def beside(run: Run[Bank], what: str) -> list[str]:
    """Two branches of one run that do the same, and then something else under its key."""
    told = [*await run.gather(run.call(order_keyed, what, 1), run.call(order_keyed, what, 1))]
    try:
        await run.call(order_keyed, what, 2)
    except KeyConflict as conflict:
        told.append(conflict.key)
    return told


TOLD = (Mail("inv#3", completes="order_keyed", key="evt-1", at=timedelta(minutes=3)),)
TWICE: tuple[Agent[str, list[str]], ...] = (charges, wires, stores)
