"""An agent whose model is the small one: it reads two files and says what is in them, in three turns."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from outlive import Operation, Outlive
from outlive.pydantic_ai import agent, toolset
from tests.small.points import armed

FILES = {"garden.txt": "There are 12 apple trees.", "kitchen.txt": "There are 3 windows."}


class Constrained(OpenAIChatModel):
    """A model that calls tools although it knows nothing of them.

    What it writes is held to a JSON schema, the union of the calls that make sense now, and read as a call. One of its
    size says the same again and again, so what it has asked for already is not offered again, and the end only when
    nothing else is left.
    """

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None, model_request_parameters: Any
    ) -> ModelResponse:
        schema = {"anyOf": [_as_schema(one) for one in offered(messages, model_request_parameters)]}
        constrained = ModelRequestParameters(
            output_mode="native", output_object=OutputObjectDefinition(json_schema=schema, name="call", strict=True),
            instruction_parts=model_request_parameters.instruction_parts,
        )  # fmt: skip
        response = await super().request(list(as_texts(messages)), model_settings, constrained)
        turn = 1 + sum(isinstance(one, ModelResponse) for one in messages)
        if armed(f"answered-{turn}"):
            await asyncio.Event().wait()
        arguments = json.loads(response.text or "")
        call = ToolCallPart(arguments.pop("tool"), arguments, tool_call_id=f"call-{turn}")
        return replace(response, parts=[call])


def offered(messages: list[ModelMessage], parameters: ModelRequestParameters) -> list[ToolDefinition]:
    """The tools that it can call with what it has not said yet; those that end it when there is no such tool."""
    calls = [one for said in messages if isinstance(said, ModelResponse) for one in said.tool_calls]
    left = []
    for tool in parameters.function_tools:
        schema = deepcopy(tool.parameters_json_schema)
        for name, one in schema["properties"].items():
            one["enum"] = [each for each in one["enum"] if all(call.args_as_dict().get(name) != each for call in calls)]
        if all(one["enum"] for one in schema["properties"].values()):
            left.append(replace(tool, parameters_json_schema=schema))
    return left or parameters.output_tools


def _as_schema(tool: ToolDefinition) -> dict[str, Any]:
    given = tool.parameters_json_schema
    properties = {"tool": {"const": tool.name}, **given["properties"]}
    return {**given, "properties": properties, "required": list(properties), "additionalProperties": False}


def as_texts(messages: list[ModelMessage]) -> Iterable[ModelMessage]:
    """The conversation without calls of tools, for a model that has no words for them."""
    for message in messages:
        if isinstance(message, ModelResponse):
            said = [{"tool": one.tool_name, **one.args_as_dict()} for one in message.tool_calls]
            yield replace(message, parts=[TextPart(json.dumps(one)) for one in said])
        else:
            yield replace(message, parts=[_as_text(one) for one in message.parts])


def _as_text(part: Any) -> Any:
    if isinstance(part, ToolReturnPart):
        return UserPromptPart(str(part.content))
    assert isinstance(part, UserPromptPart | SystemPromptPart), part
    return part


def model() -> OpenAIChatModel:
    """The one that listens at MODEL_URL."""
    provider = OpenAIProvider(base_url=f"{os.environ.get('MODEL_URL', 'http://127.0.0.1:9')}/v1", api_key="none")
    settings = ModelSettings(temperature=0, seed=7, max_tokens=80)
    return Constrained("smollm2", provider=provider, profile=OpenAIModelProfile(), settings=settings)


class Answer(BaseModel):
    """Long enough to differ when anything before it did."""

    text: str = Field(min_length=24, max_length=60)


app: Outlive[None] = Outlive()


@app.tool(effect="read")
async def read(op: Operation[None], path: Literal["garden.txt", "kitchen.txt"]) -> str:
    """Read a file."""
    return FILES[path]


reader = Agent[None, Answer](
    model(), name="reader", output_type=Answer, toolsets=[toolset(read)], instructions="Answer in JSON."
)
reading = agent(app, reader)
PROMPT = "Read the files first. Then say how many apple trees and how many windows there are."
