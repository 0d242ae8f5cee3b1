"""A model that needs no network: what it does next follows from the conversation as it is handed over, and from nothing
else. It makes one mistake, and mends it when the tests say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
    """The next step of the fix that is next."""
    done = committed(" ".join(_texts(messages)))
    left = [fix for fix in IDEAS if fix not in done]
    last = messages[-1].parts[-1]
    tool, said = (last.tool_name, last.model_response_str()) if isinstance(last, ToolReturnPart) else ("", "")
    if not tool:
        return _call(messages, "read_file", path="FIXES.md")
    if tool == "run_tests" and not left:
        return _call(messages, info.output_tools[0].name, fixed=sorted(done), left=[])
    if not left:
        return _call(messages, "run_tests")
    idea = IDEAS[left[0]]
    if tool == "edit_file":
        return _call(messages, "run_tests", name=idea.tests)
    if tool == "run_tests" and '"passed":true' in said:
        return _call(messages, "commit", message=idea.message)
    if tool == "read_file" and (edit := next((one for one in idea.edits if one[0] in said), None)) is not None:
        return _call(messages, "edit_file", path=idea.path, old=edit[0], new=edit[1])
    return _call(messages, "read_file", path=idea.path)


def committed(text: str) -> set[str]:
    """The fixes that a conversation says were committed: in the answers of the tool, or in a summary of them."""
    return set(re.findall(r'"subject": ?"(F\d): ', text)) | set(re.findall(r"(F\d) is committed", text))


def summed_up(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What whoever goes on has to know."""
    done = sorted(committed(" ".join(_texts(messages)).replace('\\"', '"')))
    text = "FIXES.md is the list. " + " ".join(f"{fix} is committed." for fix in done)
    return ModelResponse(parts=[TextPart(text)], usage=_usage(messages), model_name="offline")


def _texts(messages: list[ModelMessage]) -> Iterator[str]:
    """All that it was told."""
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, ToolReturnPart):
                yield part.model_response_str()
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
