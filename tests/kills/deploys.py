"""The application of the deploys: one module that is two releases, by the variable RELEASE.

The bad one has a changed call in its beginning, which a run in flight has recorded otherwise: another name, another
order, another argument of a step or of a tool.
"""

import os
from datetime import timedelta
from typing import Literal, get_args

from pydantic import BaseModel

from outlive import Operation, Outlive, Run
from tests.kills.agents import SOON, Deps, find, open_deps, post
from tests.kills.waiting import wait_on_the_event_loop

app: Outlive[Deps] = Outlive(deps=open_deps)
Change = Literal["nothing", "name", "order", "argument", "tool"]
CHANGES: tuple[Change, ...] = get_args(Change)


class Contract(BaseModel):
    """What one run does, and what the bad release does differently about it."""

    name: str
    changed: Change


def bad() -> bool:
    return os.environ.get("RELEASE") == "bad"


@app.tool(effect="external", reconcile=find, settle_after=SOON, timeout=timedelta(seconds=2))
async def charge(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


async def price(name: str) -> str:
    return f"the price of {name}"


async def check(name: str) -> str:
    return f"{name} is checked"


@app.agent()
async def signing(run: Run[Deps], contract: Contract) -> list[str]:
    changed, name = contract.changed if bad() else "nothing", contract.name
    if changed == "order":
        await run.step(check, name)
    pricing = run.options(name="quote" if changed == "name" else "price")
    await pricing.step(price, f"{name}!" if changed == "argument" else name)
    if changed != "order":
        await run.step(check, name)
    first = await run.call(charge, f"{name} 1{'!' if changed == 'tool' else ''}")
    word = await run.receive("go", str)
    second, third = await run.gather(run.call(charge, f"{name} 2"), run.call(charge, f"{name} 3"))
    await run.step(check, f"{name} {word}")
    return [first, second, third]


async def stick(seconds: float) -> None:
    await wait_on_the_event_loop(seconds)


@app.agent()
async def sticking(run: Run[Deps], name: str) -> None:
    await run.call(charge, f"{name} 1")
    await run.step(stick, 600.0)


@app.agent()
async def charging(run: Run[Deps], name: str) -> list[str]:
    """Something that is under way for a while."""
    return [await run.call(charge, f"{name} {number}") for number in range(1, 4)]
