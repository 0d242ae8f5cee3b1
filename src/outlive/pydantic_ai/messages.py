"""Messages of pydantic-ai as the log holds them, and those of another framework as pydantic-ai has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse

from outlive.harness.conversation import RESPONSE, Told, returned
from outlive.harness.crossing import Piece, is_response, pieces
from outlive.harness.units import Json

# What is the same for all messages of a run, or is known from elsewhere.
_OF_THE_RUN = ("run_id", "conversation_id", "model_id")
_TIMED = ("system-prompt", "user-prompt", "tool-return", "retry-prompt")
_OF_A_RETURN = {"tool_name", "tool_call_id", "content", "part_kind"}


def brief(message: ModelMessage) -> Json:
    """A message as JSON, without what says nothing."""
    (whole,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    response = whole["kind"] == "response"
    kept: Json = {}
    for name, value in whole.items():
        if name == "parts":
            kept[name] = [_part(part) for part in value]
        elif name == "usage":
            kept[name] = {key: one for key, one in value.items() if one not in (0, 0.0, None, {})}
        elif name not in _OF_THE_RUN and value is not None and (name, value) != ("state", "complete"):
            if response or name != "timestamp":
                kept[name] = value
    return kept


def _part(part: Json) -> Json:
    """A part without what is the default, and without when it was made: that is the time of its entry."""
    kept: Json = {name: one for name, one in part.items() if one is not None and one != [] and name != "timestamp"}
    if kept.get("outcome") == "success":
        del kept["outcome"]
    return {**kept, "content": part["content"]} if "content" in part else kept


def plain(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages as they are when they are read again: of data alone. What a tool returned may be an object."""
    return ModelMessagesTypeAdapter.validate_python(ModelMessagesTypeAdapter.dump_python([*messages], mode="json"))


def written(
    messages: Sequence[ModelMessage], responses: Mapping[str, JsonValue], outcomes: Mapping[str, tuple[str, str | None]]
) -> list[Json]:  # fmt: skip
    """Messages as the entry of a turn has them: what is recorded as it is, only by name.

    `responses` are the recorded responses by their keys, in order; `outcomes` has key and recorded outcome by the id
    that the model gave the call.
    """
    left = [(key, brief(response_of(one))["parts"]) for key, one in responses.items() if isinstance(one, dict)]
    found = list[Json]()
    for message in messages:
        whole = brief(message)
        if whole["kind"] == "response":
            key = next((key for key, parts in left if parts == whole["parts"]), "")
            left = [one for one in left if one[0] != key]
            found.append({RESPONSE: key} if key else whole)
        else:
            found.append(_request(whole, outcomes))
    return found


def _request(whole: Json, outcomes: Mapping[str, tuple[str, str | None]]) -> Json:
    parts = cast("list[Json]", whole["parts"])
    if set(whole) != {"parts", "kind"} or any(part["part_kind"] != "tool-return" for part in parts):
        return whole
    if any(set(part) != _OF_A_RETURN for part in parts):
        return whole
    return returned(outcomes, {str(part["tool_call_id"]): part["content"] for part in parts}) or whole


def read(turns: Sequence[Told]) -> list[list[ModelMessage]]:
    """The messages that each turn has added."""
    found, asking = list[Json](), Json()
    for told in turns:
        for message in told.turn.added:
            native = _native(told.response(message) or message, told.returned(message), asking)
            asking = native if native["kind"] == "response" else asking
            found.append(_timed(native, told.at))
    messages = iter(ModelMessagesTypeAdapter.validate_python(found))  # at once: what it checks, it checks for each call
    return [list(islice(messages, len(told.turn.added))) for told in turns]


def _timed(message: Json, at: int) -> Json:
    """A request whose parts were made when the entry was that has them."""
    if message["kind"] == "response":
        return message
    when = datetime.fromtimestamp(at / 1000, UTC).isoformat()
    parts = cast("list[Json]", message["parts"])
    timed = [{**part, "timestamp": when} if part["part_kind"] in _TIMED else part for part in parts]
    return {**message, "parts": list[JsonValue](timed)}


def response_of(recorded: Json) -> ModelResponse:
    """A recorded response, whichever framework has recorded it."""
    (one,) = ModelMessagesTypeAdapter.validate_python([_native(recorded, None, {})])
    assert isinstance(one, ModelResponse)
    return one


def _native(message: Json, outcomes: Mapping[str, JsonValue] | None, asking: Json) -> Json:
    """A message of any framework in the JSON of pydantic-ai. What does not cross is left out.

    `outcomes` are what the tools returned for which it stands, `asking` is the response that had them called.
    """
    if outcomes is None and "kind" in message:
        return message
    said = [one for one in pieces(message) if one.kind != "other"] if outcomes is None else [
        Piece("return", one, call) for call, one in outcomes.items()
    ]  # fmt: skip
    names = {piece.call: piece.tool for piece in pieces(asking) if piece.kind == "call"} if asking else {}
    named = (replace(piece, tool=names.get(piece.call, "")) if piece.kind == "return" else piece for piece in said)
    parts: list[JsonValue] = [_part_of(piece) for piece in named]
    if outcomes is None and (is_response(message) or (said and all(piece.by_model for piece in said))):
        return {"kind": "response", "parts": parts, "usage": message.get("usage") or {}}
    return {"kind": "request", "parts": parts}


def _part_of(piece: Piece) -> Json:
    match piece.kind:
        case "call":
            called: Json = {"tool_name": piece.tool, "args": piece.content, "tool_call_id": piece.call}
            return {"part_kind": "tool-call", **called}
        case "return":
            returned: Json = {"tool_name": piece.tool, "content": piece.content, "tool_call_id": piece.call}
            return {"part_kind": "tool-return", **returned}
        case "again":
            again: Json = {"tool_name": piece.tool, "tool_call_id": piece.call} if piece.tool else {}
            return {"part_kind": "retry-prompt", "content": piece.text, **again}
        case kind:
            name = {"system": "system-prompt", "prompt": "user-prompt", "text": "text"}[kind]
            return {"part_kind": name, "content": piece.text}
