"""A small application with an agent for each way a run can go. `AGENTS_APP_DIR` is where its tools leave traces."""

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import BaseModel

from outlive import NotSent, Operation, Outlive, Retry, Run
from outlive.approvals import Approval

app: Outlive[None] = Outlive()
number = 5


class Order(BaseModel):
    item: str
    count: int = 1


class Receipt(BaseModel):
    id: str


def place() -> Path:
    return Path(os.environ["AGENTS_APP_DIR"])


@app.tool(effect="external")
async def pay(op: Operation[None], cents: int) -> Receipt:
    """Acts, then loses the answer: in doubt, nobody can look it up, and a request may be on its way for minutes."""
    with (place() / "paid").open("a") as file:
        file.write("x")
    raise ConnectionError("the answer was lost")


async def unbook(op: Operation[None]) -> None:
    """Refuses as long as the shop is shut."""
    if (place() / "shut").exists():
        raise NotSent("the shop is shut")
    with (place() / "booked").open("a") as file:
        file.write(f"{op.original.outcome} is free again\n")


@app.tool(effect="idempotent", compensate=unbook, retry=Retry(attempts=1))
async def book(op: Operation[None], seat: str) -> str:
    with (place() / "booked").open("a") as file:
        file.write(f"{seat}\n")
    return f"seat {seat}"


@app.tool(effect="idempotent")
async def tell(op: Operation[None], seat: str) -> str:
    return f"told of {seat}"


@app.agent()
async def travel(run: Run[None], seat: str) -> str:
    await run.call(book, seat)
    return await run.call(tell, seat)


@app.tool(effect="external")
def hold_thread(op: Operation[None]) -> None:
    """Sits in a thread that never returns."""
    print("holding", flush=True)
    threading.Event().wait()


def shout(line: str) -> str:
    return line.upper()


def pass_gate(name: str) -> str:
    """Waits until the test opens the gate, a named pipe."""
    print("at the gate", flush=True)
    os.close(os.open(place() / "gate", os.O_RDONLY))
    return name


@app.agent()
async def greet(run: Run[None], name: str) -> str:
    return "hello " + await run.step(shout, name)


@app.agent()
async def order(run: Run[None], order: Order) -> list[Order]:
    return [order] * order.count


@app.agent()
async def buy(run: Run[None], cents: int) -> str:
    receipt = await run.call(pay, cents)
    return receipt.id


@app.tool(approval=Approval(role="finance"))
async def transfer(op: Operation[None], cents: int) -> str:
    with (place() / "transferred").open("a") as traces:
        traces.write(f"{cents}\n")
    return f"transferred {cents}"


@app.agent()
async def send(run: Run[None], cents: int) -> str:
    return await run.call(transfer, cents)


@app.agent()
async def twice(run: Run[None], cents: int) -> None:
    await run.gather(run.call(pay, cents), run.call(pay, cents + 1))


@app.agent()
async def fail(run: Run[None], input: None) -> None:
    raise ValueError("out of stock")


@app.agent()
async def wait(run: Run[None], name: str) -> str:
    said = await run.step(shout, name)
    return said + await run.step(pass_gate, name)


@app.agent()
async def hold(run: Run[None], input: None) -> None:
    await run.call(hold_thread)


@asynccontextmanager
async def closed_shop() -> AsyncIterator[None]:
    if place().exists():
        raise ConnectionRefusedError("the shop is closed")
    yield


unlucky: Outlive[None] = Outlive(deps=closed_shop)


@unlucky.agent(name="greet")
async def unlucky_greet(run: Run[None], name: str) -> str:
    return name


@app.agent()
async def sells(run: Run[None], item: str) -> str:
    """Asks before it waits for an offer."""
    if not await run.ask(f"Sell {item}?", bool, role="owner"):
        return "kept"
    offer = await run.receive("offers", Order)
    return f"{offer.count} {offer.item} for {await run.ask('What price?', str, role='clerk')}"


def pay_key(invoice: str) -> str:
    return f"pay/{invoice}"


@app.tool(key=pay_key)
async def pay_once(op: Operation[None], invoice: str) -> str:
    return f"paid {invoice}"


@app.agent()
async def pays_once(run: Run[None], invoice: str) -> str:
    return await run.call(pay_once, invoice)
