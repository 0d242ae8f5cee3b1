"""pydantic-ai on DBOS: a scripted model calls a tool in each answer; a request and a tool are a step each."""

from __future__ import annotations

from typing import Any

from dbos import DBOS
from pydantic_ai import Agent, RunContext
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

from bench.peers import speech
from bench.peers.engines import dbos


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The next call, as what was called tells; a text when that was the last."""
    steps, file = str(messages[0].parts[0].content).split(" ", 1)
    made = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    said = speech.answer(file, 2 * made)["text"]
    if 2 * made + 2 > int(steps):
        return ModelResponse([TextPart(said)])
    return ModelResponse([TextPart(said), ToolCallPart("act", {"number": 2 * made + 1}, tool_call_id=f"c{made}")])


agent: Agent[str, str] = Agent(FunctionModel(model), name="clerk", deps_type=str, capabilities=[DBOSDurability()])


@agent.tool
@DBOS.step(name="act")
async def act(ctx: RunContext[str], number: int) -> dict[str, Any]:
    return speech.answer(ctx.deps, number)


@DBOS.workflow(name="converses")
async def converses(steps: int, file: str) -> None:
    await agent.run(f"{steps} {file}", deps=file, usage_limits=UsageLimits(request_limit=None))


if __name__ == "__main__":
    speech.speak(dbos.VERBS | {"about": lambda: speech.versions("pydantic-ai-slim", "dbos")})
