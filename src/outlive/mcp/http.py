"""The server over streamable HTTP, and who its clients are.

A client is known by a bearer token: a secret, read anew at each request, compared in constant time.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from mcp.server.lowlevel import Server

from outlive.mcp.server import CALLER
from outlive.secret.port import Secrets

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH = "/mcp"


def make_http(
    server: Server[Any], *, host: str = "127.0.0.1", clients: Mapping[str, str] | None = None,
    secrets: Secrets | None = None,
) -> Application:  # fmt: skip
    """An ASGI application that serves at `/mcp`, with nothing of a connection kept between requests.

    With `clients`, a secret's name by the name of the client, only who shows one of these secrets gets in, and it is
    that client who asks. Without, everybody who reaches the port does: for this machine alone.
    """
    inner: Application = server.streamable_http_app(streamable_http_path=PATH, stateless_http=True, host=host)
    if not clients:
        return inner
    assert secrets is not None, "who names clients says where their secrets are"
    return _Authenticated(inner, dict(clients), secrets)


class _Authenticated:
    """Lets in who shows a client's secret, and writes the client's name into the scope."""

    def __init__(self, inner: Application, clients: Mapping[str, str], secrets: Secrets) -> None:
        self._inner, self._clients, self._secrets = inner, clients, secrets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name.lower() == b"authorization"), b"")
        kind, _, token = given.partition(b" ")
        caller = await asyncio.to_thread(self._caller, token.strip()) if kind.lower() == b"bearer" else None
        if caller is None:
            headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._inner({**scope, CALLER: caller}, receive, send)

    def _caller(self, token: bytes) -> str | None:
        """Whose token it is; all are compared, so that how long it takes says nothing."""
        found = None
        for name, secret in self._clients.items():
            value = self._secrets.get(secret)
            if value and hmac.compare_digest(value.strip().encode(), token):
                found = name
        return found
