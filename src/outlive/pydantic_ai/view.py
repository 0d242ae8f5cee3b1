"""What a model is handed of a conversation: all of it, or less. The conversation in the log is always whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel
from pydantic_ai import FunctionToolset
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.usage import RunUsage, UsageLimits

from outlive.harness.loop import SUMMARY
from outlive.pydantic_ai.durability import KEY
from outlive.pydantic_ai.messages import brief

NOTE, READ = "note", "read_result"
NEAR = 0.8
"""The part of a limit from which on it is said to be near."""
_NOTES = "Notes that were made for whoever goes on:"


class Compact(BaseModel):
    """When a long conversation is shortened for the model, and how. What is in the log stays whole.

    When the provider has counted `at_tokens` in a request, and when it says that one is too long, all turns but the
    last `keep` give way to a summary that a model makes of them: that of the role *compact*, or the agent's own. What
    a tool returned that has more than `preview` characters is handed over by its beginning, with a tool `read_result`
    to read on; None hands over everything.
    """

    at_tokens: int = 100_000
    keep: int = 10
    preview: int | None = 20_000
    prompt: str = (
        "Sum up this conversation for whoever goes on with it. Keep the task, every decision, open point, name, number"
        " and identifier. Write the summary only."
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a run that is near."""

    name: str
    used: str
    of: str

    def __str__(self) -> str:
        return f"{self.used} of {self.of} {self.name}"


def near(usage: RunUsage, limits: UsageLimits) -> list[Limit]:
    """The limits of which four fifths are used."""
    counted = {
        "requests": (usage.requests, limits.request_limit),
        "calls of tools": (usage.tool_calls, limits.tool_calls_limit),
        "input tokens": (usage.input_tokens, limits.input_tokens_limit),
        "output tokens": (usage.output_tokens, limits.output_tokens_limit),
        "tokens": (usage.input_tokens + usage.output_tokens, limits.total_tokens_limit),
        "US dollars": (usage.cost or 0, limits.cost_limit),
    }
    return [
        Limit(name, str(used), str(most)) for name, (used, most) in counted.items()
        if most and float(used) >= NEAR * float(most)
    ]  # fmt: skip


def view(
    turns: Sequence[list[ModelMessage]], kept_from: int, summary: str, preview: int | None, limits: Sequence[Limit]
) -> list[ModelMessage]:  # fmt: skip
    """The messages to hand over: all, or what opened the conversation, a summary, notes, and the last turns."""
    if not turns:
        return []
    messages = [message for turn in turns[kept_from:] for message in turn]
    if kept_from:
        opening = turns[0][0]
        assert isinstance(opening, ModelRequest)
        notes = [text for turn in turns[:kept_from] for text in noted(turn)]
        said = [f"{SUMMARY}\n\n{summary}", *(["\n".join([_NOTES, *(f"- {one}" for one in notes)])] if notes else [])]
        messages.insert(0, _with(opening, said))
    if preview is not None:
        messages = [_previewed(message, preview) for message in messages]
    last = messages[-1]
    if limits and isinstance(last, ModelRequest):
        used = ", ".join(map(str, limits))
        messages[-1] = _with(last, [f"Little is left of what this run may use: {used} are used. Come to an end soon."])
    return messages


def _with(request: ModelRequest, texts: Sequence[str]) -> ModelRequest:
    return replace(request, parts=[*request.parts, *(UserPromptPart(text) for text in texts)])


def noted(messages: Sequence[ModelMessage]) -> list[str]:
    """The notes that a model has made in these messages."""
    calls = (part for one in messages if isinstance(one, ModelResponse) for part in one.parts)
    return [
        str(part.args_as_dict().get("text", "")) for part in calls
        if isinstance(part, ToolCallPart) and part.tool_name == NOTE
    ]  # fmt: skip


def _previewed(message: ModelMessage, most: int) -> ModelMessage:
    if not isinstance(message, ModelRequest) or not any(_long(part, most) for part in message.parts):
        return message
    return replace(message, parts=[_beginning(part, most) if _long(part, most) else part for part in message.parts])


def _long(part: object, most: int) -> bool:
    return isinstance(part, ToolReturnPart) and part.tool_name != READ and len(_text(part)) > most


def _beginning(part: object, most: int) -> ToolReturnPart:
    assert isinstance(part, ToolReturnPart)
    text = _text(part)
    rest = f"[{len(text)} characters in all: {READ}(call_id={part.tool_call_id!r}, start={most}) reads on]"
    return replace(part, content=f"{text[:most]}\n{rest}")


def _text(part: ToolReturnPart) -> str:
    return part.model_response_str()


def results(messages: Sequence[ModelMessage], most: int) -> FunctionToolset[object]:
    """The tool that reads on in what a tool returned. It reads the conversation alone, so nothing of it is recorded."""

    def read_result(call_id: str, start: int) -> str:
        """Read on in the result of a call of a tool, of which only the beginning is shown.

        Args:
            call_id: The id of that call.
            start: The character to begin with, counted from 0.
        """
        for message in reversed(messages):
            for part in message.parts:
                if isinstance(part, ToolReturnPart) and part.tool_call_id == call_id and part.tool_name != READ:
                    start = max(start, 0)
                    text, end = _text(part), start + most
                    rest = f"\n[{len(text)} characters in all: go on with start={end}]" if end < len(text) else ""
                    return text[start:end] + rest
        raise ModelRetry(f"there is no result of a call {call_id!r}")

    tools: FunctionToolset[object] = FunctionToolset(id="outlive-results")
    tools.add_function(read_result, name=READ, metadata={KEY: False})
    return tools


def spoken(messages: Sequence[ModelMessage]) -> str:
    """Messages as a text that a model can sum up."""
    return "\n".join(json.dumps(brief(one), ensure_ascii=False) for one in messages)


def counted(messages: Sequence[ModelMessage]) -> int:
    """How many input tokens the provider has counted in the last request that it has answered."""
    last = next((one for one in reversed(messages) if isinstance(one, ModelResponse)), None)
    return last.usage.input_tokens if last is not None else 0
