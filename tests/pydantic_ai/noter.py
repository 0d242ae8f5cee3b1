"""A pydantic-ai agent whose conversation is summed up, and that makes a note before."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from outlive import Outlive
from outlive.pydantic_ai import Compact, agent, notes
from tests.sweep.corpus import Bank

app: Outlive[Bank] = Outlive()


def spoken(messages: Sequence[ModelMessage]) -> list[str]:
    """What a model was told, in order."""
    return [
        str(getattr(part, "content", "")) for one in messages if isinstance(one, ModelRequest) for part in one.parts
    ]


def returned(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    """What tools returned."""
    return [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]


def noting(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Makes a note in its second turn, and goes on for long."""
    if not info.function_tools:
        return ModelResponse(parts=[TextPart("a summary that forgot it")])
    made = len([one for one in messages if isinstance(one, ModelResponse)])
    told = " ".join(spoken(messages))
    if "number 9" in told and "look" in {one.name for one in info.function_tools}:
        return ModelResponse(parts=[TextPart(told)])
    numbers = [int(str(one.content).split()[-1]) for one in returned(messages) if one.tool_name == "look"]
    usage = RequestUsage(input_tokens=len(messages) * 100)
    if made == 1 and not numbers[1:]:
        said = ToolCallPart("note", {"text": "the customer is called Ada"}, "note-1")
        return ModelResponse(parts=[said, ToolCallPart("look", {"number": 2}, "look-2")], usage=usage)
    number = max(numbers, default=0) + 1
    return ModelResponse(parts=[ToolCallPart("look", {"number": number}, f"look-{number}")], usage=usage)


async def look(number: int) -> str:
    """Look at a number."""
    return f"number {number}"


noter = Agent(FunctionModel(noting), name="noter", deps_type=Bank, tools=[look], toolsets=[notes()])
by_noter = agent(app, noter, effects={"look": "read"}, compact=Compact(at_tokens=900, keep=2))
