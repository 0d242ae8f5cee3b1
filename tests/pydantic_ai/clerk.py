"""A pydantic-ai agent whose model is scripted by the conversation alone, so that a lost message changes its answer.

It calls registered tools and plain ones, several at a time, one that does not exist, one that asks the model to try
again, and one that people must agree to.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlive import Operation, Outlive, Retry
from outlive.pydantic_ai import agent, operation, toolset
from tests.sweep.corpus import Bank

app: Outlive[Bank] = Outlive()

asked: Counter[int] = Counter()
"""How often the model was asked for each of its turns, by every worker of every run."""


@app.tool(effect="read", retry=Retry(attempts=3, first=timedelta(seconds=5)))
async def look(op: Operation[Bank], what: str) -> str:
    """See something."""
    return f"saw {what}"


@app.tool(effect="idempotent")
async def put(op: Operation[Bank], what: str, times: int = 1) -> dict[str, int]:
    """Put something there.

    Args:
        what: what is put
        times: how often
    """
    op.deps.booked.setdefault(op.key, what)
    return {what: times}


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The next response: it follows from what has been said, and from nothing else."""
    _whole(messages)
    turn = sum(isinstance(one, ModelResponse) for one in messages)
    asked[turn] += 1
    return ModelResponse(parts=[*TURNS[turn]] if turn < len(TURNS) else [TextPart(told(messages))])


def _call(name: str, **arguments: object) -> ToolCallPart:
    return ToolCallPart(name, arguments, tool_call_id=f"{name}-{'-'.join(map(str, arguments.values()))}")


TURNS: list[list[ToolCallPart]] = [
    [_call("look", what="a"), _call("put", what="b"), _call("book", what="c")],
    [_call("put", what="d", times=2), _call("nothing_like_it", what="e"), _call("shy", what="f")],
    [_call("shy", what="f2"), _call("pay", cents=7)],
]


def _whole(messages: list[ModelMessage]) -> None:
    """Every call has its answer, right after it."""
    for before, after in zip(messages, messages[1:], strict=False):
        if isinstance(before, ModelResponse):
            assert isinstance(after, ModelRequest), messages
            answered = {one.tool_call_id for one in after.parts if isinstance(one, ToolReturnPart)}
            assert {one.tool_call_id for one in before.tool_calls} <= answered, messages


def told(messages: list[ModelMessage]) -> str:
    """All that the model was told, in order."""
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    return " | ".join(str(part.content) for part in parts if isinstance(part, UserPromptPart | ToolReturnPart))


clerk = Agent[Bank, str](FunctionModel(answer), name="clerk", deps_type=Bank, toolsets=[toolset(look, put)])


@clerk.tool
async def book(ctx: RunContext[Bank], what: str) -> str:
    return ctx.deps.book(operation().key, what)


@clerk.tool_plain
async def shy(what: str) -> str:
    if what == "f":
        raise ModelRetry("say it twice")
    return f"shy about {what}"


@clerk.tool(requires_approval=True)
async def pay(ctx: RunContext[Bank], cents: int) -> str:
    return ctx.deps.book(operation().key, f"{cents} paid")


by_clerk = agent(app, clerk, effects={"shy": "read"})

SAID = (
    "begin | saw a | {'b': 1} | c#1 | {'d': 2} | Unknown tool name: 'nothing_like_it'. Available tools: "
    "'book', 'look', 'pay', 'put', 'shy' | say it twice"
)
