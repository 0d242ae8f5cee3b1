"""What a client sees of an agent: a tool with schemas of its input and result, and how both travel.

MCP wants objects: an input or a result that is none is the only member of one, `input` or `result`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import PydanticSerializationError

from outlive.app.operate import read_input
from outlive.engine.definition import Agent, AgentSpec
from outlive.model.errors import BadArguments, Refused

Json = dict[str, object]

# What MCP allows as the name of a tool.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_INPUT, _RESULT = "input", "result"


@dataclass(frozen=True, slots=True)
class Face:
    """An agent as a tool. `output_schema` is None where no schema can be made of what it returns."""

    agent: Agent[object, object]
    description: str
    input_schema: Json
    output_schema: Json | None
    wraps_input: bool
    wraps_result: bool
    _writer: TypeAdapter[object]

    @classmethod
    def of(cls, spec: AgentSpec) -> Face:
        """The face of an agent. Raises Refused for a name that no tool can have."""
        if not _NAME.fullmatch(spec.name):
            why = "MCP takes 1 to 128 of A-Z a-z 0-9 _ . - as the name of a tool; name the agents that are to be served"
            raise Refused(what=f"the agent {spec.name!r} as a tool", why=why)
        description = inspect.getdoc(spec.fn) or f"Starts a run of the agent {spec.name}."
        taken, given = _schema(spec.input.annotation, "validation"), _schema(spec.result.annotation, "serialization")
        wraps_input = taken is None or taken.get("type") != "object"
        wraps_result = given is None or given.get("type") != "object"
        if wraps_input:
            taken = _wrapped(_INPUT, taken or {}, required=spec.input.annotation not in (None, type(None)))
        if wraps_result and given is not None:
            given = _wrapped(_RESULT, given, required=True)
        writer = TypeAdapter(cast("type[object]", spec.result.annotation))
        assert taken is not None
        agent = cast("Agent[object, object]", spec)
        return cls(agent, description, taken, given, wraps_input, wraps_result, writer)

    def read(self, arguments: Mapping[str, object]) -> object:
        """The input of the agent. Raises BadArguments for what does not fit."""
        taken: object = dict(arguments)
        if self.wraps_input:
            if unexpected := sorted(arguments.keys() - {_INPUT}):
                raise BadArguments(function=self.agent.name, why=f"has no parameter {', '.join(unexpected)}")
            taken = arguments.get(_INPUT)
        try:
            text = json.dumps(taken, ensure_ascii=False, allow_nan=False)
        except (ValueError, RecursionError) as error:
            raise BadArguments(function=self.agent.name, why=str(error)) from None
        return read_input(self.agent, text)

    def write(self, recorded: str) -> tuple[str, Json]:
        """A recorded result as text for a model, and as what the output schema says. Raises UndecodableEntry."""
        value = self.agent.result.decode(recorded, where=f"the result of {self.agent.name}")
        try:
            shown: object = self._writer.dump_python(value, mode="json", by_alias=False)
        except (PydanticSerializationError, ValueError):
            shown = json.loads(recorded)  # bytes that are no text, such as these: they stay as they were recorded
        text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
        return text, {_RESULT: shown} if self.wraps_result else cast(Json, shown)


def _schema(annotation: object, mode: Literal["validation", "serialization"]) -> Json | None:
    """The JSON schema of an annotation, with what a reference at its root stands for; None where there is none."""
    try:
        found: Json = TypeAdapter(cast("type[object]", annotation)).json_schema(by_alias=False, mode=mode)
    except (PydanticInvalidForJsonSchema, PydanticUserError):
        return None
    named = str(found.get("$ref", "")).removeprefix("#/$defs/")
    known = cast("dict[str, Json]", found.get("$defs", {}))
    return {**known[named], "$defs": known} if named in known else found


def _wrapped(name: str, schema: Json, *, required: bool) -> Json:
    inner = {key: part for key, part in schema.items() if key != "$defs"}
    whole: Json = {"type": "object", "properties": {name: inner}, "additionalProperties": False}
    if required:
        whole["required"] = [name]
    if "$defs" in schema:
        whole["$defs"] = schema["$defs"]
    return whole
