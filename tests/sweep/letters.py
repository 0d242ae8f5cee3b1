"""Agents that are spoken to: messages before, during and after their wait, from two senders, and answers of people."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from outlive import Agent, Run
from outlive.errors import TimedOut
from outlive.testing import Mail
from tests.sweep.corpus import Bank, app, charge, double, look


class Said(BaseModel):
    """State of a loop of turns."""

    got: list[str] = []


class Order(BaseModel):
    what: str
    count: int


@app.agent()
async def receives(run: Run[Bank], input: str) -> list[str]:
    """Mail that was there before the wait, comes during it, and comes while it does something else."""
    got = [await run.receive("orders", str)]
    await run.call(charge, got[-1])
    got.append(await run.receive("orders", str))
    await run.sleep(timedelta(minutes=30))
    got += [await run.receive("orders", str), str(await run.step(double, len(got)))]
    try:
        await run.receive("nothing", str, timeout=timedelta(minutes=1))
    except TimedOut:
        got.append("nothing")
    return got


@app.agent()
async def converses(run: Run[Bank], input: str) -> list[str]:
    """A loop of turns; what one turn has not received goes on into the next."""
    async for state in run.turns(Said()):
        won, said = await run.first(order=run.receive("orders", str), late=run.sleep(timedelta(days=30)))
        if won == "late":
            return state.got
        await run.call(charge, str(said))
        state.got.append(str(said))
        if len(state.got) == 3:
            return state.got
    return []


@app.agent()
async def asks(run: Run[Bank], input: str) -> list[object]:
    """Two questions at once, an order between them."""
    count, whom = await run.gather(run.ask("How many?", int, role="owner"), run.ask("For whom?", str, role="clerk"))
    order = await run.receive("orders", Order)
    return [count, whom, order.what, await run.call(charge, str(whom))]


@app.agent()
async def busy(run: Run[Bank], input: str) -> list[object]:
    """Receives while another branch has calls in flight."""

    async def works() -> list[str]:
        return [await run.call(look, f"{input}{number}") for number in range(3)] + [await run.call(charge, input)]

    async def listens() -> list[str]:
        return [await run.receive("orders", str), await run.receive("orders", str)]

    return [*await run.gather(works(), listens())]


def order(body: object, key: str, at: timedelta | int) -> Mail:
    return Mail(body, topic="orders", key=key, at=at)


ORDERS = (
    order("ann-1", "ann-1", timedelta(0)),
    order("bob-1", "bob-1", timedelta(seconds=20)),
    order("ann-2", "ann-2", timedelta(minutes=3)),
    order("too late", "ann-3", timedelta(days=40)),
)
ANSWERS = (
    Mail(3, question="How many?", at=timedelta(seconds=5)),
    order({"what": "lamps", "count": 3}, "ann-1", timedelta(seconds=25)),
    Mail("Grace", question="For whom?", at=timedelta(minutes=2)),
)

SPOKEN_TO: tuple[tuple[Agent[str, object], tuple[Mail, ...]], ...] = (
    (receives, ORDERS), (converses, ORDERS), (asks, ANSWERS), (busy, ORDERS),
)  # fmt: skip
