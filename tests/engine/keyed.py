"""A bank that charges invoices under business keys: what the tests of those play, on either store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from outlive import DidNotHappen, Happened, NotSent, Operation, Outlive, Retry, Run, Unclear
from outlive.app.decide import Word, resolve
from outlive.engine.control import Control
from outlive.engine.worker import Worker, owner_name
from outlive.model.business import KeyFilter, KeyRow
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import OperationRow
from tests.engine.rig import Rig

Hook = Callable[[Operation[None]], Awaitable[object]]
Body = Callable[[Run[None], str], Awaitable[object]]
HOUR = timedelta(hours=1)


class Declined(Exception):
    """The card was declined."""


@dataclass
class Bank:
    """What was really charged, with the keys that it was told, and what happens at the next call."""

    charged: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    hook: Hook | None = None
    answer: Happened[str] | DidNotHappen | Unclear = field(default_factory=lambda: Unclear("not now"))
    bodies: dict[str, Body] = field(default_factory=dict)
    evaluated: int = 0


bank = Bank()


def reset() -> None:
    """A new bank."""
    bank.__dict__.update(vars(Bank()))


app: Outlive[None] = Outlive()


def invoice_key(invoice: str) -> str:
    """One charge for each invoice."""
    bank.evaluated += 1
    return f"charge/{invoice}"


async def look_up(op: Operation[None]) -> Happened[str] | DidNotHappen | Unclear:
    return bank.answer


async def refund(op: Operation[None]) -> None:
    bank.undone.append(str(op.original.arguments["invoice"]))


async def _charge(op: Operation[None], invoice: str) -> str:
    if bank.hook is not None and (answer := await bank.hook(op)) is not None:
        return cast(str, answer)
    bank.charged.append(invoice)
    bank.keys.append(op.key)
    return f"receipt of {invoice}"


RETRY = Retry(attempts=2, first=timedelta(seconds=5))


@app.tool(key=invoice_key, compensate=refund, raises=(Declined,), retry=RETRY)
async def charge(op: Operation[None], invoice: str, cents: int) -> str:
    return await _charge(op, invoice)


@app.tool(
    key=invoice_key, reconcile=look_up, settle_after=timedelta(seconds=1), timeout=timedelta(seconds=9), retry=RETRY
)
async def asked(op: Operation[None], invoice: str) -> str:
    return await _charge(op, invoice)


@app.tool(effect="idempotent", key=invoice_key, retry=RETRY)
async def deduped(op: Operation[None], invoice: str) -> str:
    return await _charge(op, invoice)


@app.tool(effect="transactional", key=invoice_key, raises=(Declined,), retry=RETRY)
async def booked(op: Operation[None], invoice: str) -> str:
    return await _charge(op, invoice)


@app.tool()
async def plain(op: Operation[None], invoice: str) -> str:
    return await _charge(op, invoice)


@app.tool(effect="read")
async def look(op: Operation[None], invoice: str) -> str:
    return ""


@app.agent()
async def clerk(run: Run[None], name: str) -> str:
    body = bank.bodies.get(name) or bank.bodies["*"]
    return str(await body(run, name))


async def pays(run: Run[None], name: str) -> object:
    """Charges the same invoice, whoever does."""
    return await run.call(charge, "INV-7", 4200)


def calls(tool: Any, invoice: str = "INV-7") -> Body:
    """A body that calls this tool once."""

    async def body(run: Run[None], name: str) -> object:
        return await run.call(tool, invoice)

    return body


async def lost(op: Operation[None]) -> object:
    """It has acted, and nobody knows."""
    bank.charged.append(str(op.arguments["invoice"]))
    raise ConnectionResetError("the answer was lost")


async def not_sent(op: Operation[None]) -> object:
    raise NotSent("the bank is closed")


def refuses(times: int) -> Hook:
    """It is not sent so many times."""
    left = [None] * times

    async def hook(op: Operation[None]) -> object:
        return await not_sent(op) if left and left.pop() is None else None

    return hook


async def declined(op: Operation[None]) -> object:
    raise Declined("no money")


async def later(op: Operation[None]) -> object:
    return op.pending(until=HOUR)


async def begin(rig: Rig, *runs: str, body: Body = pays) -> Worker:
    """Start runs that do this, and give a worker; nothing is driven yet."""
    bank.bodies.setdefault("*", body)
    for id in runs:
        bank.bodies[id] = body
        await rig.app(app).start(clerk, id, id=id)
    return rig.worker(rig.app(app))


async def key(rig: Rig) -> KeyRow:
    """The only business key there is."""
    (row,) = await rig.store.business_keys(DEFAULT_TENANT, KeyFilter())
    return row


async def operation(rig: Rig, run: str) -> OperationRow:
    """The only operation of a run."""
    (row,) = await rig.operations(run)
    return row


async def decide(rig: Rig, run: str, word: Word, outcome: str | None = None) -> None:
    """A person says what became of the run's only operation."""
    row = await operation(rig, run)
    control = Control(rig.store, rig.clock, owner_name(rig.clock))
    await resolve(
        control, app.registry, DEFAULT_TENANT, RunId(run), row.id, word, who="ada", why="she looked", outcome=outcome
    )  # fmt: skip


async def crash_in_flight(rig: Rig) -> None:
    """A worker dies while its call of a tool is in flight; what is begun before is driven."""
    in_flight = asyncio.Event()

    async def hangs(op: Operation[None]) -> object:
        bank.charged.append(str(op.arguments["invoice"]))
        in_flight.set()
        await asyncio.Event().wait()
        return "never"

    bank.hook = hangs
    await rig.crash(rig.mortal(rig.app(app)), in_flight)
    bank.hook = None


# What a deploy has made of it.
deployed: Outlive[None] = Outlive()


def new_key(invoice: str) -> str:
    """Another text than before for the same invoice."""
    return f"new/{invoice}"


@deployed.tool(name="asked", key=new_key, retry=RETRY)
async def asked_anew(op: Operation[None], invoice: str) -> str:
    return await _charge(op, invoice)


@deployed.tool(key=invoice_key)
async def settle(op: Operation[None], invoice: str, cents: int) -> str:
    return await _charge(op, invoice)


@deployed.agent(name="clerk", renamed={"charge": "settle"})
async def clerk_anew(run: Run[None], name: str) -> str:
    return str(await bank.bodies[name](run, name))
