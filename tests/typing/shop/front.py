"""The shop's own program: starts runs, asks for them, waits for what they give."""

from __future__ import annotations

from datetime import date, timedelta

from outlive import Agent, Handle, Operation, sync
from outlive.errors import RunFailed, TimedOut
from outlive.events import Event
from tests.typing.shop.app import app
from tests.typing.shop.closing import close_till
from tests.typing.shop.deps import Deps
from tests.typing.shop.letters import Mailing, newsletter
from tests.typing.shop.orders import Confirmation, Order, purchase
from tests.typing.shop.quotes import quote
from tests.typing.shop.returns import take_back
from tests.typing.shop.stock import shelf, stocktake


async def serve() -> None:
    """Drive runs in this process, beside the code that starts them."""
    async with app, app.worker(concurrency=20):
        await morning()


async def morning() -> str:
    order = Order(isbn="978-0-13", copies=2)
    bought: Handle[Confirmation | None] = await app.start(purchase, order, id="order-17", priority=5)
    counted = await app.start(stocktake, ["A", "B"], deadline=timedelta(hours=2), labels={"shift": "early"})
    mailing = Mailing("we are open again.", ("Ada", "Bob"))
    letters: dict[str, str] = await (await app.start(newsletter, mailing)).result()
    price = await (await app.start(quote, 3)).result(timeout=timedelta(minutes=1))
    try:
        confirmation = await bought.result(timeout=timedelta(minutes=1))
    except (RunFailed, TimedOut):
        confirmation = await app.handle(purchase, bought.id).result()
    closing: Handle[None] = await app.start(close_till, date(2026, 3, 1))
    await closing.result()
    text: str = await counted.result()
    number = confirmation.number if confirmation is not None else "nothing"
    return f"{number}; {text}; {len(letters)} letters; {price.normalize()}; {await counted.status()}"


async def follow(order: Order, seen: str | None) -> list[Event]:
    """From where somebody else has stopped, with a word to the run on the way."""
    handle = app.handle(purchase, "order-17")
    await handle.send("changes", order, key="change-1")
    events = [event async for event in handle.events(after=seen)]
    for event in events:
        if event.name == "run.asked":
            await handle.answer(str(event.data["id"]), True, who="ada")
    return events


def from_a_script(order: Order) -> Confirmation | None:
    """The same runs for code that does not await."""
    with sync.Client(app) as client:
        handle: sync.Handle[Confirmation | None] = client.start(purchase, order, id="order-18")
        handle.send("changes", order, key="change-1")
        return client.handle(purchase, handle.id).result(timeout=timedelta(minutes=1))


async def weigh_each(parcels: list[str], *, by: Agent[str, object] = take_back) -> list[object]:
    """An agent serves where any result will do; so does its handle."""
    handles: list[Handle[object]] = [await app.start(by, parcel) for parcel in parcels]
    return [await handle.result() for handle in handles]


async def check_a_tool(op: Operation[Deps]) -> list[str]:
    """The body of a tool alone, as a test would call it."""
    return await shelf.test(op, "A")
