"""Ours: a step is `run.step`, an operation is a call of an *external* tool."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from bench.peers import speech
from outlive import Operation, Outlive, Run


class Answer(BaseModel):
    """What a step gives."""

    text: str
    tokens: int


class Plan(BaseModel):
    """So many calls of a kind, each with its line in the file."""

    steps: int
    file: str
    kind: str = "step"


class Heard(BaseModel):
    """Which of those that wait a run is."""

    file: str
    number: int


app: Outlive[None] = Outlive(speech.options()["store"])


async def compose(file: str, number: int) -> Answer:
    return Answer(**speech.answer(file, number))


@app.tool()
async def post(op: Operation[None], file: str, number: int) -> Answer:
    return Answer(**speech.answer(file, number))


@app.agent()
async def works(run: Run[None], plan: Plan) -> int:
    if plan.kind == "step":
        return len([await run.step(compose, plan.file, number) for number in range(plan.steps)])
    return len([await run.call(post, plan.file, number) for number in range(plan.steps)])


@app.agent()
async def hears(run: Run[None], heard: Heard) -> None:
    await run.step(compose, heard.file, heard.number)
    await run.receive("go", str)
    await run.step(compose, heard.file, heard.number + speech.AFTER)


async def serve() -> None:
    async with app.worker():
        await asyncio.Event().wait()


async def start(run: str, steps: int, file: str, kind: str = "step") -> dict[str, float]:
    began = speech.moment()
    await app.start(works, Plan(steps=steps, file=file, kind=kind), id=run)
    return began


async def hear(first: int, count: int, file: str) -> None:
    for number in range(first, first + count):
        await app.start(hears, Heard(file=file, number=number), id=f"hears-{number}")


async def send(number: int) -> dict[str, float]:
    began = speech.moment()
    await app.handle(hears, f"hears-{number}").send("go", "now", key="1")
    return began


async def opened() -> None:
    await app.__aenter__()


def main() -> None:
    loop = speech.Loop()
    loop.do(opened())
    verbs: dict[str, Any] = {
        "about": lambda: speech.versions("outlive", "psycopg"),
        "setup": lambda: None,
        "serve": lambda: loop.begin(serve()),
        "start": lambda **words: loop.do(start(**words)),
        "hear": lambda **words: loop.do(hear(**words)),
        "send": lambda **words: loop.do(send(**words)),
    }
    speech.speak(verbs)


if __name__ == "__main__":
    main()
