"""The agent: it writes a report section by section, and a person decides whether it is published."""

from pydantic import BaseModel, Field

from examples.web.app import app
from outlive import Run
from outlive.events import stream


class Order(BaseModel):
    """What a report is ordered with."""

    topic: str
    sections: int = Field(default=3, ge=1, le=100)


class Section(BaseModel):
    """Told as soon as it is written."""

    number: int
    text: str


class Published(BaseModel):
    """Told once a person has said yes."""

    by: str


class Verdict(BaseModel):
    """What a person answers."""

    publish: bool
    who: str


def written(topic: str, number: int) -> str:
    """Where a model would be asked; what it has said until now is shown at once."""
    text = ""
    for word in (f"{topic}, ", "section ", str(number)):
        stream(word)
        text += word
    return text


@app.agent()
async def report(run: Run[None], order: Order) -> str:
    for number in range(1, order.sections + 1):
        text = await run.step(written, order.topic, number)
        await run.emit("section", Section(number=number, text=text))
    verdict = await run.ask(f"Publish the report on {order.topic}?", Verdict, role="editor")
    if not verdict.publish:
        return "withheld"
    await run.emit("published", Published(by=verdict.who))
    return "published"
