"""A gate before a server that listens: it lets requests through, turns some away, and cuts others off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

Verdict = Literal["pass", "cut", "401", "429"]
_ANSWERS = {
    "401": b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    "429": b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
}


@asynccontextmanager
async def gate(
    url: str, judge: Callable[[bytes], Verdict], acted: Callable[[], Awaitable[object]] | None = None
) -> AsyncIterator[str]:
    """The URL of a gate: each request is judged by its body, and *cut* when the server has `acted` on it."""
    inner = urlsplit(url)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            length = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
            body = await reader.readexactly(sum(length))
            verdict = judge(body)
            if verdict in _ANSWERS:
                writer.write(_ANSWERS[verdict])
            else:
                theirs, ours = await asyncio.open_connection(inner.hostname, inner.port)
                ours.write(b"\r\n".join([lines[0], b"connection: close", *lines[1:]]) + body)
                if verdict == "cut" and acted is not None:
                    await acted()
                while verdict == "pass" and (piece := await theirs.read(65_536)):
                    writer.write(piece)
                ours.close()
        writer.close()

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{inner.path}"
