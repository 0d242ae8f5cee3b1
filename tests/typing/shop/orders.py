"""Orders books: an external tool with a look-up, exceptions that are outcomes, and exceptions that say *not sent*."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from outlive import DidNotHappen, Happened, Operation, Retry, Run, Unclear
from outlive.errors import Abandoned, ToolFailed
from tests.typing.shop.app import app
from tests.typing.shop.deps import Deps


class Order(BaseModel):
    isbn: str
    copies: int


class Confirmation(BaseModel):
    number: str
    copies: int


class OutOfPrint(Exception):
    """The supplier will never have it."""


async def find_order(op: Operation[Deps]) -> Happened[Confirmation] | DidNotHappen | Unclear:
    reply = await op.deps.supplier.find(op.key)
    if reply.status == 404:
        return DidNotHappen(note="the supplier knows no such key")
    if reply.status != 200:
        return Unclear(f"the supplier answers {reply.status}")
    return Happened(Confirmation(number=reply.number, copies=int(str(op.arguments["copies"]))))


@app.tool(
    effect="external", reconcile=find_order, settle_after=timedelta(seconds=5), raises=(OutOfPrint,),
    not_sent=(ConnectionRefusedError,), timeout=timedelta(seconds=30), retry=Retry(attempts=3),
)  # fmt: skip
async def order_book(op: Operation[Deps], isbn: str, copies: int, *, express: bool = False) -> Confirmation:
    op.guard()
    reply = await op.deps.supplier.order(isbn, copies, key=op.key)
    await op.note(status=str(reply.status), express=str(express))
    if reply.status == 409:
        raise OutOfPrint(isbn)
    return Confirmation(number=reply.number, copies=copies)


@app.agent()
async def purchase(run: Run[Deps], order: Order) -> Confirmation | None:
    try:
        done = await run.call(order_book, order.isbn, order.copies, express=order.copies < 3)
    except OutOfPrint:
        run.log.info("out of print: %s", order.isbn)
        return None
    except (Abandoned, ToolFailed) as failed:
        run.log.warning("not ordered: %s (%s)", order.isbn, failed)
        return None
    patient = run.options(timeout=timedelta(minutes=2), retry=Retry(attempts=2, most=timedelta(seconds=10)))
    again: Confirmation = await patient.call(order_book, order.isbn, 1)
    return Confirmation(number=f"{done.number}+{again.number}", copies=done.copies + again.copies)
