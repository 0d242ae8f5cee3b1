"""A model whose answers follow from the items that it is handed, and from nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

Items = Sequence[dict[str, Any]]
Said = str | Sequence[ResponseFunctionToolCall]


class Talking(Model):
    """`answer` gives a text, or calls of tools."""

    model = "talking"

    def __init__(self, answer: Callable[[Items], Said]) -> None:
        self._answer = answer
        self.settings: list[Any] = []

    async def get_response(
        self, system_instructions: str | None, input: Any, model_settings: Any, *rest: Any, **more: Any
    ) -> ModelResponse:
        """See the base."""
        self.settings.append(model_settings)
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        said = self._answer(items)
        output: list[Any] = [text(said)] if isinstance(said, str) else list(said)
        return ModelResponse(output=output, usage=Usage(requests=1, input_tokens=3, output_tokens=2), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Not needed."""
        raise NotImplementedError


def text(said: str) -> ResponseOutputMessage:
    """A text that a model says."""
    content = ResponseOutputText(type="output_text", text=said, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[content])


def call(tool: str, /, **arguments: object) -> ResponseFunctionToolCall:
    """A call of a tool, whose id is that of its arguments."""
    named = f"{tool}-{'-'.join(map(str, arguments.values()))}"
    return ResponseFunctionToolCall(
        type="function_call", call_id=named, name=tool, arguments=json.dumps(arguments)
    )  # fmt: skip


def whole(items: Items) -> None:
    """Every call has its answer before a model or a person says more."""
    waiting: set[str] = set()
    for one in items:
        if one.get("type") == "function_call":
            waiting.add(one["call_id"])
        elif one.get("type") == "function_call_output":
            waiting.discard(one["call_id"])
        else:
            assert not waiting, items
    assert not waiting, items


def told(items: Items) -> list[str]:
    """All that the model was told, in order."""
    return [str(one.get("output") or one.get("content")) for one in items if _is_told(one)]


def _is_told(one: dict[str, Any]) -> bool:
    return one.get("type") == "function_call_output" or one.get("role") == "user"


def turns(items: Items) -> int:
    """How many responses there were, each with calls or a text."""
    spoke = [one.get("type") == "function_call" or one.get("role") == "assistant" for one in items]
    return sum(now and not before for before, now in zip([False, *spoke], spoke, strict=False))
