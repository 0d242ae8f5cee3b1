"""Tools of MCP servers as tools of an application: each call is an operation, with the effect that the code declares.

What a server says of itself decides nothing, unless the operator has a listing of it that they believe. To register
needs no server: it is reached when a worker makes the first call, and again when it was lost. A call of which anything
has gone out is never sent a second time from here: what may be repeated, the engine repeats.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

from mcp import Client, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    RequestParamsMeta,
)
from mcp_types import Tool as Listed
from pydantic import JsonValue, TypeAdapter, ValidationError

from outlive.app.compose import secrets_of
from outlive.app.outlive import Outlive
from outlive.engine.callables import describe, placeholder
from outlive.engine.definition import DEDUPES_FOR, SETTLE_AFTER, TOOL_TIMEOUT, Tool, ToolPolicy
from outlive.engine.operation import Operation
from outlive.mcp.reach import KEY, Http, Stdio, Way, Ways
from outlive.model.approval import Approval
from outlive.model.errors import Refused
from outlive.model.operation import Effect, Retry
from outlive.model.signals import NotSent
from outlive.secret.port import read_secret

D = TypeVar("D")
Arguments = dict[str, JsonValue]

log = logging.getLogger("outlive.mcp")

_HANDSHAKE_S = 30.0
_MOST_PAGES = 100
# Of the time that a call may take.
_TO_CONNECT = 0.8
_ANSWERS: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool has answered: `content` as MCP has it (texts, images and others), `structured` where there is one."""

    content: list[dict[str, JsonValue]]
    structured: JsonValue = None

    @property
    def text(self) -> str:
        """Its texts, one below the other."""
        return "\n".join(str(one["text"]) for one in self.content if one.get("type") == "text")


class ToolError(Exception):
    """The tool has answered that it failed, or the server that it does not do this (`code` of JSON-RPC): an outcome."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Interrupted(Exception):
    """The connection ended, or the answer could not be read, after the call had gone out: it may have acted."""


class ToolServer:
    """An MCP server, whose tools an application calls: `ToolServer(app, "desk", Stdio("desk-server"))`.

    Each worker of the application has one connection of its own, made at the first call, and closes it when it has
    drained. Elsewhere, as in a lab, `async with server.connected():` does that.
    """

    def __init__(self, app: Outlive[D], name: str, at: Stdio | Http) -> None:
        self.name, self._at, self._app = name, at, app
        self._lines: list[_Line] = []
        self._declared: dict[str, Effect | None] = {}
        self._believed: dict[str, Listed] = {}
        self._told = False
        opened = app.deps

        @asynccontextmanager
        async def deps() -> AsyncIterator[D]:
            async with opened() as made, self.connected():
                yield made

        app.deps = deps

    def tool(  # noqa: PLR0913 - what can be said of a tool
        self, name: str, *, effect: Effect | None = None, settle_after: timedelta = SETTLE_AFTER,
        dedupes_for: timedelta = DEDUPES_FOR, timeout: timedelta = TOOL_TIMEOUT, retry: Retry | None = None,
        approval: Approval | Callable[..., Approval | None] | None = None,
        compensate: Callable[[Operation[Any]], object] | Tool[[], object] | None = None,
        key: Callable[..., str] | None = None, reconcile: Callable[..., Any] | None = None,
    ) -> Tool[[Arguments], Answer]:  # fmt: skip
        """Register a tool of the server, by the name that it has there; it takes its arguments as one object.

        `effect` is what repeating it would do, *external* if nothing is said; all else is as for `app.tool`. An answer
        that it failed raises ToolError. Raises Refused for what cannot be kept, and DuplicateName.
        """
        policy = ToolPolicy(
            effect or "external", reconcile, settle_after, dedupes_for, (ToolError,), (), timeout, retry or Retry(),
            approval, compensate, key,
        )  # fmt: skip
        return self._register(name, policy, effect, sys._getframe(1))

    def tools(
        self, listing: str | Path, *, effects: Mapping[str, Effect] | None = None, believe_hints: bool = False
    ) -> dict[str, Tool[[Arguments], Answer]]:
        """Register all tools of a listing that `record` has written, by their names.

        `effects` says what repeating them would do; what is not named is *external*. With `believe_hints` it is what
        the listing says: `readOnlyHint` is *read*, `idempotentHint` is *idempotent*. A tool of which the server has
        taken its hint back is not called any more. Raises Refused for a name that is not listed.
        """
        listed = {one.name: one for one in _Listings.validate_json(Path(listing).read_bytes())}
        declared = dict(effects or {})
        if unknown := sorted(set(declared) - set(listed)):
            raise Refused(what=f"effects={{{unknown[0]!r}: …}} of {self.name}", why=f"it has no such tool in {listing}")
        made = {}
        for name, one in listed.items():
            hinted = _hinted(one) if believe_hints and name not in declared else None
            effect = declared.get(name, hinted)
            policy = ToolPolicy(effect or "external", raises=(ToolError,))
            made[name] = self._register(name, policy, effect, sys._getframe(1))
            if hinted is not None:
                self._believed[name] = one
        return made

    async def record(self, listing: str | Path) -> None:
        """Ask the server which tools it has, and write that down, for `tools`."""
        known = self._app.secrets or secrets_of(self._app.settings())

        async def secret(name: str) -> str:
            return await asyncio.to_thread(read_secret, known, name)

        async with self._at.open({}, secret) as streams, Client(_Given(streams), cache=None) as client:
            found = sorted(await _list(client), key=lambda one: one.name)
        shown = json.loads(_Listings.dump_json(found, by_alias=True, exclude_none=True))
        text = json.dumps(shown, indent=1, ensure_ascii=False) + "\n"
        await asyncio.to_thread(Path(listing).write_text, text, "utf-8")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Have a place for the connection, which the first call makes, until the block ends."""
        failed: BaseException | None = None
        async with asyncio.TaskGroup() as group:
            line = _Line(self.name, self._at, self._look, group)
            self._lines.append(line)
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised below, as it is and not in a group
                failed = error
            finally:
                self._lines.remove(line)
                line.close()
        if failed is not None:
            raise failed

    def _register(
        self, name: str, policy: ToolPolicy, effect: Effect | None, frame: FrameType
    ) -> Tool[[Arguments], Answer]:  # fmt: skip
        made: Tool[[Arguments], Answer] = Tool(f"{self.name}.{name}", _body(self, name, policy.timeout), policy)
        made.source = placeholder(frame)
        made.where = describe(made.source)
        self._app.registry.add_tool(made)
        self._declared[name] = effect
        return made

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        for line in reversed(self._lines):
            if line.loop is loop:
                return line
        raise NotSent(f"{self.name} is connected by workers; elsewhere use `async with server.connected():`")

    async def _call(self, op: Operation[Any], name: str, arguments: Arguments, timeout: timedelta) -> Answer:
        line = self._line()
        for last in (False, True):
            try:
                # Nothing is sent meanwhile: to use up the time of the call would make that doubt.
                async with asyncio.timeout(timeout.total_seconds() * _TO_CONNECT):
                    live = await line.live(op.secret)
            except TimeoutError as error:
                raise NotSent(f"{self.name} could not be reached in time") from error
            try:
                return await self._over(live, op, name, arguments)
            except _Stale as stale:
                line.drop(live)
                if last:
                    raise NotSent(str(stale)) from stale
                log.info("%s: %s; connecting anew", self.name, stale)
            finally:
                if live.broken:
                    line.drop(live)
        raise AssertionError("unreachable")

    async def _over(self, live: _Live, op: Operation[Any], name: str, arguments: Arguments) -> Answer:
        """One request. Raises _Stale where nothing of it can have reached a server that would do it."""
        if name in live.withdrawn:
            raise NotSent(f"{self.name} no longer says of {name} what is believed of it; look, and record it anew")
        way = live.ways[op.key] = Way(op)
        try:
            answered = await live.ask(name, arguments, op.key)
        except MCPError as error:
            raise _meaning(error, way, live) from error
        except ValidationError as error:
            raise Interrupted(f"{self.name} has answered what is no answer: {error}") from error
        finally:
            live.left(op.key)
        if isinstance(answered, InputRequiredResult):
            raise Interrupted(f"{name} of {self.name} asks for input, which nobody can give here")
        content = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in answered.content]
        answer = Answer(content, answered.structured_content)
        if answered.is_error:
            raise ToolError(answer.text or f"{name} of {self.name} has failed")
        return answer

    def _look(self, listed: Mapping[str, Listed]) -> set[str]:
        """What a server says of its tools, when it is connected: told once where that is not believed; and of which
        ones it has taken back what is.
        """
        said = {name: _hinted(one) for name, one in listed.items() if self._declared.get(name, "") is None}
        if hints := {name: hint for name, hint in said.items() if hint is not None and name not in self._believed}:
            if not self._told:
                log.info("%s says of its tools %s; nobody declared that, they are external", self.name, hints)
            self._told = True
        return {
            name for name, one in self._believed.items() if name not in listed or _hinted(listed[name]) != _hinted(one)
        }


class _Stale(Exception):
    """The connection was no good, and the call is certain not to have acted."""


class _Given:
    """Streams that are open already, as a transport."""

    def __init__(self, streams: Any) -> None:
        self._streams = streams

    async def __aenter__(self) -> Any:
        return self._streams

    async def __aexit__(self, *_: object) -> None:
        return None


class _Live:
    """One connection, once it is ready."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.ways: Ways = {}
        self.withdrawn: set[str] = set()
        self.broken = self._dropped = False

    def drop(self) -> None:
        """Nothing more comes; it ends with the last call that is still on its way."""
        self._dropped = True
        if not self.ways:
            self.over.set()

    def left(self, key: str) -> None:
        """That call is not on its way any more."""
        del self.ways[key]
        if self._dropped:
            self.drop()

    async def ask(self, name: str, arguments: Arguments, key: str) -> CallToolResult | InputRequiredResult:
        """The request itself. Nothing is looked up behind the answer: that is the outcome, whatever its schema."""
        params = CallToolRequestParams(name=name, arguments=dict(arguments), _meta=cast(RequestParamsMeta, {KEY: key}))
        return await self.ready.result().session.send_request(CallToolRequest(params=params), _ANSWERS)


class _Line:
    """At most one connection at a time, kept by a task in the group of whoever opened it."""

    def __init__(
        self, name: str, at: Stdio | Http, look: Callable[[Mapping[str, Listed]], set[str]], group: asyncio.TaskGroup
    ) -> None:  # fmt: skip
        self.loop = asyncio.get_running_loop()
        self._name, self._at, self._look, self._group = name, at, look, group
        self._now: _Live | None = None
        self._every: dict[_Live, asyncio.Task[None]] = {}

    async def live(self, secret: Callable[[str], Any]) -> _Live:
        """The connection, made if there is none. Raises NotSent where it cannot be made."""
        live = self._now
        if live is None or live.over.is_set():
            live = self._now = _Live()
            self._every[live] = self._group.create_task(self._keep(live, secret))
        try:
            await asyncio.shield(live.ready)
        except NotSent as error:
            raise NotSent(str(error)) from error
        return live

    def drop(self, live: _Live) -> None:
        """Not this one any more, for calls to come."""
        if self._now is live:
            self._now = None
        live.drop()

    def close(self) -> None:
        """End all there are; the group waits for that."""
        for live, task in self._every.items():
            live.over.set()
            if not live.ready.done():
                task.cancel()

    async def _keep(self, live: _Live, secret: Callable[[str], Any]) -> None:
        """Never raises but for a cancellation: the group is that of a worker."""
        why = "it was closed"
        try:
            async with asyncio.timeout(_HANDSHAKE_S) as bound:
                async with self._at.open(live.ways, secret) as streams, Client(_Given(streams), cache=None) as client:
                    live.withdrawn = self._look({one.name: one for one in await _list(client)})
                    bound.reschedule(None)
                    live.ready.set_result(client)
                    await live.over.wait()
        except Exception as error:  # noqa: BLE001 - whatever kept it: nothing of a call was sent
            why = _plain(error)
            log.info("%s: %s", self._name, why)
        finally:
            self._every.pop(live, None)
            if self._now is live:
                self._now = None
            live.over.set()
            if not live.ready.done():
                live.ready.set_exception(NotSent(f"{self._name} cannot be reached: {why}"))
                live.ready.exception()  # who waited may be gone


def _body(server: ToolServer, name: str, timeout: timedelta) -> Callable[..., Any]:
    async def call(op: Operation[Any], arguments: Arguments) -> Answer:
        return await server._call(op, name, arguments, timeout)

    call.__name__ = call.__qualname__ = f"{server.name}.{name}"
    call.__doc__ = f"{name} of the MCP server {server.name}."
    return call


def _meaning(error: MCPError, way: Way, live: _Live) -> Exception:
    """What an error says about the effect of the call."""
    said, code = error.error.message, error.error.code
    if way.kept:
        live.broken = way.again_from_start
        return way.not_sent()
    if not way.handed_on:
        return _Stale("the connection had ended")
    if code == HEADER_MISMATCH or (code == INVALID_REQUEST and said == "Session terminated"):
        return _Stale(f"the server does not know this connection any more ({said})")
    if code in (METHOD_NOT_FOUND, INVALID_PARAMS):
        return ToolError(said, code)
    if code == CONNECTION_CLOSED:
        live.broken = True
    return Interrupted(said)


def _hinted(tool: Listed) -> Effect | None:
    hints = tool.annotations
    if hints is None:
        return None
    return "read" if hints.read_only_hint else "idempotent" if hints.idempotent_hint else None


_Listings: TypeAdapter[list[Listed]] = TypeAdapter(list[Listed])


async def _list(client: Client) -> list[Listed]:
    found: list[Listed] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page: ListToolsResult = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return found


def _plain(error: BaseException) -> str:
    """The first that went wrong, without the groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
