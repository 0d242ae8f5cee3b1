"""The application of the approvals: it pays only what somebody has agreed to. One module that is two releases.

By the variable RELEASE the bad one asks for another approval, calls its tool by another name, or pays another sum.
Who has the role *finance* stands in a file of the scene; where there is none, everybody has it.
"""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from outlive import Operation, Outlive, Run
from outlive.approvals import Approval
from outlive.errors import Rejected
from tests.kills.agents import SOON, Deps, armed, find, open_deps, post, reached
from tests.kills.freezing import freeze

HOUR = timedelta(hours=1)
FINANCE = Approval(role="finance", expires=HOUR)
DIRECTORY = "who has the role finance"


def bad() -> bool:
    return os.environ.get("RELEASE") == "bad"


async def directory(who: str) -> set[str]:
    """Asked before each vote that comes through the application, and just before an approval is used."""
    if armed("hang before use"):
        reached("hang before use")
        await asyncio.Event().wait()
    if armed("stop before use"):
        freeze()
    known = Path(os.environ["POINTS"]) / DIRECTORY
    return {"finance"} if not known.exists() or who in json.loads(known.read_text()) else set()


app: Outlive[Deps] = Outlive(deps=open_deps, roles=directory)


def changing(invoice: str) -> Approval:
    """What is asked for differs between the releases, for some."""
    return Approval(role="board", expires=HOUR) if bad() and invoice.startswith("rule") else FINANCE


@app.tool(effect="external", reconcile=find, settle_after=SOON, timeout=timedelta(seconds=2), approval=changing)
async def checked(op: Operation[Deps], invoice: str) -> str:
    if armed("hang before send"):
        reached("hang before send")
        await asyncio.Event().wait()
    return await post(op, op.deps.bank, invoice)


@app.tool(effect="external", settle_after=SOON, timeout=timedelta(seconds=3), approval=FINANCE)
async def unseen(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


BOTH_OF_TWO = Approval(role="finance", quorum=2, expires=HOUR)


@app.tool(effect="external", settle_after=SOON, timeout=timedelta(seconds=20), approval=BOTH_OF_TWO)
async def agreed(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


BRIEFLY = Approval(role="finance", expires=timedelta(seconds=3))


@app.tool(effect="external", settle_after=SOON, timeout=timedelta(seconds=20), approval=BRIEFLY)
async def hurried(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


@app.tool(
    name="remit" if bad() else "pay", effect="external", settle_after=SOON, timeout=timedelta(seconds=20),
    approval=FINANCE,
)  # fmt: skip
async def renamed(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


TOOLS = {"checked": checked, "unseen": unseen, "agreed": agreed, "hurried": hurried, "renamed": renamed}


class Payment(BaseModel):
    tool: str
    invoice: str


@app.agent()
async def consenting(run: Run[Deps], payment: Payment) -> str:
    other = bad() and payment.invoice.startswith("argument")
    try:
        return await run.call(TOOLS[payment.tool], f"{payment.invoice}{' and more' if other else ''}")
    except Rejected as rejected:
        return f"rejected: {rejected.reason}"
