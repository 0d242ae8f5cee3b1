"""Agents that are cancelled: one takes quick steps, one has booked something and gives it back in its clean-up."""

import asyncio

from outlive import Operation, Outlive, Run
from tests.kills.agents import Deps, open_deps, post

app: Outlive[Deps] = Outlive(deps=open_deps)


async def count(n: int) -> int:
    return n


@app.agent()
async def counting(run: Run[Deps], steps: int) -> int:
    for n in range(steps):
        await run.step(count, n)
    return steps


@app.tool(effect="idempotent")
async def book(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


@app.agent()
async def booking(run: Run[Deps], room: str) -> str:
    await run.call(book, room)
    try:
        return await run.receive("tickets", str)
    except asyncio.CancelledError:
        await run.call(book, f"{room} back")
        await run.step(count, 99)
        raise
