"""Items of the SDK as the log holds them, and messages of another framework as items."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from agents import ModelResponse, Usage
from agents.items import TResponseInputItem, TResponseOutputItem
from openai.types.responses import ResponseOutputItem
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from pydantic import JsonValue, TypeAdapter
from pydantic_core import to_jsonable_python

from outlive.harness.conversation import RESPONSE, RETURNED, Told
from outlive.harness.crossing import Piece, pieces
from outlive.harness.units import Json

_output: TypeAdapter[TResponseOutputItem] = TypeAdapter(ResponseOutputItem)
_STRUCTURED = ("text", "image", "file")
# What a response of another framework has in the place of ids that a provider gives.
_NO_ID = "__fake_id__"


def brief(response: ModelResponse) -> Json:
    """A response as it is recorded, in the names of usage that are the same for every framework."""
    used = response.usage
    usage: Json = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
    if cached := used.input_tokens_details.cached_tokens:
        usage["cache_read_tokens"] = cached
    if reasoned := used.output_tokens_details.reasoning_tokens:
        usage["details"] = {"reasoning_tokens": reasoned}
    said: Json = {"output": _plain(response.output), "usage": usage}
    return said | ({"response_id": response.response_id} if response.response_id else {})


def response_of(recorded: Json) -> ModelResponse:
    """A recorded response, whichever framework has recorded it."""
    used = cast("dict[str, Any]", recorded.get("usage") or {})
    into, out = int(used.get("input_tokens", 0)), int(used.get("output_tokens", 0))
    usage = Usage(requests=1, input_tokens=into, output_tokens=out, total_tokens=into + out)
    usage.input_tokens_details = InputTokensDetails(
        cached_tokens=int(used.get("cache_read_tokens", 0)), cache_write_tokens=0
    )  # fmt: skip
    usage.output_tokens_details = OutputTokensDetails(
        reasoning_tokens=int((used.get("details") or {}).get("reasoning_tokens", 0))
    )  # fmt: skip
    output = [_output.validate_python(one) for one in _outputs(recorded)]
    return ModelResponse(output=output, usage=usage, response_id=cast("str | None", recorded.get("response_id")))


def _outputs(recorded: Json) -> list[Json]:
    if "kind" not in recorded:
        return cast("list[Json]", recorded["output"])
    return [_said(piece) for piece in pieces(recorded) if piece.by_model]


def _said(piece: Piece) -> Json:
    """What a model has said, as it would be in a response."""
    if piece.kind == "call":
        return {"id": _NO_ID, **_item(piece)}
    content: JsonValue = [{"type": "output_text", "text": piece.text, "annotations": []}]
    return {"id": _NO_ID, "type": "message", "role": "assistant", "status": "completed", "content": content}


def written(
    items: Sequence[TResponseInputItem], response: tuple[str, ModelResponse], outcomes: Mapping[str, tuple[str, str]]
) -> list[Json]:  # fmt: skip
    """The items of a turn as its entry has them: what is recorded as it is, only by name.

    `response` is the response and the key it is recorded under; `outcomes` has key and recorded outcome by the id that
    the model gave the call.
    """
    whole = cast("list[Json]", _plain(items))
    key, said = response
    own = cast("list[Json]", _plain(said.to_input_items()))
    if own and whole[: len(own)] == own:
        return [{RESPONSE: key}, *_by_name(whole[len(own) :], outcomes)]
    return list(_by_name(whole, outcomes))


def _by_name(items: Sequence[Json], outcomes: Mapping[str, tuple[str, str]]) -> Iterator[Json]:
    keys: dict[str, JsonValue] = {}
    for item in items:
        call = str(item.get("call_id"))
        key, recorded = outcomes.get(call, ("", None))
        if set(item) == {"type", "call_id", "output"} and recorded is not None and as_text(recorded) == item["output"]:
            keys[call] = key
            continue
        if keys:
            yield {RETURNED: keys}
            keys = {}
        yield item
    if keys:
        yield {RETURNED: keys}


def read(told: Told) -> list[Json]:
    """The items that a turn has added, whichever framework has made it."""
    found: list[Json] = []
    for message in told.turn.added:
        outcomes, response = told.returned(message), told.response(message)
        if outcomes is not None:
            found += [_item(Piece("return", one, call)) for call, one in outcomes.items()]
        elif response is not None:
            found += cast("list[Json]", _plain(response_of(response).to_input_items()))
        elif "kind" in message:
            found += [_item(piece) for piece in pieces(message) if piece.kind != "other"]
        else:
            found.append(message)
    return found


def _item(piece: Piece) -> Json:
    match piece.kind:
        case "call":
            given = piece.content if isinstance(piece.content, str) else json.dumps(piece.content, ensure_ascii=False)
            return {"type": "function_call", "call_id": piece.call, "name": piece.tool, "arguments": given}
        case "return":
            return {"type": "function_call_output", "call_id": piece.call, "output": piece.text}
        case "again" if piece.tool:
            return {"type": "function_call_output", "call_id": piece.call, "output": piece.text}
        case kind:
            return {"role": {"system": "system", "text": "assistant"}.get(kind, "user"), "content": piece.text}


def shown(given: JsonValue) -> Any:
    """What a tool returned, as the SDK is given it: its own structured outputs as they are, all else as a text."""
    parts = given if isinstance(given, list) else [given]
    if parts and all(isinstance(one, dict) and one.get("type") in _STRUCTURED for one in parts):
        return given
    return Piece("return", given).text


def as_text(recorded: str) -> str:
    """A recorded outcome as a model is told it."""
    return Piece("return", json.loads(recorded)).text


def _plain(items: object) -> Any:
    return to_jsonable_python(items, exclude_none=True) if not isinstance(items, list | tuple) else [
        one.model_dump(mode="json", exclude_unset=True) if hasattr(one, "model_dump") else to_jsonable_python(one)
        for one in items
    ]  # fmt: skip
