"""What agents of frameworks do in a run, as tools: requests to models, calls of plain tools, and the rest.

A request to a model is an operation that may be repeated (nobody is harmed, but it costs), so that one whose worker was
lost is seen, and counted as possibly paid for. A plain tool is *external* unless its effect was declared. What these
are called in the log, and how they are matched there, is the same whichever framework drives the agent.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, cast

from pydantic import JsonValue

from outlive.engine.definition import TOOL_TIMEOUT, ToolPolicy
from outlive.engine.failures import writable
from outlive.engine.guest import Brought
from outlive.log.codec import NotDigested, Signature
from outlive.model.errors import Refused
from outlive.model.operation import Effect, Retry

Json = dict[str, JsonValue]

MODEL_TIMEOUT = timedelta(minutes=10)
MODEL_RETRY = Retry(attempts=20, first=timedelta(seconds=1), most=timedelta(minutes=5))
# However long ago it was asked first: to ask a model again harms nobody.
_ALWAYS = timedelta(days=36_500)
_OF_A_MODEL = re.compile(r".+\.(?:model(?:\..+)?|compact)")


class AskedAgain(Exception):
    """The provider has not taken the request; `retry_after` is the header in which it says when to ask again."""

    def __init__(self, message: str, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ModelRefused(Exception):
    """The provider has answered that it will not do this: to ask again would change nothing."""

    def __init__(self, message: str, model: str, status: int | None, *, context: bool = False) -> None:
        super().__init__(message, model, status)
        self.message, self.model, self.status, self.context = message, model, status, context


class ToolSaid(Exception):
    """A plain tool has ended otherwise than with a result: it asks the model to try again, or for an approval."""

    def __init__(self, kind: str, said: Json) -> None:
        super().__init__(kind, said)

    @property
    def said(self) -> Json:
        """As the framework's codec gives it."""
        return cast(Json, self.args[1])


async def _request(op: object, /, *, model: Annotated[str, NotDigested]) -> Json:
    """What the signature of model requests is made of. Nothing is digested: a recorded response is history."""
    raise NotImplementedError


async def _unit(op: object) -> JsonValue:
    """What the signature of other units is made of."""
    raise NotImplementedError


def model_name(agent: str, role: str | None = None) -> str:
    """What requests to the model of a role are called in the log, or those to the agent's own."""
    return f"{agent}.model.{role}" if role else f"{agent}.model"


def is_of_a_model(tool: str) -> bool:
    """Whether operations of that name are requests to a model: no plain tool can be called so."""
    return _OF_A_MODEL.fullmatch(tool) is not None


def model_tool(name: str) -> Brought:
    """Requests to one model of an agent, as a tool."""
    policy = ToolPolicy(
        "idempotent", dedupes_for=_ALWAYS, raises=(ModelRefused,), not_sent=(AskedAgain,), retry=MODEL_RETRY,
        timeout=MODEL_TIMEOUT, harmless=True,
    )  # fmt: skip
    return Brought(name, policy, Signature.of(_request, skip=1, where=name), _request)


def unit_tool(name: str) -> Brought:
    """Another unit of a framework: looking up which tools a server has, a method of a capability."""
    return Brought(name, ToolPolicy("read"), Signature.of(_unit, skip=1, where=name), _unit)


def plain_tool(
    name: str, effect: Effect, schema: Mapping[str, Any], source: Callable[..., object] | None = None, *,
    timeout: timedelta = TOOL_TIMEOUT,
) -> Brought:  # fmt: skip
    """A tool that a framework knows by its JSON schema, with the parameters that this names."""
    policy = ToolPolicy(effect, raises=(ToolSaid,), timeout=timeout)
    return Brought(name, policy, _signature(name, schema), source or _unit)


ANY: Mapping[str, Any] = {"additionalProperties": True}
"""The schema of tools that nobody can name beforehand: what fits them is found out when they are called."""


def check_agent_name(name: str) -> None:
    """Raises Refused for a name with which all that the agent calls would be named as requests to a model are."""
    if is_of_a_model(f"{name}.tool"):
        raise Refused(what=f"an agent called {name}", why="requests to models are named so; name it without .model.")


def tool_name(agent: str, name: str) -> str:
    """What calls of a plain tool of an agent are called in the log."""
    plain = f"{agent}.{name.replace('/', '_')}"
    return f"{agent}.tool-{plain.removeprefix(f'{agent}.')}" if is_of_a_model(plain) else plain


def by_name(agent: str, name: str, effects: Mapping[str, Effect], *, tools: bool) -> Brought | None:
    """What can be decided about an operation of an agent by its name alone: a request to a model, and where the agent
    has `tools` that only a server or a wrapper can name, a call of one of them.
    """
    if not name.startswith(f"{agent}."):
        return None
    if is_of_a_model(name):
        return model_tool(name)
    own = name.removeprefix(f"{agent}.").removeprefix("tool-")
    return plain_tool(name, effects.get(own, "external"), ANY) if tools else None


def storable(value: JsonValue) -> JsonValue:
    """The value without what no database takes in a text: NUL and lone surrogates are replaced."""
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, list):
        return [storable(one) for one in value]
    if isinstance(value, dict):
        return {writable(name): storable(one) for name, one in value.items()}
    return value


def _signature(name: str, schema: Mapping[str, Any]) -> Signature:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    named = isinstance(properties, dict) and all(isinstance(one, dict) for one in properties.values())
    if schema.get("additionalProperties") or not named or not all(map(_can_be_named, properties)):
        properties, required = {"arguments": {}}, ("arguments",)
    first = inspect.Parameter("op", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [
        inspect.Parameter(
            one, inspect.Parameter.KEYWORD_ONLY,
            # Left out or given as it would be anyway, by one framework or another: it is the same call.
            default=inspect.Parameter.empty if one in required else properties[one].get("default"),
        )
        for one in properties
    ]  # fmt: skip

    async def shape(op: object) -> JsonValue:
        raise NotImplementedError

    cast(Any, shape).__signature__ = inspect.Signature([first, *parameters])
    shape.__annotations__ = dict.fromkeys(properties, JsonValue) | {"return": JsonValue}
    return Signature.of(shape, skip=1, where=name)


def _can_be_named(parameter: str) -> bool:
    """Whether a parameter of ours can be called so. The first one is the operation."""
    return parameter.isidentifier() and not keyword.iskeyword(parameter) and parameter not in ("op", "arguments")
