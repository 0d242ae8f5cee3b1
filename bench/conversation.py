"""A long conversation of an agent of pydantic-ai: what a turn costs late in it, its bytes, and what taking it up costs.

What pydantic-ai does by itself is taken off: the same turn without a run, on the same messages. Processor time, since
that no other process disturbs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import Agent, CallToolsNode
from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from bench.agents import TEXT
from bench.effort import Effort
from bench.figures import Line, Spread, ratios, short
from bench.growth import size_of
from bench.places import Place
from outlive import Agent as Registered
from outlive import Outlive
from outlive.pydantic_ai import Compact, agent

TURNS, EARLY, BLOCK = 2000, 100, 20
HALF = 1000
"""Characters that the model says in a turn, and that a tool gives."""
CURVE = (100, 450, 1000, 2000)
TIME_LIMIT, BYTES_LIMIT, TAKEN_UP_LIMIT = 1.10, 1.3, 0.5
COMPACT = Compact(at_tokens=20_000, keep=10)


class Busy(ModelHTTPError, ModelRateLimitError):
    """The run waits unloaded, and whichever worker is there then goes on."""


@dataclass
class Course:
    """One conversation: what the processor had done when each turn began, and what was handed over then."""

    began: dict[int, float] = field(default_factory=dict)
    handed: dict[int, list[ModelMessage]] = field(default_factory=dict)
    kept: frozenset[int] = frozenset()
    last: int = TURNS
    ended: asyncio.Event = field(default_factory=asyncio.Event)


course = Course()


def _text(number: int) -> str:
    return f"{number}: {TEXT * 3}"[:HALF]


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Has a tool called, turn after turn."""
    if not info.function_tools:
        return ModelResponse(parts=[TextPart("What was said before. " * 20)])
    return _asking(_number(messages[-1]), 250 * len(messages))


def _number(last: ModelMessage) -> int:
    """Of the turn that follows a message."""
    returned = [str(part.content) for part in last.parts if isinstance(part, ToolReturnPart)]
    return int(returned[0].partition(":")[0]) + 1 if returned else 0


def _asking(number: int, tokens: int = 0) -> ModelResponse:
    usage = RequestUsage(input_tokens=tokens, output_tokens=250)
    called = ToolCallPart("look", {"number": number}, f"look-{number}")
    return ModelResponse(parts=[TextPart(_text(number)), called], usage=usage)


async def _measured(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    answer = _answer(messages, info)
    if info.function_tools:
        number = _number(messages[-1])
        course.began.setdefault(number, time.process_time())
        if number in course.kept:
            course.handed[number] = messages
        if number >= course.last:
            course.ended.set()
            raise Busy(429, "talker")
    return answer


async def look(number: int) -> str:
    """Look something up."""
    return _text(number)


def _agent(model: Any) -> Agent[None, str]:
    return Agent(FunctionModel(model), name="talker", tools=[look])


async def conversation(place: Place, effort: Effort) -> list[Line]:
    """One conversation of 2,000 turns of 2,000 characters, summed up as it grows."""
    turns = effort.scaled(TURNS, least=60)
    early, block = min(EARLY, turns // 2), min(BLOCK, turns // 6)
    young, old = range(early, early + block), range(turns - block, turns)
    course.__dict__.clear()
    vars(course).update(vars(Course(kept=frozenset((*young, *old)), last=turns)))
    url = place.fresh()
    async with _serving(url):
        pass
    empty = size_of(place, url)
    async with _serving(url) as (app, talker):
        await app.start(talker, "begin", id="talk")
        await course.ended.wait()
    weighed = size_of(place, url) - empty
    course.ended.clear()
    before = time.process_time()
    async with _serving(url):
        await course.ended.wait()
        taken_up = time.process_time() - before
    alone = {number: await _alone(course.handed[number]) for number in (*young, *old)}
    net_young, net_old = (
        [(course.began[n + 1] - course.began[n] - alone[n]) * 1000 for n in each] for each in (young, old)
    )  # fmt: skip
    read = _read_alone(turns)
    whole = ", ".join([f"{short(await _alone(history(n)) * 1000)} ms at {n:,}" for n in CURVE if n <= turns])
    without = (short(sum(alone[n] for n in each) * 1000 / block) for each in (young, old))
    what = f"our processor time in a turn at {turns:,}, history bounded; the floor is one at {early}"
    return [
        Line("conversation, turn", place.store, what, " ms", Spread.of(net_old), Spread.of(net_young),
             ratios([statistics.median(net_old)], [statistics.median(net_young)]), TIME_LIMIT,
             notes=(f"pydantic-ai alone on the same messages: {' ms and '.join(without)} ms; on all of them {whole}",)),
        Line("conversation, bytes", place.store, "bytes stored for a byte of content", "×",
             Spread.of([weighed / (2 * HALF * turns)]), limit=BYTES_LIMIT),
        Line("conversation, taken up", place.store, f"our processor time until a new worker goes on at turn {turns:,}",
             " s", Spread.of([taken_up - read]), limit=TAKEN_UP_LIMIT, limit_unit=" s",
             notes=(f"beside that pydantic-ai reads its messages in {short(read)} s",)),
    ]  # fmt: skip


@asynccontextmanager
async def _serving(url: str) -> AsyncIterator[tuple[Outlive[None], Registered[str, str]]]:
    app: Outlive[None] = Outlive(url)
    talker = agent(app, _agent(_measured), effects={"look": "read"}, compact=COMPACT)
    async with app, app.worker():
        yield app, talker


def history(turns: int) -> list[ModelMessage]:
    """What a conversation of so many turns says."""
    said: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("begin")])]
    for number in range(turns):
        returned = ToolReturnPart("look", _text(number), f"look-{number}")
        said += [_asking(number), ModelRequest(parts=[returned])]
    return said


async def _alone(messages: list[ModelMessage]) -> float:
    """Seconds of the processor for one turn of pydantic-ai on these messages, without a run."""
    asked: Agent[None, str] = _agent(_answer)
    began = time.process_time()
    async with asked.iter(None, message_history=messages) as turn:
        node: Any = turn.next_node
        while not isinstance(node, CallToolsNode):
            node = await turn.next(node)
        await turn.next(node)
    return time.process_time() - began


def _read_alone(turns: int) -> float:
    """Seconds of the processor in which pydantic-ai makes messages of their JSON."""
    whole = ModelMessagesTypeAdapter.dump_python(history(turns), mode="json")
    began = time.process_time()
    ModelMessagesTypeAdapter.validate_python(whole)
    return time.process_time() - began
