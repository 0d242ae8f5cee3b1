"""An agent whose payment somebody of finance has to agree to."""

from datetime import timedelta

from outlive import Operation, Outlive, Run
from outlive.approvals import Approval

app: Outlive[None] = Outlive()
OUTCOMES = {"pay": '"paid, as was found"'}
DAY = timedelta(days=1)


async def count(text: str) -> int:
    return len(text)


@app.tool(approval=Approval(role="finance"))
async def pay(op: Operation[None], what: str, cents: int) -> str:
    return f"{what}: {cents}"


@app.agent()
async def pays(run: Run[None], what: str) -> str:
    length = await run.step(count, what)
    paid = await run.call(pay, what, length)
    await run.sleep(DAY)
    return f"{paid} {await run.step(count, paid)}"
