"""Writes to customers: an idempotent tool in a plain `def`, several at once in scopes named by customer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from outlive import NotDigested, Operation, Retry, Run
from tests.typing.shop.app import app
from tests.typing.shop.deps import Deps


@dataclass(frozen=True)
class Mailing:
    text: str
    customers: tuple[str, ...]


@app.tool(effect="idempotent", dedupes_for=timedelta(hours=12), retry=Retry(attempts=4, first=timedelta(seconds=2)))
def write_to(op: Operation[Deps], customer: str, text: Annotated[str, NotDigested]) -> str:
    return op.deps.post.send(customer, text, key=op.key)


def greeting(customer: str, text: str) -> str:
    return f"Dear {customer}, {text}"


@app.agent()
async def newsletter(run: Run[Deps], mailing: Mailing) -> dict[str, str]:
    async def one(customer: str) -> str:
        text = await run.step(greeting, customer, mailing.text)
        return await run.call(write_to, customer, text)

    sent: list[str] = await run.map(one, mailing.customers, key=str, limit=4)
    return dict(zip(mailing.customers, sent, strict=True))
