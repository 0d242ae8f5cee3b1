"""A conversation that one framework has begun, for another one to go on with.

Both keep their messages in JSON of their own; here they are taken apart into what both can say: what a person, a model
and a tool said, and which call of a tool was meant. What only one of them can say (a model's signed thinking, calls of
tools that a provider executes itself, ids of a provider's own store, files) does not cross: it stays in the log, and
whoever goes on does not see it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import JsonValue

from outlive.harness.units import Json

Kind = Literal["system", "prompt", "text", "call", "return", "again", "other"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing that was said.

    `kind`: *system* (what the author says), *prompt* (a person), *text* and *call* (the model), *return* (a tool),
    *again* (the model is asked to mend a call, or with no `tool` its answer), *other* (does not cross; `tool` says
    what it was). `content` is a text, the arguments of a call, or what a tool returned.
    """

    kind: Kind
    content: JsonValue = ""
    call: str = ""
    tool: str = ""

    @property
    def by_model(self) -> bool:
        """Whether the model has said it."""
        return self.kind in ("text", "call")

    @property
    def text(self) -> str:
        """The content as a text."""
        return self.content if isinstance(self.content, str) else json.dumps(self.content, ensure_ascii=False)


def pieces(message: Json) -> list[Piece]:
    """A message, or a recorded response, of either framework."""
    if message.get("kind") in ("request", "response"):
        return list(_of_pydantic_ai(message))
    if is_response(message):
        output = cast("list[JsonValue]", message["output"])
        return [piece for item in output if isinstance(item, dict) for piece in _of_openai(item)]
    return list(_of_openai(message))


def is_response(message: Json) -> bool:
    """Whether it is a recorded response, of either framework."""
    return message.get("kind") == "response" or ("type" not in message and isinstance(message.get("output"), list))


_OF_PARTS: Mapping[str, Kind] = {
    "system-prompt": "system", "user-prompt": "prompt", "text": "text", "tool-call": "call", "tool-return": "return",
    "retry-prompt": "again",
}  # fmt: skip


def _of_pydantic_ai(message: Json) -> Iterator[Piece]:
    parts = message.get("parts")
    for part in parts if isinstance(parts, list) else []:
        if not isinstance(part, dict):
            continue
        name = str(part.get("part_kind"))
        kind = _OF_PARTS.get(name, "other")
        content = part.get("args") if kind == "call" else part.get("content")
        if kind == "prompt" and isinstance(content, list):
            yield from _prompted(content)
        elif kind == "other":
            yield Piece(kind, tool=name)
        else:
            yield Piece(kind, _arguments(content) if kind == "call" else content, *_of_a_tool(part))


def _of_a_tool(part: Json) -> tuple[str, str]:
    return str(part.get("tool_call_id") or ""), str(part.get("tool_name") or "")


def _prompted(content: list[JsonValue]) -> Iterator[Piece]:
    for one in content:
        if isinstance(one, str):
            yield Piece("prompt", one)
        elif isinstance(one, dict) and isinstance(one.get("text") or one.get("content"), str):
            yield Piece("prompt", one.get("text") or one.get("content"))
        else:
            yield Piece("other", tool=str(one.get("kind") if isinstance(one, dict) else type(one).__name__))


_ROLES: Mapping[str, Kind] = {"system": "system", "developer": "system", "assistant": "text"}


def _of_openai(item: Json) -> Iterator[Piece]:
    match item.get("type", "message"):
        case "message":
            kind: Kind = _ROLES.get(str(item.get("role")), "prompt")
            yield from (Piece("other", tool=one) if text is None else Piece(kind, text) for text, one in _texts(item))
        case "function_call":
            yield Piece("call", _arguments(item.get("arguments")), str(item.get("call_id")), str(item.get("name")))
        case "function_call_output":
            yield Piece("return", item.get("output"), str(item.get("call_id")))
        case other:
            yield Piece("other", tool=str(other))


def _texts(item: Json) -> Iterator[tuple[str | None, str]]:
    content = item.get("content")
    if isinstance(content, str):
        yield content, ""
    for one in content if isinstance(content, list) else []:
        if isinstance(one, dict):
            text = one.get("text")
            yield (text, "") if isinstance(text, str) else (None, str(one.get("type")))


def _arguments(given: JsonValue) -> JsonValue:
    """The arguments of a call as data. A model may have written what is no JSON."""
    if not isinstance(given, str):
        return {} if given is None else given
    try:
        read: JsonValue = json.loads(given or "{}")
    except ValueError:
        return given
    return read if isinstance(read, dict) else given
