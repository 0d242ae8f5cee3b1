"""An agent of a shop, one call after another: two steps, a charge, a day's wait, two more calls."""

from datetime import timedelta

from pydantic import BaseModel

from outlive import Operation, Outlive, Run

app: Outlive[None] = Outlive()
DAY = timedelta(days=1)
OUTCOMES = {"charge": '{"number": "found"}'}


class Price(BaseModel):
    cents: int


class Receipt(BaseModel):
    number: str


class CardDeclined(Exception):
    """The bank said no."""


async def look_up(customer: str) -> str:
    return f"{customer} Lovelace"


async def quote(customer: str, items: int) -> Price:
    return Price(cents=items * 100 + len(customer))


async def write_down(text: str) -> int:
    return len(text)


async def greet(customer: str) -> str:
    return f"Dear {customer}"


@app.tool(raises=(CardDeclined,))
async def charge(op: Operation[None], customer: str, cents: int) -> Receipt:
    return Receipt(number=f"{customer}/{cents}")


@app.tool(effect="idempotent")
async def ship(op: Operation[None], customer: str) -> str:
    return f"parcel to {customer}"


@app.tool(effect="idempotent")
async def thank(op: Operation[None], customer: str) -> str:
    return f"letter to {customer}"


@app.agent()
async def order(run: Run[None], customer: str) -> str:
    name = await run.step(look_up, customer)
    price = await run.step(quote, name, 3)
    receipt = await run.call(charge, name, price.cents)
    await run.sleep(DAY)
    parcel = await run.call(ship, name)
    await run.step(write_down, parcel)
    return f"{receipt.number}, {parcel}"
