"""Agents whose runs are rolled back, by their failure or because they ask for it: for the sweep."""

from __future__ import annotations

from datetime import timedelta

from outlive import Agent, DidNotHappen, Happened, Operation, Outlive, Run, Unclear
from tests.sweep.corpus import SOON, Bank, find

app: Outlive[Bank] = Outlive()
SETTLE, TIMEOUT = timedelta(seconds=5), timedelta(seconds=30)


async def find_again(op: Operation[Bank]) -> Happened[str] | DidNotHappen | Unclear:
    return Happened(op.deps.booked[op.key]) if op.key in op.deps.booked else DidNotHappen()


@app.tool(effect="idempotent", retry=SOON)
async def put_back(op: Operation[Bank]) -> str:
    assert op.original.outcome == op.original.arguments["what"]
    return op.deps.booked.setdefault(op.key, f"{op.original.outcome} is back")


@app.tool(reconcile=find_again, settle_after=SETTLE, timeout=TIMEOUT, retry=SOON)
async def refund(op: Operation[Bank]) -> str:
    return op.deps.book(op.key, f"refund of {op.original.arguments['what']}")


async def take_back(op: Operation[Bank]) -> str:
    """Nobody can look it up."""
    return op.deps.book(op.key, f"{op.original.arguments['what']} is taken back")


@app.tool(effect="idempotent", retry=SOON, compensate=put_back)
async def put(op: Operation[Bank], what: str) -> str:
    return op.deps.booked.setdefault(op.key, what)


@app.tool(reconcile=find, settle_after=SETTLE, timeout=TIMEOUT, retry=SOON, compensate=refund)
async def charge(op: Operation[Bank], what: str) -> str:
    return op.deps.book(op.key, what)


@app.tool(settle_after=SETTLE, timeout=TIMEOUT, retry=SOON, compensate=take_back)
async def wire(op: Operation[Bank], what: str) -> str:
    return op.deps.book(op.key, what)


@app.tool(effect="transactional", retry=SOON, compensate=put_back)
async def store_row(op: Operation[Bank], what: str) -> str:
    mark = op.deps.mark
    await op.connection.execute("create table if not exists kept (what text)")
    await op.connection.execute(f"insert into kept values ({mark})", (what,))
    return what


@app.tool(effect="idempotent", retry=SOON)
async def tell(op: Operation[Bank], what: str) -> str:
    return op.deps.booked.setdefault(op.key, what)


@app.agent(on_failure="rollback")
async def fails(run: Run[Bank], what: str) -> str:
    await run.call(put, what)
    await run.call(charge, what)
    await run.call(tell, what)
    raise LookupError("nothing is left")


@app.agent(on_failure="rollback")
async def fails_blindly(run: Run[Bank], what: str) -> str:
    await run.call(store_row, what)
    await run.call(wire, what)
    raise LookupError("nothing is left")


@app.agent()
async def asks(run: Run[Bank], what: str) -> str:
    await run.gather(run.call(charge, what), run.call(put, what))
    await run.rollback("not what was wanted")


ROLLED_BACK: tuple[Agent[str, str], ...] = (fails, fails_blindly, asks)
