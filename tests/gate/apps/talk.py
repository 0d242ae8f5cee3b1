"""An agent that draws values, tells and is told: an event, a day's wait, a message, a question, a step."""

from datetime import timedelta

from pydantic import BaseModel

from outlive import Operation, Outlive, Run

app: Outlive[None] = Outlive()
MESSAGES = {"words": '{"text": "tea"}', "phrases": '{"text": "tea"}'}
ANSWERS = {"Shall we?": "true", "May we?": "true"}
DAY = timedelta(days=1)


class Word(BaseModel):
    text: str


class Begun(BaseModel):
    number: int


async def count(text: str) -> int:
    return len(text)


@app.tool(effect="idempotent")
async def send(op: Operation[None], text: str, sure: bool) -> str:
    return f"{text} {sure}"


@app.agent()
async def talks(run: Run[None], name: str) -> str:
    at = run.now()
    await run.emit("begun", Begun(number=1))
    await run.sleep(DAY)
    word = await run.receive("words", Word)
    sure = await run.ask("Shall we?", bool, role="boss")
    number = run.random()
    said = await run.call(send, word.text, sure)
    await run.sleep(DAY)
    await run.step(count, said)
    return f"{said} {at.year > 2000} {number < 1}"
