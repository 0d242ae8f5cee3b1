"""The agent: charges the overdue invoices of a region, each once, however often the worker under it dies."""

import json
from datetime import timedelta
from pathlib import Path

import httpx
from pydantic import BaseModel

from examples.dunning.app import Deps, app
from outlive import DidNotHappen, Happened, NotSent, Operation, Run, Unclear
from outlive.approvals import Approval
from outlive.errors import Abandoned, Rejected, ToolFailed

# Above this somebody of finance has to agree.
LARGE_CENTS = 250_000
INVOICES = Path(__file__).with_name("invoices.json")


class Invoice(BaseModel):
    """One line of invoices.json."""

    id: str
    customer: str
    region: str
    cents: int
    provider: str
    card: str


class Receipt(BaseModel):
    """What the bank says that it did."""

    charge_id: str
    cents: int


class Summary(BaseModel):
    """What became of a region's invoices; given up are those that the bank never took, or that a person abandoned.

    Rejected are those that needed an approval, and did not get it.
    """

    region: str
    charged: int = 0
    cents: int = 0
    declined: list[str] = []
    given_up: list[str] = []
    rejected: list[str] = []


class CardDeclined(Exception):
    """The bank said no: an outcome like any other, not a failure."""


@app.tool(effect="read")
def overdue(op: Operation[Deps], region: str) -> list[Invoice]:
    every = [Invoice.model_validate(one) for one in json.loads(INVOICES.read_text("utf-8"))]
    return [invoice for invoice in every if invoice.region == region]


def large(cents: int) -> Approval | None:
    """One invoice of the sixty is so large."""
    return Approval(role="finance", expires=timedelta(hours=1)) if cents > LARGE_CENTS else None


async def find_charge(op: Operation[Deps]) -> Happened[Receipt] | DidNotHappen | Unclear:
    """Asked when a worker died, or an answer was lost, between sending a charge and recording it."""
    answer = await op.deps.bank.get("/charges", params={"key": op.key})
    if answer.status_code == 404:
        return DidNotHappen()
    if answer.is_success:
        return Happened(Receipt.model_validate_json(answer.content))
    return Unclear(f"the bank answered {answer.status_code}")


@app.tool(
    effect="external",
    reconcile=find_charge,
    settle_after=timedelta(seconds=5),
    timeout=timedelta(seconds=3),
    raises=(CardDeclined,),
    not_sent=(httpx.ConnectError,),
    approval=large,
)
async def charge(op: Operation[Deps], invoice: str, customer: str, cents: int, card: str) -> Receipt:
    return await send_charge(op, "cardnet", invoice, customer, cents, card)


@app.tool(
    effect="external",
    settle_after=timedelta(seconds=5),
    timeout=timedelta(seconds=3),
    raises=(CardDeclined,),
    not_sent=(httpx.ConnectError,),
)
async def charge_blind(op: Operation[Deps], invoice: str, customer: str, cents: int, card: str) -> Receipt:
    """Through a provider that cannot be asked afterwards: what is in doubt here, a person decides."""
    return await send_charge(op, "blindpay", invoice, customer, cents, card)


async def send_charge(
    op: Operation[Deps], provider: str, invoice: str, customer: str, cents: int, card: str
) -> Receipt:
    body = {"invoice": invoice, "customer": customer, "cents": cents, "provider": provider, "card": card}
    headers = {"Idempotency-Key": op.key, "X-Not-After": str(op.not_after)}
    answer = await op.deps.bank.post("/charges", json=body, headers=headers)
    if answer.status_code == 402:
        raise CardDeclined(invoice)
    if answer.status_code in (409, 503):
        raise NotSent(f"the bank refused before acting: {answer.status_code}")
    answer.raise_for_status()
    return Receipt.model_validate_json(answer.content)


@app.agent()
async def dunning(run: Run[Deps], region: str) -> Summary:
    summary = Summary(region=region)
    for invoice in await run.call(overdue, region):
        tool = charge_blind if invoice.provider == "blindpay" else charge
        try:
            receipt = await run.call(tool, invoice.id, invoice.customer, invoice.cents, invoice.card)
        except CardDeclined:
            summary.declined.append(invoice.id)
        except Rejected:
            summary.rejected.append(invoice.id)
        except (Abandoned, ToolFailed):
            summary.given_up.append(invoice.id)
        else:
            summary.charged += 1
            summary.cents += receipt.cents
    return summary
