"""What pydantic-ai does in a run, as calls of that run: requests and plain tools as operations, the rest as steps.

pydantic-ai hands over the body of each durable unit; what is asked, and whether it has been done already, the log
says. A model request is an operation that may be repeated (nobody is harmed, but it costs), so that one whose worker
was lost is seen, and counted as possibly paid for. A plain tool is *external* unless its effect was declared.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Annotated, Any, cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
)
from pydantic_ai.messages import ModelResponse
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool

from outlive.engine.definition import ToolPolicy, ToolSpec
from outlive.engine.guest import Brought, Guest
from outlive.log.codec import NotDigested, Signature
from outlive.model.approval import Approval
from outlive.model.errors import Rejected, ToolFailed
from outlive.model.operation import Effect, Retry
from outlive.pydantic_ai.messages import Json, brief, response_of

log = logging.getLogger("outlive.pydantic_ai")

Body = Callable[[], Coroutine[object, object, object]]

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

    def __init__(self, kind: str, said: dict[str, JsonValue]) -> None:
        super().__init__(kind, said)

    @property
    def said(self) -> Json:
        """As pydantic-ai's codec gives it."""
        return cast(Json, self.args[1])


class ContextTooLong(ModelAPIError):
    """The conversation is longer than the model takes."""


async def _request(
    op: object, /, *, model: Annotated[str, NotDigested], prompt: Annotated[str, NotDigested]
) -> dict[str, JsonValue]:
    """What the signature of model requests is made of. Nothing is digested: a recorded response is history."""
    raise NotImplementedError


async def _unit(op: object) -> JsonValue:
    """What the signature of other units is made of."""
    raise NotImplementedError


def model_tool(name: str) -> Brought:
    """Requests to one model of an agent, as a tool."""
    policy = ToolPolicy(
        "idempotent", dedupes_for=_ALWAYS, raises=(ModelRefused,), not_sent=(AskedAgain,), retry=MODEL_RETRY,
        timeout=MODEL_TIMEOUT,
    )  # fmt: skip
    return Brought(name, policy, Signature.of(_request, skip=1, where=name), _request)


def is_of_a_model(tool: str) -> bool:
    """Whether operations of that name are requests to a model: no plain tool can be called so."""
    return _OF_A_MODEL.fullmatch(tool) is not None


def unit_tool(name: str) -> Brought:
    """Another unit of pydantic-ai: looking up which tools a server has, a method of a capability."""
    return Brought(name, ToolPolicy("read"), Signature.of(_unit, skip=1, where=name), _unit)


def plain_tool(name: str, effect: Effect, schema: Mapping[str, Any], source: Callable[..., object]) -> Brought:
    """A tool that pydantic-ai knows by its JSON schema, with the parameters that this names."""
    return Brought(name, ToolPolicy(effect, raises=(ToolSaid,)), _signature(name, schema), source)


def _signature(name: str, schema: Mapping[str, Any]) -> Signature:
    properties, required = schema.get("properties", {}), schema.get("required", ())
    if not all(one.isidentifier() for one in properties) or schema.get("additionalProperties"):
        properties, required = {"arguments": {}}, ("arguments",)
    first = inspect.Parameter("op", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [
        inspect.Parameter(
            one, inspect.Parameter.KEYWORD_ONLY, default=inspect.Parameter.empty if one in required else None
        )
        for one in properties
    ]  # fmt: skip

    async def shape(op: object) -> JsonValue:
        raise NotImplementedError

    cast(Any, shape).__signature__ = inspect.Signature([first, *parameters])
    shape.__annotations__ = dict.fromkeys(properties, JsonValue) | {"return": JsonValue}
    return Signature.of(shape, skip=1, where=name)


class Ledger:
    """One pydantic-ai agent in one turn of a run: its units as calls."""

    def __init__(
        self, guest: Guest, agent: str, tools: Mapping[str, ToolSpec], effects: Mapping[str, Effect], approval: Approval
    ) -> None:  # fmt: skip
        self.guest, self.agent = guest, agent
        self._tools, self._effects, self._approval = dict(tools), effects, approval
        self.response = ""
        """The key of the call that has the response of this turn."""
        self.keys: dict[str, str] = {}
        """The keys of the tools' calls that have their outcome, by the id that the model gave the call."""

    async def model(self, name: str, model: str, prompt: str, body: Body) -> object:
        """One request to a model, recorded once: its response as JSON. Raises what pydantic-ai knows."""
        tool = self._tool(name, lambda: model_tool(name))

        async def recording(arguments: dict[str, object]) -> object:
            return _with_cost(cast(Json, await _classified(body, model)), prompt)

        def made(key: str) -> None:
            self.response = key

        try:
            asked = {"model": model, "prompt": prompt}
            recorded = cast(Json, await self.guest.call(tool, asked, body=recording, made=made))
        except ModelRefused as refused:
            raise _as_theirs(refused) from refused
        if recorded.get("prompt") != prompt:
            log.info("%s was asked under another prompt or with other tools than it has now", name)
        return recorded["response"]

    async def tool(
        self, name: str, theirs: ToolsetTool[Any], arguments: dict[str, Any], ctx: RunContext[Any], body: Body
    ) -> object:  # fmt: skip
        """One call of a plain tool, recorded once: how it ended as data, as pydantic-ai's codec gives it."""
        own, effect = f"{self.agent}.{name}", self._effects.get(name, "external")
        tool = self._tool(own, lambda: plain_tool(own, effect, theirs.tool_def.parameters_json_schema, _unit))
        asked = _asked(tool, arguments)
        by_name = asked.keys() == arguments.keys()

        async def doing(approved: dict[str, object]) -> object:
            if approved != asked:
                given = approved if by_name else cast("dict[str, object]", approved["arguments"])
                kept = {key: one for key, one in given.items() if one is not None or key in arguments}
                validated = theirs.args_validator.validate_python(kept)
                arguments.clear()
                arguments.update(validated)
            return _bare(cast(Json, await body()))

        approval = self._approval if ctx.tool_call_approved else None
        lane = str(ctx.tool_call_id)
        try:
            given = await self.guest.call(
                tool, asked, body=doing, lane=lane, approval=approval, made=self.notes(lane)
            )  # fmt: skip
            return given if _is_rich(given) else {"kind": "tool_return", "result": given}
        except ToolSaid as said:
            return said.said
        except Rejected as rejected:
            return {"kind": "tool_failed", "message": f"a person has refused this: {rejected.reason}"}
        except ToolFailed as failed:
            return {"kind": "tool_failed", "message": str(failed)}

    async def unit(self, name: str, body: Body) -> object:
        """Another unit, recorded once; it may be repeated until it is."""

        async def doing(arguments: dict[str, object]) -> object:
            return await body()

        return await self.guest.call(self._tool(name, lambda: unit_tool(name)), {}, body=doing)

    def notes(self, call_id: str) -> Callable[[str], None]:
        """What is to be told of a call of a tool: where its outcome is."""

        def made(key: str) -> None:
            self.keys[call_id] = key

        return made

    def _tool(self, name: str, make: Callable[[], ToolSpec]) -> ToolSpec:
        if name not in self._tools:
            self._tools[name] = make()
        return self._tools[name]


def _bare(ended: Json) -> JsonValue:
    """What is recorded of how a plain tool ended: its result, which is also what a person can say in doubt."""
    if ended["kind"] == "tool_return":
        return ended["result"]
    if _is_rich(ended):
        return ended
    raise ToolSaid(str(ended["kind"]), ended)


def _is_rich(given: object) -> bool:
    """Whether it is a result with content beside it."""
    return isinstance(given, dict) and given.get("kind") == "tool_content_result"


async def _classified(body: Body, model: str) -> object:
    """Do it, and say of an error what it means for asking again.

    What may pass although it may have been done, and paid for, is in doubt, and asked again. What would come out the
    same, or is nobody's answer but a mistake of code, is final.
    """
    try:
        return await body()
    except (ModelRateLimitError, ModelUnavailableError) as error:
        headers = getattr(error, "headers", None) or {}
        raise AskedAgain(str(error), headers.get("retry-after")) from error
    except (ModelServerError, ModelConnectionError, OSError):
        raise
    except ModelAPIError as error:
        status = error.status_code if isinstance(error, ModelHTTPError) else None
        if status is not None and (status >= 500 or status in (408, 409)):
            raise
        context = isinstance(error, ModelContextWindowExceededError)
        raise ModelRefused(str(error), model, status, context=context) from error
    except Exception as error:
        raise ModelRefused(f"{type(error).__name__}: {error}", model, None) from error


def _as_theirs(refused: ModelRefused) -> AgentRunError:
    if refused.context:
        return ContextTooLong(refused.model, refused.message)
    if refused.status is not None:
        return ModelHTTPError(refused.status, refused.model, refused.message)
    return ModelAPIError(refused.model, refused.message)


def _with_cost(response: Json, prompt: str) -> Json:
    """What is recorded of a response: what it says, under which prompt, and what it cost, as far as that is known."""
    message = response_of(response)
    recorded: Json = {"response": brief(message), "prompt": prompt}
    cost = message.usage.cost if message.usage.cost is not None else _priced(message)
    if cost is not None:
        recorded["cost"] = str(cost)
    return recorded


def _priced(message: ModelResponse) -> object:
    try:
        return message.cost().total_price
    except (LookupError, ValueError, AssertionError):
        return None


_jsonable: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def _asked(tool: ToolSpec, arguments: dict[str, Any]) -> Json:
    """The arguments as data, by the names of the tool's parameters."""
    plain: Json = _jsonable.dump_python(arguments, mode="json")
    names = [one.name for one in tool.signature.parameters]
    return {"arguments": plain} if names == ["arguments"] and set(plain) != {"arguments"} else plain
