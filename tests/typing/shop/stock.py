"""Counts the stock, shelf by shelf: a loop of turns, a transactional tool, a read tool, and steps of both colours."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel

from outlive import Operation, Run
from tests.typing.shop.app import app
from tests.typing.shop.deps import Deps


class Count(BaseModel):
    left: list[str]
    copies: dict[str, int] = {}
    worth: Decimal = Decimal(0)


@app.tool(effect="read")
def shelf(op: Operation[Deps], name: str) -> list[str]:
    op.log.info("reading %s", name)
    return [f"{name}-{number}" for number in range(3)]


@app.tool(effect="transactional")
async def write_count(op: Operation[Deps], name: str, copies: int) -> None:
    await op.connection.execute("create table if not exists shelf (name text primary key, copies integer)")
    await op.connection.execute("insert or replace into shelf values (?, ?)", (name, copies))


def price(copies: int) -> Decimal:
    return Decimal("7.50") * copies


async def summary(copies: dict[str, int], worth: Decimal) -> str:
    return f"{sum(copies.values())} copies, {worth}"


@app.agent(name="stocktake", version="2")
async def stocktake(run: Run[Deps], shelves: list[str]) -> str:
    copies, worth = dict[str, int](), Decimal(0)
    async for count in run.turns(Count(left=shelves)):
        copies, worth = count.copies, count.worth
        if not count.left:
            break
        name = count.left.pop()
        books: list[str] = await run.call(shelf, name)
        await run.call(write_count, name, len(books))
        count.copies[name] = len(books)
        count.worth += await run.step(price, len(books))
        await run.emit("counted", count)
    return await run.step(summary, copies, worth=worth)
