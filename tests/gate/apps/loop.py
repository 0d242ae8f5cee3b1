"""An agent with a loop of turns: two calls before it, three calls and a day's wait in each turn, one call after it."""

from datetime import timedelta

from pydantic import BaseModel

from outlive import Operation, Outlive, Run

app: Outlive[None] = Outlive()
OUTCOMES = {"bill": '"found"'}
DAY = timedelta(days=1)


class State(BaseModel):
    left: int
    sent: list[str] = []


async def rate(customer: str) -> int:
    return len(customer)


async def weigh(number: int) -> int:
    return number * 10


async def check(number: int) -> bool:
    return number > 0


@app.tool(effect="idempotent")
async def open_account(op: Operation[None], customer: str) -> str:
    return f"account of {customer}"


@app.tool(effect="idempotent")
async def close_account(op: Operation[None], account: str) -> str:
    return f"{account} is closed"


@app.tool()
async def bill(op: Operation[None], account: str, cents: int) -> str:
    return f"{account}: {cents}"


@app.agent()
async def bills(run: Run[None], customer: str) -> str:
    cents = await run.step(rate, customer)
    account = await run.call(open_account, customer)
    async for state in run.turns(State(left=4)):
        if not state.left:
            break
        weight = await run.step(weigh, state.left)
        state.sent.append(await run.call(bill, account, cents + weight))
        await run.sleep(DAY)
        await run.step(check, weight)
        state.left -= 1
    closed = await run.call(close_account, account)
    return f"{closed}: {', '.join(state.sent)}"
