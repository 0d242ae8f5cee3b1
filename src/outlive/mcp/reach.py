"""How a server of tools is reached, and what is known of each call's way there: whether anything of it has gone out.

A call is found by the key in its `_meta`, wherever its request comes by: before it is handed to the transport, and over
HTTP again at the connection. There its operation is asked for leave. What was not handed on was not sent; that is
certain, and all else is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
from anyio import BrokenResourceError, ClosedResourceError
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCRequest

from outlive.engine.operation import Operation, guarding
from outlive.model.errors import Refused
from outlive.model.signals import NotSent

KEY = "outlive/key"
"""In the `_meta` of a call: the idempotency key of its operation, for a server that knows it."""

# Not let in, and told to come later: a request that was answered so was not acted on.
_TURNED_AWAY = (401, 403, 407, 429)

Streams = tuple[Any, Any]


class TurnedAway(NotSent):
    """Nothing has acted on it; `retry_after` is the header that says when to come again."""

    def __init__(self, why: str, retry_after: str | None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


@dataclass(slots=True)
class Way:
    """One call on its way: was it handed on, and what kept it, where something did: nobody has acted on it then."""

    op: Operation[Any]
    handed_on: bool = False
    kept: str = ""
    retry_after: str | None = None
    again_from_start: bool = False

    def refused(self, response: httpx2.Response) -> bool:
        """Whether the request was turned away, by whoever lets requests in."""
        if response.status_code not in _TURNED_AWAY:
            return False
        self.kept = f"HTTP {response.status_code} {response.reason_phrase}"
        self.retry_after = response.headers.get("retry-after")
        # The secret is read anew with the connection.
        self.again_from_start = response.status_code != 429
        return True

    def not_sent(self) -> NotSent:
        """What kept it, with when to come again."""
        return TurnedAway(self.kept, self.retry_after)


Ways = dict[str, Way]


class Stdio:
    """A server that the worker starts as its child: a command and its arguments.

    `env` is added to the few variables that it inherits; `secrets` too, by the name of a secret that is read when it is
    started.
    """

    def __init__(
        self, command: str, *arguments: str, env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None, cwd: str | os.PathLike[str] | None = None,
    ) -> None:  # fmt: skip
        self.command, self.arguments = command, arguments
        self.env, self.secrets, self.cwd = dict(env or {}), dict(secrets or {}), cwd

    def __repr__(self) -> str:
        return f"Stdio({self.command!r})"

    @asynccontextmanager
    async def open(self, ways: Ways, secret: Callable[[str], Awaitable[str]]) -> AsyncIterator[Streams]:
        """Start it; its streams."""
        read = {variable: await secret(name) for variable, name in self.secrets.items()}
        cwd = Path(self.cwd) if self.cwd is not None else None
        process = StdioServerParameters(
            command=self.command, args=list(self.arguments), env={**self.env, **read}, cwd=cwd
        )  # fmt: skip
        async with stdio_client(process) as (incoming, outgoing):
            yield incoming, _Outgoing(outgoing, ways)


@dataclass(frozen=True, slots=True)
class Http:
    """A server that listens at a URL (streamable HTTP). `secret` is the name of the secret that is its bearer token."""

    url: str
    secret: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.secret and any(name.lower() == "authorization" for name in self.headers):
            raise Refused(what=f"secret={self.secret!r} of {self.url}", why="its headers have an Authorization already")

    @asynccontextmanager
    async def open(self, ways: Ways, secret: Callable[[str], Awaitable[str]]) -> AsyncIterator[Streams]:
        """Streams over a client of our own. Nothing is sent before there is something to say."""
        headers = dict(self.headers)
        if self.secret:
            headers["Authorization"] = f"Bearer {await secret(self.secret)}"
        # How long an answer takes is bounded by the time-out of its tool.
        patience = httpx2.Timeout(30.0, read=None)
        async with httpx2.AsyncClient(headers=headers, timeout=patience, transport=_Carrier(ways)) as client:
            async with streamable_http_client(self.url, http_client=client) as (incoming, outgoing):
                yield incoming, _Outgoing(outgoing, ways)


class _Outgoing:
    """What goes to a transport: a call is asked for here, on the task that makes it."""

    def __init__(self, inner: Any, ways: Ways) -> None:
        self._inner, self._ways = inner, ways

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        way = self._ways.get(_key(message.params)) if isinstance(message, JSONRPCRequest) else None
        if way is None:
            await self._inner.send(item)
            return
        way.op.guard()
        way.handed_on = True
        try:
            await self._inner.send(item)
        except (BrokenResourceError, ClosedResourceError):
            way.handed_on = False  # nobody was there to take it
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:  # fmt: skip
        done: bool | None = await self._inner.__aexit__(kind, error, trace)
        return done


def _key(params: Mapping[str, Any] | None) -> str:
    meta = (params or {}).get("_meta")
    return str(meta.get(KEY, "")) if isinstance(meta, Mapping) else ""


class _Carrier(httpx2.AsyncBaseTransport):
    """HTTP for one connection, on which a request that fails ends itself and no other.

    To the transport of MCP an exception is the end of the connection, with every call on it. So it is told of a failure
    as of an answer of the server's: a JSON-RPC error, for this request alone.
    """

    def __init__(self, ways: Ways) -> None:
        self._inner, self._ways = httpx2.AsyncHTTPTransport(), ways

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        way = self._ways.get(_key_of(request)) if request.method == "POST" else None
        if way is None:
            return await self._inner.handle_async_request(request)
        request.extensions = {**request.extensions, "trace": guarding(way.op, request.extensions.get("trace"))}
        try:
            way.op.guard()
            response = await self._inner.handle_async_request(request)
            if way.refused(response):
                await response.aclose()
                return _failed(request, way.kept)
            if response.headers.get("content-type", "").lower().startswith("application/json"):
                await response.aread()
        except NotSent as error:
            way.kept = str(error)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            way.kept = f"{type(error).__name__}: {error}"
        except httpx2.TransportError as error:
            return _failed(request, f"{type(error).__name__}: {error}")
        else:
            return response
        return _failed(request, way.kept)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _key_of(request: httpx2.Request) -> str:
    try:
        said = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return ""
    return _key(said.get("params")) if isinstance(said, dict) and said.get("method") == "tools/call" else ""


def _failed(request: httpx2.Request, why: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": why}}
    return httpx2.Response(502, json=error, request=request)
