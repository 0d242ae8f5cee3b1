"""Agents that are cancelled while they do something, and clean up by calls: for the sweep.

The request comes from the tool that is in flight, as if somebody had asked at that moment; it is seen at once by the
worker that drives the run, or, where `at_once` is not said, by whoever claims the run next.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from outlive import Agent, Operation, Outlive, Run
from outlive.engine import inbox
from outlive.engine.cancelling import Request, written
from outlive.store.port import Message, Store
from tests.sweep.corpus import SOON, Bank, State, charge, double, find, look, put, store_row, triple

app: Outlive[Bank] = Outlive()
for _tool in (charge, look, put, store_row):
    app.registry.add_tool(_tool)

# Longer than any recovery of the sweep.
_GRACE_MS = 3_600_000
# Turns of the loop until a worker that was told has looked: one that has just died or was refused never does.
_TURNS = 1000


async def ask(op: Operation[Bank], *, at_once: bool) -> None:
    """Somebody asks for the end of the run, on a connection of his own."""
    journal = op._seam.journal
    store: Store = getattr(journal.store, "_store", journal.store)
    body = written(Request("cancel", "ada", "enough", _GRACE_MS))
    message = Message(journal.row.tenant, journal.row.id, inbox.CONTROL, "one", body)
    await store.post(message, now=op._seam.kit.clock.now())
    if at_once:
        journal.grip.on_unread()

        def died() -> bool:
            return bool(getattr(journal.store, "died", ""))

        for _ in range(_TURNS):
            await op._seam.kit.clock.sleep(0)
            if journal.fold.cancelling is not None or op._seam.closed or journal.grip.lost or died():
                return


@app.tool(reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON)
async def charge_and_ask(op: Operation[Bank], what: str) -> str:
    answer = op.deps.book(op.key, what)
    await ask(op, at_once=True)
    return answer


@app.tool(effect="idempotent", retry=SOON)
async def put_and_ask(op: Operation[Bank], what: str) -> str:
    await ask(op, at_once=True)
    return op.deps.booked.setdefault(op.key, what)


@app.tool(effect="read", retry=SOON)
async def look_and_ask(op: Operation[Bank], what: str) -> str:
    await ask(op, at_once=True)
    await op._seam.kit.clock.sleep(0)
    return f"saw {what}"


@app.tool(effect="read", retry=SOON)
async def ask_for_later(op: Operation[Bank], what: str) -> str:
    await ask(op, at_once=False)
    return f"saw {what}"


async def clean_up(run: Run[Bank], what: str) -> None:
    """A bit of everything, also what the run did before."""
    await run.call(put, f"refund of {what}")
    await run.step(double, 2)
    run.now()
    await run.sleep(timedelta(seconds=5))
    await run.gather(run.step(double, 3), run.call(look, "what is left"), run.call(charge, f"fee for {what}"))
    await run.call(charge, f"letter about {what}")


@app.agent()
async def in_an_operation(run: Run[Bank], input: str) -> str:
    await run.step(double, 1)
    try:
        await run.call(charge_and_ask, input)
        await run.call(charge, "must not happen: it was told before")
    except asyncio.CancelledError:
        await clean_up(run, input)
        raise
    return "not cancelled"


@app.agent()
async def in_what_dedupes(run: Run[Bank], input: str) -> str:
    try:
        await run.call(put_and_ask, input)
        await run.call(charge, "must not happen: it was told before")
    finally:
        await clean_up(run, input)
    return "not cancelled"


@app.agent()
async def in_a_read(run: Run[Bank], input: str) -> str:
    """The call that is cut short leaves no entry; that of the clean-up has its key."""
    try:
        await run.call(look, "first")
        await run.call(look_and_ask, input)
        await run.call(charge, "must not happen: it was told before")
    except asyncio.CancelledError:
        await run.call(look_and_ask, "again")
        await clean_up(run, input)
    return "swallowed"


@app.agent()
async def in_branches(run: Run[Bank], input: str) -> str:
    async def branch(what: str) -> str:
        await run.step(triple, 1)
        await run.gather(run.call(look, what), run.step(double, 5))
        return await run.call(charge, what)

    async def asks() -> str:
        await run.step(triple, 2)
        return await run.call(charge_and_ask, input)

    try:
        await run.gather(branch("one"), asks(), run.sleep(timedelta(days=1)), run.receive("never", str))
    except asyncio.CancelledError:
        await clean_up(run, input)
        raise
    return "not cancelled"


@app.agent()
async def while_it_waits(run: Run[Bank], input: str) -> str:
    try:
        await run.call(ask_for_later, input)
        await run.first(mail=run.receive("never", str), late=run.sleep(timedelta(days=1)))
    except asyncio.CancelledError:
        await clean_up(run, input)
        raise
    return "not cancelled"


@app.agent()
async def in_a_turn(run: Run[Bank], input: str) -> str:
    await run.call(look, input)
    async for state in run.turns(State(left=["a", "b", "c"])):
        what = state.left.pop(0)
        try:
            await run.call(charge_and_ask if what == "b" else charge, what)
        except asyncio.CancelledError:
            await clean_up(run, what)
        state.paid.append(what)
    return "not cancelled"


@app.agent()
async def in_a_transaction(run: Run[Bank], input: str) -> str:
    try:
        await run.call(store_row, input)
        await run.call(ask_for_later, input)
        await run.call(store_row, "two")
        await run.sleep(timedelta(seconds=1))
        await run.call(charge, "must not happen: it was told before")
    except asyncio.CancelledError:
        await run.call(store_row, "cleaned up")
        await clean_up(run, input)
        raise
    return "not cancelled"


CANCELLED: list[Agent[str, str]] = [
    in_an_operation, in_what_dedupes, in_a_read, in_branches, while_it_waits, in_a_turn, in_a_transaction,
]  # fmt: skip
