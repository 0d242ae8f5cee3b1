"""A receiver of notifications: a real HTTP server that answers as a test says, and verifies as docs tell it to."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

SECRET = "a secret of the receiver"


@dataclass
class Request:
    """What arrived."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["outlive-id"]

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def genuine(headers: dict[str, str], body: bytes, now_s: int, secret: str = SECRET) -> bool:
    """As docs/notifications.md says it."""
    at = headers["outlive-timestamp"]
    signed = f"{headers['outlive-id']}.{at}.".encode() + body
    expected = "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, headers["outlive-signature"]) and abs(now_s - int(at)) <= 300


@dataclass
class Receiver:
    """What it got, and what it accepted. `answer` is what it says to the next requests; None: nothing at all."""

    url: str = ""
    answer: Callable[[Request], bytes | None] = lambda _: b"HTTP/1.1 204 No Content\r\n\r\n"
    got: list[Request] = field(default_factory=list)
    accepted: list[Request] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    at_once: int = 0
    most_at_once: int = 0

    def ids(self) -> Counter[str]:
        return Counter(one.id for one in self.accepted)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            request = Request(first.split()[1], headers, body)
            self.got.append(request)
            said = self.answer(request)
            self.arrived.set()
            if said is None:
                await reader.read()
                return
            if said.startswith(b"HTTP/1.1 2"):
                self.accepted.append(request)
            writer.write(said)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.at_once -= 1
            writer.close()


def says(status: str, headers: str = "", body: str = "") -> Callable[[Request], bytes]:
    """Always the same answer."""
    return lambda _: f"HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n{body}".encode()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver on a port of its own."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    async with server:
        receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook?from=outlive"
        yield receiver
        server.close()
