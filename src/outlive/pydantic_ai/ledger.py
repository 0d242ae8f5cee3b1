"""What pydantic-ai does in a run, as calls of that run: requests and plain tools as operations, the rest as steps.

pydantic-ai hands over the body of each durable unit; what is asked, and whether it has been done already, the log says.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter, ValidationError
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
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import ToolsetTool

from outlive.engine.definition import ToolSpec
from outlive.engine.guest import Guest
from outlive.harness import ledger
from outlive.harness.units import ANY, AskedAgain, Json, ModelRefused, ToolSaid, plain_tool, storable, tool_name
from outlive.model.approval import Approval
from outlive.model.errors import Abandoned, BadArguments, NotSerialisable, Rejected, ToolFailed
from outlive.pydantic_ai.messages import brief, response_of
from outlive.pydantic_ai.servers import Effects, watched

Body = Callable[[], Coroutine[object, object, object]]


class ContextTooLong(ModelAPIError):
    """The conversation is longer than the model takes."""


class Ledger(ledger.Ledger):
    """One pydantic-ai agent in one turn of a run."""

    def __init__(
        self, guest: Guest, agent: str, tools: Mapping[str, ToolSpec], effects: Effects, approval: Approval
    ) -> None:  # fmt: skip
        super().__init__(guest, agent, tools, approval)
        self._effects = effects
        self.named: dict[str, str] = {}
        """What the model has called each tool, by the id of the call: wrappers of toolsets give other names."""

    async def request(self, name: str, model: str, prompt: str, body: Body) -> Json:
        """One request to a model, recorded once: its response as JSON. Raises what pydantic-ai knows."""

        async def asking() -> Json:
            message = response_of(cast(Json, storable(cast(Json, await _classified(body, model)))))
            if message.usage.cost is None:
                message.usage.cost = _priced(message)
            return {"response": brief(message)}

        try:
            recorded = await self.model(name, model, prompt, asking)
        except ModelRefused as refused:
            raise _as_theirs(refused) from refused
        response = recorded["response"]
        assert isinstance(response, dict)
        return response if "kind" in response else brief(response_of(response))

    async def call(
        self, name: str, theirs: ToolsetTool[Any] | ToolDefinition, arguments: dict[str, Any], ctx: RunContext[Any],
        body: Body,
    ) -> object:  # fmt: skip
        """One call of a plain tool, recorded once: how it ended as data, as pydantic-ai's codec gives it."""
        name = self.named.get(str(ctx.tool_call_id), name)
        definition = theirs if isinstance(theirs, ToolDefinition) else theirs.tool_def
        effect = self._effects.of(name, definition)
        tool = self.tool(name, lambda: plain_tool(tool_name(self.agent, name), effect, ANY))
        asked: Json = _jsonable.dump_python(arguments, mode="json")

        async def doing(approved: Json) -> JsonValue:
            if approved != asked:
                given = _edited(theirs, {key: one for key, one in approved.items() if one is not None or key in asked})
                arguments.clear()
                arguments.update(given)
            return _bare(cast(Json, await watched(getattr(theirs, "toolset", None), body)))

        call_id, by_people = str(ctx.tool_call_id), bool(ctx.tool_call_approved)
        try:
            return _whole(await self.plain(tool, asked, doing, call_id=call_id, by_people=by_people))
        except ToolSaid as said:
            return said.said
        except Rejected as rejected:
            return _failed(f"a person has refused this: {rejected.reason}")
        except (ToolFailed, Abandoned, BadArguments, NotSerialisable) as failed:
            return _failed(str(failed))


def _edited(theirs: ToolsetTool[Any] | ToolDefinition, arguments: Json) -> dict[str, Any]:
    """Arguments that a person has edited, as the tool takes them. Raises ToolSaid for what it does not."""
    try:
        return arguments if isinstance(theirs, ToolDefinition) else theirs.args_validator.validate_python(arguments)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        failed = _failed(f"nothing was done: a person has edited the arguments, and they do not fit: {wrong}")
        raise ToolSaid("tool_failed", failed) from error


def _failed(message: str) -> Json:
    return {"kind": "tool_failed", "message": message}


def _bare(ended: Json) -> JsonValue:
    """What is recorded of how a plain tool ended: its result, which is also what a person can say in doubt."""
    kind = ended["kind"]
    if kind == "tool_return" and not _is_wrapped(ended["result"]):
        return ended["result"]
    if kind in _WRAPPERS:
        return ended
    raise ToolSaid(str(kind), ended)


def _whole(recorded: JsonValue) -> Json:
    """How it ended, of what is recorded."""
    if isinstance(recorded, dict) and _is_wrapped(recorded):
        return recorded
    return {"kind": "tool_return", "result": recorded}


_WRAPPERS = ("tool_return", "tool_content_result")


def _is_wrapped(result: JsonValue) -> bool:
    """Whether it looks as what is not bare does: then it is recorded in a wrapper, whatever it is."""
    return isinstance(result, dict) and result.get("kind") in _WRAPPERS


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


def _priced(message: ModelResponse) -> Any:
    try:
        return message.cost().total_price
    except (LookupError, ValueError, AssertionError):
        return None


_jsonable: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
