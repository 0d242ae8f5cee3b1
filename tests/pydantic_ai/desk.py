"""An agent of pydantic-ai with the tools of an MCP server; its prompt is what its scripted model calls, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import outlive
from outlive import Outlive
from outlive.pydantic_ai import agent

ROOT = Path(__file__).parents[2]
asked: list[int] = []
"""The turns that the model was asked for."""

before: dict[int, Callable[[], None]] = {}
"""What happens when it is asked for one of them."""


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """One turn per list of calls in the prompt; then all that was told."""
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    [prompt] = [part for part in parts if isinstance(part, UserPromptPart)]
    turns = json.loads(str(prompt.content))
    turn = sum(isinstance(one, ModelResponse) for one in messages)
    asked.append(turn)
    before.get(turn, int)()
    if turn < len(turns):
        calls = [ToolCallPart(name, given, tool_call_id=f"{turn}-{at}") for at, (name, given) in enumerate(turns[turn])]
        return ModelResponse(parts=[*calls])
    told = [part for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    return ModelResponse(parts=[TextPart(" | ".join(f"{type(one).__name__}: {one.content}" for one in told))])


def registered(app: Outlive[None], place: Path, url: str = "", **more: Any) -> outlive.Agent[str, str]:
    """The agent, with the server of `tests.mcp.desk` over HTTP, or as its child."""
    at: Any = url or StdioTransport(sys.executable, ["-m", "tests.mcp.desk", str(place)], cwd=str(ROOT))
    toolset: MCPToolset[None] = MCPToolset(at, id="desk")
    made: Agent[None, str] = Agent(FunctionModel(answer), name="clerk", deps_type=type(None), toolsets=[toolset])
    return agent(app, made, **more)


if "DESK" in os.environ:
    app: Outlive[None] = Outlive()
    registered(app, Path(os.environ["DESK"]), os.environ.get("DESK_URL", ""), effects={"search": "read"})
