"""The application: the folder, the ledger, the clerk. Constructing it does no I/O."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel
from pydantic_ai import Agent

from examples.clerk.ledger import Account, Ledger
from examples.clerk.offline import CLERK
from outlive import Operation, Outlive
from outlive.approvals import Approval
from outlive.errors import KeyConflict
from outlive.pydantic_ai import agent, toolset

INVOICES = Path(__file__).parent / "invoices"
LARGE_CENTS = 1_000_00


@dataclass
class Desk:
    """What the clerk works with."""

    invoices: Path
    ledger: Ledger


@asynccontextmanager
async def open_desk() -> AsyncIterator[Desk]:
    """Of a worker: the files that the environment names."""
    yield Desk(Path(os.environ.get("CLERK_INVOICES", INVOICES)), Ledger(Path(os.environ["CLERK_LEDGER"])))


app: Outlive[Desk] = Outlive(deps=open_desk)


class Report(BaseModel):
    """What the clerk gives: numbers of invoices."""

    booked: list[str]
    not_booked: list[str]


@app.tool(effect="read")
def list_invoices(op: Operation[Desk]) -> list[str]:
    """The files that have come in."""
    return sorted(one.name for one in op.deps.invoices.glob("*.txt"))


@app.tool(effect="read")
def read_invoice(op: Operation[Desk], file: str) -> str:
    """Read one of them."""
    known = {one.name: one for one in op.deps.invoices.glob("*.txt")}
    return known[file].read_text("utf-8") if file in known else f"there is no invoice {file}"


def large(cents: int) -> Approval | None:
    """Above this somebody of finance has to agree."""
    return Approval(role="finance", expires=timedelta(days=7)) if cents > LARGE_CENTS else None


def once(invoice: str, vendor: str) -> str:
    """An invoice of a vendor is booked once, however many copies of it there are, and by whatever run."""
    return f"invoice/{vendor}/{invoice}"


@app.tool(effect="idempotent", approval=large, key=once, raises=(KeyConflict,))
def book(op: Operation[Desk], invoice: str, vendor: str, cents: int, account: Account) -> str:
    """Book an invoice in the ledger.

    Args:
        invoice: its number, as the vendor gives it
        vendor: who is to be paid
        cents: the whole amount, in cents
        account: which account it belongs to
    """
    entry = op.deps.ledger.book(op.key, invoice, vendor, cents, account)
    return f"{entry.invoice} is entry {entry.number}: {entry.cents} cents"


clerk = Agent[Desk, Report](
    os.environ.get("CLERK_MODEL") or CLERK, name="clerk", deps_type=Desk, output_type=Report,
    toolsets=[toolset(list_invoices, read_invoice, book)], defer_model_check=True,
    instructions=(
        "Read every invoice that has come in and book it, once. Somebody may refuse what you want to book: do not try"
        " again then, and report it."
    ),
)  # fmt: skip

book_invoices = agent(app, clerk)
