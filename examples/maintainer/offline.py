"""A model that needs no network: what it does next follows from the conversation as it is handed over, and from nothing
else. It makes one mistake, and mends it when the tests say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage


@dataclass(frozen=True)
class Idea:
    """How a fix is made: edits, of which the next one mends the one before."""

    path: str
    tests: str
    message: str
    edits: tuple[tuple[str, str], ...]


IDEAS = {
    "F1": Idea("lengths.py", "tests.Lengths", "F1: Make a metre more than three feet", (
        ("metres / FEET_IN_A_METRE", "metres * FEET_IN_A_METRE"),
    )),
    "F2": Idea("temperature.py", "tests.Temperature", "F2: Boil water at a hundred degrees", (
        ("(fahrenheit - 32) * 9 / 5", "fahrenheit - 32 * 5 / 9"),
        ("fahrenheit - 32 * 5 / 9", "(fahrenheit - 32) * 5 / 9"),
    )),
    "F3": Idea("average.py", "tests.Average", "F3: Give no mean of nothing", (
        ("return sum(figures) / len(figures)", "return sum(figures) / len(figures) if figures else None"),
    )),
    "F4": Idea("words.py", "tests.Words", "F4: Say one metre", (
        ('return f"{number} {noun}s"', 'return f"{number} {noun}" if number == 1 else f"{number} {noun}s"'),
    )),
    "F5": Idea("spans.py", "tests.Spans", "F5: Let the last number belong to a span", (
        ("range(first, last)", "range(first, last + 1)"),
    )),
}  # fmt: skip


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What follows from what it was told last, and from its notes."""
    done = set(re.findall(r"(F\d) is committed", " ".join(_noted(messages))))
    left = [fix for fix in IDEAS if fix not in done]
    last = messages[-1].parts[-1]
    if not isinstance(last, ToolReturnPart):
        return _call(messages, "read_file", path="FIXES.md")
    if left:
        return _next(messages, left[0], last.tool_name, last.model_response_str())
    if last.tool_name == "run_tests":
        return _call(messages, info.output_tools[0].name, fixed=sorted(done), left=[])
    return _call(messages, "run_tests")


def _next(messages: list[ModelMessage], fix: str, tool: str, said: str) -> ModelResponse:
    """The next step of a fix, after a tool has said that."""
    idea = IDEAS[fix]
    again = _call(messages, "read_file", path=idea.path)
    match tool:
        case "read_file":
            edit = next((one for one in idea.edits if one[0] in said), None)
            return _call(messages, "edit_file", path=idea.path, old=edit[0], new=edit[1]) if edit else again
        case "edit_file":
            return _call(messages, "run_tests", name=idea.tests)
        case "run_tests" if json.loads(said)["passed"]:
            return _call(messages, "commit", message=idea.message)
        case "run_tests":
            noted = _call(messages, "note", text=f"{fix} is edited, but {idea.tests} fails: the edit is to be mended.")
            return replace(again, parts=[*noted.parts, *again.parts])
        case "commit":
            return _call(messages, "note", text=f"{fix} is committed as {json.loads(said)['id']}.")
        case _:
            return again


def summed_up(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """As little as a summary can say. What is done whoever goes on has from the notes."""
    text = "FIXES.md has been read, and fixes were worked on, one after the other."
    return ModelResponse(parts=[TextPart(text)], usage=_usage(messages), model_name="offline")


def _noted(messages: list[ModelMessage]) -> Iterator[str]:
    """What it has noted: where it did so, or, of what was summed up, where it is shown its notes."""
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolCallPart) and part.tool_name == "note":
            yield str(part.args_as_dict()["text"])
        elif isinstance(part, UserPromptPart):
            yield str(part.content)


def _call(messages: list[ModelMessage], tool: str, **arguments: object) -> ModelResponse:
    call = ToolCallPart(tool, arguments, tool_call_id=f"{tool}-{_length(messages)}")
    return ModelResponse(parts=[call], usage=_usage(messages), model_name="offline")


def _length(messages: list[ModelMessage]) -> int:
    return sum(len(str(part)) for one in messages for part in one.parts)


def _usage(messages: list[ModelMessage]) -> RequestUsage:
    return RequestUsage(input_tokens=_length(messages) // 4, output_tokens=40)


MAINTAINER = FunctionModel(answer, model_name="offline")
SUMMARIST = FunctionModel(summed_up, model_name="offline")
