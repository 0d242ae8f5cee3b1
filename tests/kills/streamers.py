"""An agent whose step streams what it has until now, and goes on when a test says so."""

import os
from pathlib import Path

from pydantic import BaseModel

from outlive import Outlive, Run
from outlive.events import stream
from tests.kills.waiting import until

app: Outlive[None] = Outlive()
POINTS = "POINTS"


class Section(BaseModel):
    text: str


async def write(topic: str) -> str:
    """The first that writes is killed when it has streamed; the second goes on when it is told to."""
    again = _touched("begun")
    stream("a whole " if again else "half a ")

    async def look() -> bool:
        return (Path(os.environ[POINTS]) / "go on").exists()

    await until(look, "told to go on", within=50)
    return f"a section on {topic}"


def _touched(name: str) -> bool:
    path = Path(os.environ[POINTS]) / name
    there = path.exists()
    path.touch()
    return there


@app.agent()
async def writes(run: Run[None], topic: str) -> str:
    text = await run.step(write, topic)
    await run.emit("section", Section(text=text))
    return text
