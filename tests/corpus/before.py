"""What agents of the corpus were in a release before."""

from datetime import timedelta

from pydantic import BaseModel

from outlive import Outlive, Run
from tests.corpus.deck import World

app: Outlive[World] = Outlive()


class Cents(BaseModel):
    cents: int = 0


@app.agent(version="1")
async def saves(run: Run[World], input: str) -> str:
    async for purse in run.turns(Cents()):
        purse.cents += 250
        if purse.cents > 1000:
            return f"{purse.cents} cents"
        await run.sleep(timedelta(days=1))
    return "never"
