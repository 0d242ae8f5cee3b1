"""The application under the workers that are killed: one agent, and a tool of each effect that goes to the bank.

A test arms a point of the code by making a file of its name; the first worker that comes by takes the file and does
what it says, exactly there.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
from pydantic import BaseModel

from outlive import DidNotHappen, Happened, Operation, Outlive, Run, Unclear
from outlive.errors import Abandoned
from outlive.http import GuardedTransport
from tests.kills.freezing import freeze


@dataclass
class Deps:
    bank: httpx.AsyncClient
    unguarded: httpx.AsyncClient


@asynccontextmanager
async def open_deps() -> AsyncIterator[Deps]:
    url = os.environ["BANK_URL"]
    async with (
        httpx.AsyncClient(base_url=url, transport=GuardedTransport(), timeout=20) as guarded,
        httpx.AsyncClient(base_url=url, transport=httpx.AsyncHTTPTransport(), timeout=20) as unguarded,
    ):
        yield Deps(guarded, unguarded)


app: Outlive[Deps] = Outlive(deps=open_deps)


class Order(BaseModel):
    """What one run does: pay the first invoice through one tool, the others through another, then a step."""

    first: str
    others: str
    invoices: list[str]


def armed(point: str) -> bool:
    try:
        os.unlink(Path(os.environ["POINTS"]) / point)
    except FileNotFoundError:
        return False
    return True


def reached(point: str) -> None:
    (Path(os.environ["POINTS"]) / f"reached {point}").touch()


async def post(op: Operation[Deps], client: httpx.AsyncClient, invoice: str) -> str:
    body = {"invoice": invoice, "customer": "Karoo Wind Pumps", "cents": 900, "provider": "cardnet"}
    answer = await client.post("/charges", json=body, headers={"Idempotency-Key": op.key})
    answer.raise_for_status()
    return str(answer.json()["charge_id"])


async def find(op: Operation[Deps]) -> Happened[str] | DidNotHappen | Unclear:
    answer = await op.deps.bank.get("/charges", params={"key": op.key})
    if answer.status_code == 404:
        return DidNotHappen()
    return Happened(answer.json()["charge_id"]) if answer.is_success else Unclear(str(answer.status_code))


SOON = timedelta(milliseconds=300)


@app.tool(effect="external", reconcile=find, settle_after=SOON, timeout=timedelta(seconds=2))
async def looked_up(op: Operation[Deps], invoice: str) -> str:
    if armed("hang before send"):
        reached("hang before send")
        await asyncio.Event().wait()
    return await post(op, op.deps.bank, invoice)


@app.tool(effect="external", settle_after=SOON, timeout=timedelta(seconds=3))
async def blind(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


@app.tool(effect="external", settle_after=SOON, timeout=timedelta(minutes=10))
async def far_away(op: Operation[Deps], invoice: str) -> str:
    """A request of which nobody can know for long whether it will still arrive."""
    return await post(op, op.deps.bank, invoice)


@app.tool(effect="idempotent", timeout=timedelta(seconds=20))
async def deduped(op: Operation[Deps], invoice: str) -> str:
    if armed("stop after guard"):
        op.guard()
        freeze()
    return await post(op, op.deps.unguarded, invoice)


@app.tool(effect="external", reconcile=find, settle_after=SOON, timeout=timedelta(seconds=20))
async def patient(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


@app.tool(effect="external", reconcile=find, settle_after=SOON, timeout=timedelta(milliseconds=700))
async def stopping(op: Operation[Deps], invoice: str) -> str:
    """Stops its own process on one side or the other of the guard. Behind it, it insists on its answer."""
    if armed("stop before guard"):
        freeze()
    if armed("stop after guard"):
        op.guard()
        freeze()
        sent = asyncio.ensure_future(post(op, op.deps.unguarded, invoice))
        with suppress(asyncio.CancelledError):
            await asyncio.shield(sent)
        return await sent
    return await post(op, op.deps.bank, invoice)


@app.tool(effect="external", timeout=timedelta(seconds=5))
async def secretive(op: Operation[Deps], invoice: str) -> str:
    """Says its secret wherever something is written down."""
    token = await op.secret("bank/token")
    op.log.warning("the token is %s", token)
    await op.note(token=token)
    charge = await post(op, op.deps.bank, invoice)
    return f"{charge} with {token}"


@app.tool(effect="external", settle_after=SOON, timeout=timedelta(seconds=5))
async def taken_on(op: Operation[Deps], invoice: str) -> str:
    """The bank has taken it on; what became of it, somebody tells later."""
    await post(op, op.deps.bank, invoice)
    return op.pending(until=timedelta(minutes=10))


def invoice_key(invoice: str) -> str:
    return f"once/{invoice}"


@app.tool(effect="external", reconcile=find, settle_after=SOON, timeout=timedelta(seconds=5), key=invoice_key)
async def once(op: Operation[Deps], invoice: str) -> str:
    """Whichever run it is that pays the invoice."""
    return await post(op, op.deps.bank, invoice)


TOOLS = {
    tool.name: tool for tool in (looked_up, patient, blind, far_away, deduped, stopping, secretive, taken_on, once)
}  # fmt: skip


async def afterwards(invoice: str) -> str:
    if armed("stick"):
        reached("stick")
        threading.Event().wait()
    return invoice


@app.agent()
async def paying(run: Run[Deps], order: Order) -> list[str]:
    charges: list[str] = []
    for invoice in order.invoices:
        tool = TOOLS[order.others if charges else order.first]
        try:
            charges.append(await run.call(tool, invoice))
        except Abandoned:
            charges.append("abandoned")
    await run.step(afterwards, order.invoices[0])
    return charges
