"""A conversation as the log holds it: each message once.

A model's response is the outcome of its operation, what a tool returned that of its own. The entry that commits a turn
says what the turn added, and names those instead of repeating them; so a conversation is read from the whole log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse

Json = dict[str, JsonValue]

# What is the same for all messages of a run, or says nothing.
_OF_THE_RUN = ("run_id", "conversation_id")
_MEANT = ("args", "content", "metadata", "provider_details", "outcome")
REF = "outlive:outcome"


def brief(message: ModelMessage) -> Json:
    """A message as JSON, without what says nothing."""
    (whole,) = ModelMessagesTypeAdapter.dump_python([message], mode="json")
    return _brief(whole)


def _brief(message: Json) -> Json:
    kept: Json = {}
    for name, value in message.items():
        if name == "parts" and isinstance(value, list):
            kept[name] = [_part(part) if isinstance(part, dict) else part for part in value]
        elif name == "usage" and isinstance(value, dict):
            kept[name] = {key: one for key, one in value.items() if one not in (0, 0.0, None, {})}
        elif name not in _OF_THE_RUN and value is not None and (name, value) != ("state", "complete"):
            kept[name] = value
    return kept


def _part(part: Json) -> Json:
    return {name: value for name, value in part.items() if name in _MEANT or value is not None}


def shorten(message: Json, outcomes: Mapping[str, tuple[str, str | None]]) -> Json:
    """A request in which what tools returned is named by the key of its call, where it is what is recorded there.

    `outcomes` has key and recorded outcome by the id that the model gave the call.
    """
    parts = message.get("parts")
    if message.get("kind") != "request" or not isinstance(parts, list):
        return message
    return {**message, "parts": [_named(part, outcomes) if isinstance(part, dict) else part for part in parts]}


def _named(part: Json, outcomes: Mapping[str, tuple[str, str | None]]) -> Json:
    key, recorded = outcomes.get(str(part.get("tool_call_id", "")), ("", None))
    if part.get("part_kind") != "tool-return" or recorded is None:
        return part
    if json.loads(recorded) != part.get("content"):
        return part
    # Not in the content's place: whatever a tool returns is no name of ours.
    return {name: value for name, value in part.items() if name != "content"} | {REF: key}


def lengthen(message: Json, outcomes: Mapping[str, str]) -> Json:
    """A message as it was before it was shortened; `outcomes` are those of its turn, by the key of their call."""
    if list(message) == [REF]:
        response = json.loads(outcomes[str(message[REF])])["response"]
        assert isinstance(response, dict)
        return response
    parts = message.get("parts")
    if not isinstance(parts, list):
        return message
    return {**message, "parts": [_whole(part, outcomes) if isinstance(part, dict) else part for part in parts]}


def _whole(part: Json, outcomes: Mapping[str, str]) -> Json:
    if REF not in part:
        return part
    kept = {name: value for name, value in part.items() if name != REF}
    return {**kept, "content": json.loads(outcomes[str(part[REF])])}


def read(messages: Iterable[Json]) -> list[ModelMessage]:
    """Messages of JSON that `brief` wrote."""
    return ModelMessagesTypeAdapter.validate_python(list(messages))


def response_of(message: Json) -> ModelResponse:
    """One response."""
    (one,) = read([message])
    assert isinstance(one, ModelResponse)
    return one
