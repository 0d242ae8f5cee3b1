"""Another application on the same store: its worker serves nothing of what is killed here."""

from outlive import Outlive, Run

app: Outlive[None] = Outlive()


@app.agent()
async def standing_by(run: Run[None], n: int) -> int:
    return n
