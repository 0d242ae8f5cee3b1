"""The application under the workers that are killed while they take back what was charged."""

from datetime import timedelta

from pydantic import BaseModel

from outlive import DidNotHappen, Happened, Operation, Outlive, Run, Unclear
from tests.kills.agents import SOON, Deps, armed, open_deps, post, reached
from tests.kills.freezing import freeze

app: Outlive[Deps] = Outlive(deps=open_deps)


class Order(BaseModel):
    """Which invoices are charged, in order; those of `mails` are told of besides."""

    invoices: list[str]


async def give_back(op: Operation[Deps]) -> None:
    body = {"charge_id": op.original.outcome}
    answer = await op.deps.bank.post("/refunds", json=body, headers={"Idempotency-Key": op.key})
    answer.raise_for_status()


async def was_given_back(op: Operation[Deps]) -> Happened[None] | DidNotHappen | Unclear:
    answer = await op.deps.bank.get("/charges", params={"key": op.key})
    if answer.status_code == 404:
        return DidNotHappen()
    return Happened(None) if answer.is_success else Unclear(str(answer.status_code))


@app.tool(effect="external", reconcile=was_given_back, settle_after=SOON, timeout=timedelta(seconds=2))
async def refund(op: Operation[Deps]) -> None:
    if armed("hang before refund"):
        reached("hang before refund")
        freeze()
    await give_back(op)


@app.tool(effect="idempotent", timeout=timedelta(seconds=20))
async def refund_deduped(op: Operation[Deps]) -> None:
    await give_back(op)


async def refund_blindly(op: Operation[Deps]) -> None:
    await give_back(op)


@app.tool(compensate=refund, settle_after=SOON, timeout=timedelta(seconds=3))
async def charge(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


@app.tool(compensate=refund_deduped, settle_after=SOON, timeout=timedelta(seconds=3))
async def charge_deduped(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


@app.tool(compensate=refund_blindly, settle_after=SOON, timeout=timedelta(seconds=3))
async def charge_blindly(op: Operation[Deps], invoice: str) -> str:
    return await post(op, op.deps.bank, invoice)


TOOLS = {"D": charge_deduped, "X": charge_blindly}


@app.agent()
async def selling(run: Run[Deps], order: Order) -> list[str]:
    """Charge each invoice; its first letter says how it can be taken back."""
    return [await run.call(TOOLS.get(invoice[0], charge), invoice) for invoice in order.invoices]


@app.agent(on_failure="rollback")
async def failing(run: Run[Deps], order: Order) -> list[str]:
    for invoice in order.invoices:
        await run.call(TOOLS.get(invoice[0], charge), invoice)
    raise LookupError("out of stock")
