"""The agents that are measured, and `Course`, by which the benchmark asks a running agent for calls, block by block.

A course lives in the process of the worker; agents of other processes get their number of calls as input.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import BaseModel

from outlive import Agent, Operation, Outlive, Run

# About what a model says in one go: the answer of a step is some 600 bytes in the log.
TEXT = "The invoice of the third of May is overdue; the customer has been reminded twice. " * 7

# Long enough for the worker that began it to be gone.
NAP = timedelta(seconds=2)

registered: Outlive[None] = Outlive()


class Answer(BaseModel):
    """What a step gives."""

    text: str
    tokens: int


class Progress(BaseModel):
    """The state of a loop of turns."""

    turn: int = 0


class Plan(BaseModel):
    """The input of agents that nobody asks: so many steps; each leaves a line in the file, if there is one."""

    steps: int
    file: str = ""


@dataclass(slots=True)
class Ended:
    """What this process has seen of runs that it drove to their end: when, and how many steps they had."""

    at: float = 0.0
    steps: int = 0


@dataclass(slots=True)
class Course:
    """What an agent is asked for: so many calls of a kind, and how long one took."""

    _asked: asyncio.Queue[tuple[str, int, asyncio.Future[float]] | None] = field(default_factory=asyncio.Queue)

    async def block(self, count: int, kind: str = "step") -> float:
        """Let the agent make so many calls, one after the other; seconds for one of them."""
        reply: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        await self._asked.put((kind, count, reply))
        return await reply

    async def end(self) -> None:
        """Let the agent return."""
        await self._asked.put(None)

    async def blocks(self) -> AsyncIterator[tuple[str, int, asyncio.Future[float]]]:
        """What is asked, for the agent."""
        while (asked := await self._asked.get()) is not None:
            yield asked


courses: dict[str, Course] = {}
ended = Ended()


async def compose(number: int) -> Answer:
    return Answer(text=TEXT, tokens=number)


async def moment() -> float:
    return time.perf_counter()


async def leave_a_line(number: int, file: str) -> Answer:
    """In one write to the end of the file, so that lines of several processes stay whole."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{number} {os.getpid()} {time.perf_counter()}\n".encode())
    finally:
        os.close(handle)
    return await compose(number)


@registered.tool()
async def post(op: Operation[None], number: int) -> Answer:
    return Answer(text=TEXT, tokens=number)


@registered.tool(effect="idempotent")
async def put(op: Operation[None], number: int) -> Answer:
    return Answer(text=TEXT, tokens=number)


@dataclass(slots=True)
class Milestone:
    """Reached when a step of this number or a later one begins; `at` is when that was."""

    number: int
    at: float = 0.0
    reached: asyncio.Event = field(default_factory=asyncio.Event)


milestones: list[Milestone] = []


async def pass_by(number: int) -> Answer:
    for one in milestones:
        if number >= one.number and not one.reached.is_set():
            one.at = time.perf_counter()
            one.reached.set()
    return await compose(number)


async def _one(run: Run[None], kind: str, number: int) -> None:
    if kind == "step":
        await run.step(compose, number)
    else:
        await run.call(post if kind == "external" else put, number)


@registered.agent()
async def asked(run: Run[None], name: str) -> None:
    async for kind, count, reply in courses[name].blocks():
        began = time.perf_counter()
        for number in range(count):
            await _one(run, kind, number)
        reply.set_result((time.perf_counter() - began) / count)


@registered.agent()
async def asked_in_turns(run: Run[None], name: str) -> None:
    """Each call is a turn of its own: the cost of a turn is part of what is measured."""
    asked = courses[name].blocks()
    kind, left, reply = await anext(asked)
    count, began = left, time.perf_counter()
    async for state in run.turns(Progress()):
        await _one(run, kind, state.turn)
        state.turn += 1
        left -= 1
        if left == 0:
            reply.set_result((time.perf_counter() - began) / count)
            try:
                kind, left, reply = await anext(asked)
            except StopAsyncIteration:
                return
            count, began = left, time.perf_counter()


@registered.agent()
async def works(run: Run[None], plan: Plan) -> None:
    for number in range(plan.steps):
        if plan.file:
            await run.step(leave_a_line, number, plan.file)
        else:
            await run.step(compose, number)
    ended.at, ended.steps = time.perf_counter(), ended.steps + plan.steps


@registered.agent()
async def wakes(run: Run[None], number: int) -> float:
    """The moment of its first step."""
    return await run.step(moment)


@registered.agent()
async def hears(run: Run[None], number: int) -> float:
    """The moment after which the step that follows a message is in the log."""
    await run.receive("go", str)
    await run.step(pass_by, number)
    return await run.step(moment)


@registered.agent()
async def naps(run: Run[None], number: int) -> None:
    """A timer, and a step after it."""
    await run.sleep(NAP)
    await run.step(pass_by, number)


@registered.agent()
async def goes_on(run: Run[None], plan: Plan) -> None:
    """A step in each turn."""
    async for state in run.turns(Progress()):
        if state.turn == plan.steps:
            return
        await run.step(pass_by, state.turn)
        state.turn += 1


@asynccontextmanager
async def on_course(app: Outlive[None], name: str, agent: Agent[str, None] = asked) -> AsyncIterator[Course]:
    """A run of its own, whose agent does what the course asks; it has ended when the block has."""
    courses[name] = course = Course()
    handle = await app.start(agent, name, id=name)
    yield course
    await course.end()
    await handle.result()
    del courses[name]


def app_at(url: str) -> Outlive[None]:
    """An application with these agents on this store."""
    made: Outlive[None] = Outlive(url)
    made.registry = registered.registry
    return made
