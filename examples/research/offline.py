"""Two models that need no network: what they answer follows from the conversation alone. They are said to be real ones,
so that what they would have cost can be shown.
"""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage


def _returned(messages: list[ModelMessage], tool: str) -> list[ToolReturnPart]:
    parts = [part for one in messages if isinstance(one, ModelRequest) for part in one.parts]
    return [one for one in parts if isinstance(one, ToolReturnPart) and one.tool_name == tool]


def _calls(tool: str, **each: list[str]) -> list[ToolCallPart]:
    ((name, values),) = each.items()
    return [ToolCallPart(tool, {name: value}, tool_call_id=f"{tool}-{value}") for value in values]


def _say(messages: list[ModelMessage], parts: list[ToolCallPart], model: str) -> ModelResponse:
    length = sum(len(str(part)) for one in messages for part in one.parts)
    return ModelResponse(
        parts=[*parts], usage=RequestUsage(input_tokens=length // 4, output_tokens=40), model_name=model
    )


def plan(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Which words to look for, then which documents to read."""
    if not (found := _returned(messages, "search")):
        return _say(messages, _calls("search", word=["water", "degrees", "tea"]), "claude-opus-5")
    lists = [one.content for one in found if isinstance(one.content, list)]
    documents = sorted({str(name) for names in lists for name in names})
    return _say(messages, _calls("read", document=documents), "claude-opus-5")


def write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """The last line of each document."""
    findings = [str(one.content).strip().splitlines()[-1] for one in _returned(messages, "read")]
    output = ToolCallPart(info.output_tools[0].name, {"title": "On tea", "findings": findings}, tool_call_id="report")
    return _say(messages, [output], "claude-haiku-4-5")


PLANNER = FunctionModel(plan, model_name="claude-opus-5")
WRITER = FunctionModel(write, model_name="claude-haiku-4-5")
