"""Registered tools as tools of a pydantic-ai agent: the same schema, and each call one of the run."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from pydantic import BaseModel
from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai import Tool as FrameworkTool
from pydantic_ai.exceptions import ToolFailed as TellModel
from pydantic_ai.exceptions import UserError

from outlive.engine.definition import Tool, ToolSpec
from outlive.engine.operation import Operation, sending
from outlive.model.errors import Abandoned, BadArguments, NotSerialisable, Rejected, ToolFailed
from outlive.pydantic_ai.driver import driving
from outlive.pydantic_ai.durability import KEY
from outlive.pydantic_ai.ledger import Ledger
from outlive.pydantic_ai.view import NOTE


def toolset(*tools: Tool[..., Any], id: str = "outlive") -> FunctionToolset[Any]:
    """Registered tools for an agent: `Agent(…, toolsets=[toolset(charge, refund)])`.

    The model is shown their parameters and docstrings. What it calls is what `run.call` would do: effect, approval,
    key and retries are those of the tool. It is told of a refusal and of a failure; while a call is in doubt the run
    waits. They can be called only in a run.
    """
    return FunctionToolset([_tool(one) for one in tools], id=id)


class Note(BaseModel):
    """A note that an agent has made for whoever goes on with its work."""

    agent: str
    text: str


def notes(*, id: str = "outlive-notes") -> FunctionToolset[Any]:
    """A tool `note` for an agent: `Agent(…, toolsets=[notes()])`. Its notes are for whoever goes on with the work.

    They stay in view when the conversation is summed up, and followers of the run see each as the event *note*.
    """

    async def note(ctx: RunContext[Any], text: str) -> str:
        """Keep a note for whoever goes on with this work: what is decided, done, or still open.

        It stays in view when this conversation is shortened.
        """
        ledger = _driving("note")
        await ledger.guest.emit(NOTE, Note(agent=ledger.agent, text=text), lane=str(ctx.tool_call_id))
        return "noted"

    return FunctionToolset([FrameworkTool(note, name=NOTE, metadata={KEY: False})], id=id)


def _driving(tool: str) -> Ledger:
    ledger = driving.get()
    if ledger is None:
        raise UserError(f"{tool} is a tool of runs: it can be called only in a run")
    return ledger


def operation() -> Operation[Any]:
    """In a plain tool that a run calls: its operation, whose `key` tells one call from another, on every attempt.

    Raises UserError elsewhere. A registered tool is given its operation.
    """
    op = sending.get()
    if op is None:
        raise UserError("no run is calling a tool here")
    return op


def _tool(tool: ToolSpec) -> FrameworkTool[Any]:
    return FrameworkTool(_function(tool), name=tool.name, takes_ctx=True, metadata={KEY: False})


def _function(tool: ToolSpec) -> Callable[..., Awaitable[object]]:
    """A function with the parameters of the tool, whose first one is the context in the place of the operation."""
    told: tuple[type[Exception], ...] = (ToolFailed, Abandoned, *tool.policy.raises)

    async def call(ctx: RunContext[Any], /, **arguments: object) -> object:
        ledger = _driving(tool.name)
        lane = str(ctx.tool_call_id)
        by_people = bool(ctx.tool_call_approved)
        try:
            return await ledger.guest.call(
                tool, arguments, lane=lane, approval=ledger.approval, by_people=by_people, made=ledger.notes(lane)
            )  # fmt: skip
        except (BadArguments, NotSerialisable) as wrong:
            raise TellModel(str(wrong)) from wrong
        except Rejected as rejected:
            raise TellModel(f"a person has refused this: {rejected.reason}") from rejected
        except told as failed:
            raise TellModel(f"{type(failed).__name__}: {failed}") from failed

    names, context = {one.name for one in tool.signature.parameters}, "ctx"
    while context in names:
        context += "_"
    first = inspect.Parameter(context, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=RunContext[Any])
    given = [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, annotation=one.annotation,
            default=inspect.Parameter.empty if one.required else one.default,
        )
        for one in tool.signature.parameters
    ]  # fmt: skip
    cast(Any, call).__signature__ = inspect.Signature([first, *given])
    call.__annotations__ = {context: RunContext[Any]} | {one.name: one.annotation for one in tool.signature.parameters}
    call.__name__, call.__doc__ = tool.name, inspect.getdoc(inspect.unwrap(tool.fn))
    return call
