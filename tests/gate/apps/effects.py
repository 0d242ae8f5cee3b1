"""An agent that acts once, and then waits for a day."""

from datetime import timedelta

from outlive import Operation, Outlive, Run

app: Outlive[None] = Outlive()
OUTCOMES = {"act": '"found"'}


@app.tool()
async def act(op: Operation[None], what: str) -> str:
    return f"{what} is done"


async def count(text: str) -> int:
    return len(text)


@app.agent()
async def acts(run: Run[None], what: str) -> str:
    await run.step(count, what)
    done = await run.call(act, what)
    await run.sleep(timedelta(days=1))
    return f"{done} {await run.step(count, done)}"
