"""Tools of MCP servers in an agent of pydantic-ai: what repeating them would do, and what an error says about a call.

pydantic-ai tells the model to try again when a connection breaks amid a call, as after any other error: it does not ask
whether the call has acted. Here such a call is in doubt, and one that never began is known not to have been sent.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

import pydantic_ai
from pydantic import ValidationError
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset

from outlive.engine.operation import sending
from outlive.model.operation import Effect
from outlive.model.signals import NotSent

log = logging.getLogger("outlive.pydantic_ai")

KEY = "outlive/key"
"""In the `_meta` of a call: the idempotency key of its operation, for a server that knows it."""

# What JSON-RPC calls a method, or arguments, that there are none of: the server has answered that it does nothing.
_REFUSALS = (-32601, -32602)


class Interrupted(Exception):
    """The connection ended, or there was no answer, after the call had gone out: it may have acted."""


class Effects(dict[str, Effect]):
    """What repeating a plain tool would do, by its name: *external*, unless it is declared or a hint is believed."""

    def __init__(self, declared: Mapping[str, Effect], *, believe_hints: bool = False) -> None:
        super().__init__(declared)
        self._believe, self._told = believe_hints, set[str]()

    def of(self, name: str, tool: ToolDefinition) -> Effect:
        """The effect of a tool, as its toolset gives it."""
        if name in self:
            return self[name]
        hints = (tool.metadata or {}).get("annotations") or {}
        hint: Effect | None = (
            "read" if hints.get("readOnlyHint") else "idempotent" if hints.get("idempotentHint") else None
        )
        if hint is None or self._believe:
            return hint or "external"
        if name not in self._told:
            self._told.add(name)
            log.info("its server calls %s %s; nobody declared that, it is external", name, hint)
        return "external"


def served(agent: pydantic_ai.Agent[Any, Any]) -> bool:
    """Whether it has tools that only a server can name; their calls are watched from now on."""
    found: list[Any] = []

    def look(toolset: AbstractToolset[Any]) -> None:
        if is_of_a_server(toolset):
            found.append(toolset)

    for one in agent.toolsets:
        one.apply(look)
    for toolset in found:
        if not isinstance(toolset.process_tool_call, _Watch):
            toolset.process_tool_call = _Watch(toolset.process_tool_call)
    return bool(found)


def is_of_a_server(toolset: object) -> bool:
    """Whether it is the toolset of an MCP server."""
    # Whoever has one has imported it; to import it here would need its extra of pydantic-ai.
    module = sys.modules.get("pydantic_ai.mcp")
    return module is not None and isinstance(toolset, module.MCPToolset)


async def watched(toolset: object, body: Callable[[], Awaitable[object]]) -> object:
    """Make a call of a tool. Raises NotSent for an error of a server's where the call was not even begun."""
    if not is_of_a_server(toolset):
        return await body()
    begun: list[str] = []
    token = _begun.set(begun)
    try:
        return await body()
    except Exception as error:
        if begun:
            raise
        raise NotSent(f"the server cannot be reached: {type(error).__name__}: {error}") from error
    finally:
        _begun.reset(token)


_begun: ContextVar[list[str] | None] = ContextVar("outlive_begun", default=None)


class _Watch:
    """Stands before the hook that a toolset has for its calls. Outside of a run it only hands on."""

    def __init__(self, inner: Callable[..., Awaitable[Any]] | None) -> None:
        self._inner = inner

    async def __call__(self, ctx: Any, call: Callable[..., Awaitable[Any]], name: str, args: dict[str, Any]) -> Any:
        begun, op = _begun.get(), sending.get()
        if begun is None:
            return await (call(name, args) if self._inner is None else self._inner(ctx, call, name, args))

        async def guarded(name: str, args: dict[str, Any], *, metadata: dict[str, Any] | None = None) -> Any:
            if op is not None:
                op.guard()
                metadata = {**(metadata or {}), KEY: op.key}
            begun.append(name)
            try:
                return await call(name, args, metadata=metadata)
            except ModelRetry as retry:
                if retry.__cause__ is not None and not all(_is_an_answer(one) for one in _leaves(retry.__cause__)):
                    raise Interrupted(str(retry)) from retry
                raise
            except ValidationError as error:
                raise Interrupted(f"what was answered is no answer: {error}") from error

        return await (guarded(name, args) if self._inner is None else self._inner(ctx, guarded, name, args))


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]


def _is_an_answer(error: BaseException) -> bool:
    """Whether the server itself has said so: that its tool failed, or that it does not do this."""
    said = getattr(error, "error", None)
    if said is not None:
        return getattr(said, "code", None) in _REFUSALS
    return type(error).__name__ == "ToolError"
