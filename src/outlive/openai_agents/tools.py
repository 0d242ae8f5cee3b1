"""Tools of the SDK in a run: plain ones as operations that are named by the agent, registered ones as themselves."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, cast

import agents
from agents import FunctionTool, RunContextWrapper
from agents.exceptions import ModelBehaviorError, UserError
from agents.function_schema import function_schema
from agents.tool import maybe_invoke_function_tool_failure_error_function as told_by
from agents.tool_context import ToolContext
from pydantic import BaseModel, JsonValue
from pydantic_core import to_jsonable_python

from outlive.engine.callables import run_callable
from outlive.engine.definition import TOOL_TIMEOUT, Agent, Tool, ToolSpec
from outlive.engine.guest import Brought
from outlive.engine.operation import Operation, sending
from outlive.harness.units import Json, ToolSaid, plain_tool, tool_name
from outlive.model.errors import Abandoned, BadArguments, NotSerialisable, Rejected, ToolFailed, UndecodableEntry
from outlive.model.operation import Effect
from outlive.openai_agents.items import shown
from outlive.openai_agents.lanes import Turning, driving

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]
_REFUSED = "a person has refused this: "


def toolset(*tools: Tool[..., Any]) -> list[agents.Tool]:
    """Registered tools for an agent: `Agent(…, tools=[*toolset(charge, refund)])`.

    The model is shown their parameters and docstrings. What it calls is what `run.call` would do: effect, approval,
    key and retries are those of the tool. It is told of a refusal and of a failure; while a call is in doubt the run
    waits. They can be called only in a run.
    """
    return [_shown_to_model(one, _Registered(one)) for one in tools]


class Prompted(BaseModel):
    """What an agent that is used as a tool is asked."""

    input: str


def tool_of(agent: Agent[str, Any], *, name: str | None = None, description: str = "") -> FunctionTool:
    """A registered agent as a tool of another one: what it does is recorded in the same run, request by request."""
    named, schema = name or agent.name, {**Prompted.model_json_schema(), "additionalProperties": False}
    return FunctionTool(named, description or f"Ask {agent.name}.", schema, _Used(agent))


def operation() -> Operation[Any]:
    """In a plain tool that a run calls: its operation, whose `key` tells one call from another, on every attempt.

    Raises UserError elsewhere. A registered tool is given its operation.
    """
    op = sending.get()
    if op is None:
        raise UserError("no run is calling a tool here")
    return op


class OfRuns:
    """A tool that is recorded by itself."""

    name: str

    async def __call__(self, ctx: ToolContext[Any], text: str) -> Any:
        """Make the call, in the scope of its lane."""
        raise NotImplementedError

    def turning(self) -> Turning:
        """What calls it. Raises UserError outside of runs."""
        turning = driving.get()
        if turning is None or sending.get() is not None:
            raise UserError(f"{self.name} is a tool of runs: it can be called only by an agent in a run")
        return turning


class _Registered(OfRuns):
    def __init__(self, tool: ToolSpec) -> None:
        self.name, self._tool = tool.name, tool
        self._told: tuple[type[Exception], ...] = (ToolFailed, Abandoned, *tool.policy.raises)

    async def __call__(self, ctx: ToolContext[Any], text: str) -> Any:
        turning, lane = self.turning(), ctx.tool_call_id
        try:
            arguments = self._tool.signature.decode(text or "{}", where=f"the arguments of {self.name}")
            notes = turning.ledger.notes(lane)
            given = await turning.guest.call(self._tool, arguments, lane=lane, made=notes)
        except (UndecodableEntry, BadArguments, NotSerialisable) as wrong:
            return f"these arguments do not fit: {wrong}"
        except Rejected as rejected:
            return f"{_REFUSED}{rejected.reason}"
        except self._told as failed:
            return f"{type(failed).__name__}: {failed}"
        return shown(json.loads(self._tool.signature.result.encode(given, where=self.name)))


class _Used(OfRuns):
    def __init__(self, agent: Agent[str, Any]) -> None:
        self.name, self._agent = agent.name, agent

    async def __call__(self, ctx: ToolContext[Any], text: str) -> Any:
        turning = self.turning()
        try:
            prompt = Prompted.model_validate_json(text).input
        except ValueError as wrong:
            return f"these arguments do not fit: {wrong}"
        given = await turning.guest.ask(lambda: turning.run.use(self._agent, prompt), ctx.tool_call_id)
        return shown(to_jsonable_python(given))


def _shown_to_model(tool: ToolSpec, invoke: Invoke) -> FunctionTool:
    schema = function_schema(_shape(tool), strict_json_schema=False)
    return FunctionTool(
        tool.name, schema.description or "", schema.params_json_schema, invoke, strict_json_schema=False,
    )  # fmt: skip


def _shape(tool: ToolSpec) -> Callable[..., Any]:
    """A function with the parameters and the docstring of the tool, without its operation."""

    def shape(**arguments: object) -> None:
        raise NotImplementedError

    given = tool.signature.parameters
    cast(Any, shape).__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, annotation=one.annotation,
                default=inspect.Parameter.empty if one.required else one.default,
            )
            for one in given
        ]
    )  # fmt: skip
    shape.__annotations__ = {one.name: one.annotation for one in given}
    shape.__name__, shape.__doc__ = tool.name, inspect.getdoc(inspect.unwrap(tool.fn))
    return shape


def plain(agent: str, name: str, tool: FunctionTool, effect: Effect) -> Brought:
    """What calls of a tool of the SDK are in the log. Its parameters may be left out, as other frameworks do."""
    schema = {**tool.params_json_schema, "required": ()}
    seconds = tool.timeout_seconds
    timeout = timedelta(seconds=seconds) if seconds is not None else TOOL_TIMEOUT
    return plain_tool(tool_name(agent, name), effect, schema, _source(tool), timeout=timeout)


def _source(tool: FunctionTool) -> Callable[..., object] | None:
    try:
        return cast("Callable[..., object]", inspect.unwrap(tool.__wrapped__))
    except AttributeError:
        return tool.on_invoke_tool if inspect.isfunction(tool.on_invoke_tool) else None


def recorded(turning: Turning, name: str, tool: FunctionTool, effect: Effect) -> FunctionTool:
    """A plain tool whose calls go through the log: approvals, timeouts and failures are the run's."""
    return replace(_bare(tool), on_invoke_tool=_Plain(turning, name, tool, effect), needs_approval=False)


def _bare(tool: FunctionTool) -> FunctionTool:
    """The tool without what turns its failures into texts: a run has to know of them."""
    return replace(tool, timeout_seconds=None, _failure_error_function=None, _use_default_failure_error_function=False)


class _Plain:
    def __init__(self, turning: Turning, name: str, tool: FunctionTool, effect: Effect) -> None:
        self._turning, self._tool, self._bare = turning, tool, _bare(tool)
        self._spec = turning.ledger.tool(name, lambda: plain(turning.ledger.agent, name, tool, effect))

    async def __call__(self, ctx: ToolContext[Any], text: str) -> Any:
        arguments = _object(text)
        if arguments is None:
            return await self._failed(ctx, ModelBehaviorError(f"Invalid JSON input for tool {self._tool.name}"))

        async def do(approved: Json) -> JsonValue:
            kept = {key: one for key, one in approved.items() if one is not None or key in arguments}
            given = text if kept == arguments else json.dumps(kept)
            return await _done(self._bare, ctx, given)

        try:
            by_people = await self._needs_approval(ctx, arguments)
            return shown(
                await self._turning.ledger.plain(
                    self._spec, arguments, do, call_id=ctx.tool_call_id, by_people=by_people
                )
            )  # fmt: skip
        except ToolSaid as said:
            return await self._failed(ctx, ModelBehaviorError(str(said.said["message"])))
        except (BadArguments, NotSerialisable) as wrong:
            return await self._failed(ctx, ModelBehaviorError(str(wrong)))
        except Rejected as rejected:
            return f"{_REFUSED}{rejected.reason}"
        except (ToolFailed, Abandoned) as failed:
            return await self._failed(ctx, failed)

    async def _needs_approval(self, ctx: RunContextWrapper[Any], arguments: Json) -> bool:
        rule = self._tool.needs_approval
        if isinstance(rule, bool):
            return rule
        return bool(await run_callable(rule, ctx, arguments, cast("ToolContext[Any]", ctx).tool_call_id))

    async def _failed(self, ctx: ToolContext[Any], error: Exception) -> str:
        """What the model is told, as the tool says. Raises the error for a tool that says that it ends the run."""
        text = await told_by(function_tool=self._tool, context=ctx, error=error)
        if text is None:
            raise error
        return text


def _object(text: str) -> Json | None:
    try:
        read = json.loads(text or "{}")
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


async def _done(tool: FunctionTool, ctx: ToolContext[Any], text: str) -> JsonValue:
    """What the tool gives, as JSON. What it was never called for, because the arguments do not fit, is said so."""
    try:
        given = await tool.on_invoke_tool(ctx, text)
    except ModelBehaviorError as error:
        if not _only_in_the_sdk(error.__traceback__):
            raise
        raise ToolSaid("arguments", {"message": str(error)}) from error
    return cast(JsonValue, to_jsonable_python(given, fallback=str))


def _only_in_the_sdk(trace: TracebackType | None) -> bool:
    """Whether no code but that of the SDK's own tools had begun."""
    trace = trace.tb_next if trace is not None else None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") != "agents.tool":
            return False
        trace = trace.tb_next
    return True
