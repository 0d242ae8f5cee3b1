"""An agent that does several things at once: a gather, a map, and what comes first; a day's wait behind each."""

from datetime import timedelta

from outlive import Operation, Outlive, Run

app: Outlive[None] = Outlive()
OUTCOMES = {"buy": '"found"'}
DAY = timedelta(days=1)
ITEMS = ["pen", "ink", "paper"]


async def weigh(item: str) -> int:
    return len(item)


async def price(item: str) -> int:
    return 10 * len(item)


async def check(item: str) -> bool:
    return item != ""


@app.tool()
async def buy(op: Operation[None], item: str, cents: int) -> str:
    return f"{item} for {cents}"


@app.tool(effect="idempotent")
async def announce(op: Operation[None], item: str) -> str:
    return f"{item} is announced"


async def bought(run: Run[None], item: str) -> str:
    await run.step(weigh, item)
    cents = await run.step(price, item)
    return await run.call(buy, item, cents)


@app.agent()
async def shops(run: Run[None], customer: str) -> str:
    first, second = await run.gather(bought(run, "cup"), run.call(announce, customer))
    await run.sleep(DAY)

    async def one(item: str) -> str:
        return await bought(run, item)

    more = await run.map(one, ITEMS, key=str)
    await run.sleep(DAY)
    name, _ = await run.first(quick=run.step(weigh, customer), slow=run.sleep(DAY))
    await run.sleep(DAY)
    return f"{first} {second} {len(more)} {name}"
