"""One agent in two releases: the second, by the variable RELEASE, does not ask for one of the steps any more."""

import os

from outlive import Operation, Outlive, Run

app: Outlive[None] = Outlive()


@app.tool(effect="external")
async def deliver(op: Operation[None], item: str) -> None:
    raise ConnectionError("the answer was lost")


def pack(item: str) -> str:
    return f"{item} in a box"


def greet(item: str) -> str:
    return f"enjoy {item}"


@app.agent(version=os.environ.get("RELEASE", "1"), pin=True)
async def ship(run: Run[None], item: str) -> str:
    packed = await run.step(pack, item)
    if os.environ.get("RELEASE") != "2":
        await run.step(greet, item)
    await run.call(deliver, packed)
    return packed
