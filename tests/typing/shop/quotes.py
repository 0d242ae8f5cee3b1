"""Asks for prices: gather of two types, first with a time-out of our own, and named options for a step used twice."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Literal

from outlive import Run
from tests.typing.shop.app import app
from tests.typing.shop.deps import Deps
from tests.typing.shop.letters import write_to
from tests.typing.shop.stock import shelf

Speed = Literal["slow", "fast"]


def postage(copies: int, speed: Speed) -> Decimal:
    return Decimal(copies) * (2 if speed == "slow" else 5)


async def discount(customer: str) -> int:
    return len(customer) % 10


@app.agent()
async def quote(run: Run[Deps], copies: int) -> Decimal:
    slow, percent = await run.gather(run.step(postage, copies, "slow"), run.step(discount, "Ada"))
    cheaper: Decimal = slow * (100 - percent) / 100
    winner, _ = await run.first(
        fast=run.options(name="fast postage", timeout=timedelta(seconds=5)).step(postage, copies, speed="fast"),
        usual=run.options(name="usual discount").step(discount, "Bob"),
    )
    _, found = await run.first(first=run.call(shelf, "A"), other=run.call(write_to, "Ada", "is it there?"))
    several: tuple[Decimal, ...] = await run.gather(
        run.step(postage, 1, "slow"), run.step(postage, 2, "slow"), run.step(postage, 3, "slow")
    )
    run.log.info("the first answer came from %s, the first shelf or letter is %s", winner, found)
    return min(cheaper, *several)
