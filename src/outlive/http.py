"""An httpx transport that asks the operation being sent for leave at the last moment before its bytes go out.

`httpx.AsyncClient(transport=GuardedTransport())`, in whatever `deps` opens, is all it takes (extra `http`). Outside an
operation that acts (in a step, a `read` tool, a look-up) it does nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx

from outlive.engine.operation import guarding, sending


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends through `inner` (default: an ordinary httpx transport), and only inside the send window.

    It calls `op.guard()` of the operation being sent when a request is handed on, and again when a connection is there
    and the first byte is about to be written: waiting for a free connection, DNS and TLS take their time. Past the
    window, or with the run lost, NotSent is raised and nothing was written. It adds no header and changes no answer.

    A process that is stopped between the check and the write sends after its window all the same; when it wakes, the
    transport notices and says so (`op.sent`). What it cannot see is an `inner` of another make that does not report its
    steps by httpx's `trace` extension; with such a one the first check is the only one.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._inner = inner if inner is not None else httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        op = sending.get()
        if op is not None:
            op.guard()
            request.extensions = {**request.extensions, "trace": guarding(op, request.extensions.get("trace"))}
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        at: TracebackType | None = None,
    ) -> None:
        await self._inner.__aexit__(kind, error, at)
