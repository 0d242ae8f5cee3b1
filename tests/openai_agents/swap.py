"""One agent under two frameworks: which one goes on changes whenever a worker takes the run up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import agents
import pydantic_ai
from agents import RunContextWrapper, function_tool
from pydantic_ai import RunContext
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

from outlive import Agent, Operation, Outlive, Run
from outlive import openai_agents as sdk
from outlive import pydantic_ai as pydantic
from tests.openai_agents.talking import Items, Said, Talking, call, told, turns, whole
from tests.sweep.corpus import Bank

asked: Counter[int] = Counter()
"""How often a model was asked for each turn, under either framework."""
handed: list[tuple[str, list[str]]] = []
"""What the models were told, each time, and under which framework."""
on_turn: dict[int, Callable[[], None]] = {}
"""What happens when a model is asked for a turn the first time."""

TURNS: list[Said] = [
    [call("look", what="a"), call("put", what="b"), call("book", what="c")],
    [call("put", what="d", times=2)],
    [call("shy", number=3), call("look", what="e"), call("pay", cents=7)],
    [call("book", what="f")],
]
TOLD = ["begin", "saw a", '{"b": 1}', "c#1", '{"d": 2}', "shy about 3", "saw e", "7 paid#6", "f#1"]


def answer(framework: str, turn: int, said: list[str]) -> Said:
    """The next response, which follows from what has been said."""
    asked[turn] += 1
    if asked[turn] == 1:
        on_turn.get(turn, lambda: None)()
    handed.append((framework, said))
    return TURNS[turn] if turn < len(TURNS) else json.dumps(said)


async def look(op: Operation[Bank], what: str) -> str:
    """See something."""
    return f"saw {what}"


async def put(op: Operation[Bank], what: str, times: int = 1) -> dict[str, int]:
    """Put something there."""
    op.deps.booked.setdefault(op.key, what)
    return {what: times}


def of_pydantic() -> tuple[Outlive[Bank], Agent[str, str]]:
    """The agent under pydantic-ai."""
    app: Outlive[Bank] = Outlive()
    tools = app.tool(effect="read")(look), app.tool(effect="idempotent")(put)
    one = pydantic_ai.Agent[Bank, str](
        FunctionModel(_by_messages), name="clerk", deps_type=Bank, toolsets=[pydantic.toolset(*tools)]
    )

    @one.tool
    async def book(ctx: RunContext[Bank], what: str) -> str:
        return ctx.deps.book(pydantic.operation().key, what)

    @one.tool_plain
    def shy(number: int, loud: bool = False) -> str:
        return f"shy about {number}"

    @one.tool(requires_approval=True)
    async def pay(ctx: RunContext[Bank], cents: int) -> str:
        return ctx.deps.book(pydantic.operation().key, f"{cents} paid")

    return app, pydantic.agent(app, one, effects={"shy": "read"})


def _by_messages(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    turn = sum(isinstance(one, ModelResponse) for one in messages)
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    contents = [part.content for part in parts if isinstance(part, UserPromptPart | ToolReturnPart)]
    said = answer("pydantic", turn, [one if isinstance(one, str) else json.dumps(one) for one in contents])
    if isinstance(said, str):
        return ModelResponse(parts=[TextPart(said)])
    return ModelResponse(parts=[ToolCallPart(one.name, one.arguments, one.call_id) for one in said])


def of_sdk() -> tuple[Outlive[Bank], Agent[str, str]]:
    """The agent under the OpenAI Agents SDK."""
    app: Outlive[Bank] = Outlive()
    tools = app.tool(effect="read")(look), app.tool(effect="idempotent")(put)

    @function_tool
    async def book(ctx: RunContextWrapper[Bank], what: str) -> str:
        return ctx.context.book(sdk.operation().key, what)

    @function_tool
    def shy(number: int, loud: bool = False) -> str:
        return f"shy about {number}"

    @function_tool(needs_approval=True)
    async def pay(ctx: RunContextWrapper[Bank], cents: int) -> str:
        return ctx.context.book(sdk.operation().key, f"{cents} paid")

    one = agents.Agent[Bank](
        name="clerk", model=Talking(_by_items), tools=[*sdk.toolset(*tools), book, shy, pay]
    )  # fmt: skip
    return app, sdk.agent(app, one, effects={"shy": "read"})


def _by_items(items: Items) -> Said:
    whole(items)
    return answer("sdk", turns(items), told(items))


def changing(choose: Callable[[int], str]) -> tuple[Outlive[Bank], Agent[str, str], list[str]]:
    """An application whose agent is of the framework that `choose` says, from how often it was taken up; and the list
    of those that were.
    """
    apps = {"pydantic": of_pydantic(), "sdk": of_sdk()}
    app: Outlive[Bank] = Outlive()
    seen: list[str] = []

    async def drive(run: Run[Any], prompt: str) -> str:
        seen.append(choose(len(seen)))
        return str(await apps[seen[-1]][1].fn(run, prompt))

    drive.__qualname__ = "drive"
    for other, _ in apps.values():
        app.registry.tools.update(other.registry.tools)
    made: Agent[str, str] = Agent("clerk", "1", drive)
    app.registry.add_agent(made)
    return app, made, seen
