"""A way to the server on which each statement is seen: before it goes out, and when its answer is there and not read.

It knows enough of the protocol for that and changes nothing, except that somebody dies at one statement.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.baddays.network import Network, way_of

_ENDS = re.compile(r"(commit|rollback)\b", re.I)
_FLUSH = b"H" + struct.pack(">I", 4)


class Point(NamedTuple):
    """Before or after a statement of a transaction, by its number from 1; its `begin` is the first."""

    when: str
    number: int

    def __str__(self) -> str:
        return f"{self.when}-{self.number}"


def point_of(name: str) -> Point | None:
    """A point by its name; None for what is the name of none."""
    found = re.fullmatch(r"(before|after)-(\d+)", name)
    return Point(found[1], int(found[2])) if found else None


@dataclass
class Talk:
    """One connection: who is at its ends (`client` and `backend` are process ids), and what was said."""

    client: int
    name: str = ""
    backend: int = 0
    counting: bool = False
    statements: list[str] = field(default_factory=list)
    sent: int = 0
    answered: int = 0
    awaited: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    texts: dict[bytes, str] = field(default_factory=dict)


@dataclass
class Tap(Network):
    """`aim` says where somebody dies, by the name of the connection; `strike` is how."""

    begins: str = "begin"
    aim: Callable[[str], Point | None] = point_of
    strike: Callable[[Talk], None] = lambda talk: None
    whole: list[list[str]] = field(default_factory=list)
    """The statements of each transaction that came to its end."""
    struck: list[Point] = field(default_factory=list)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self.server)
        talk = Talk(_peer(writer))
        ways = [
            asyncio.ensure_future(self._asked(talk, reader, up_writer)),
            asyncio.ensure_future(self._answers(talk, up_reader, writer)),
        ]
        try:
            await asyncio.wait([*ways, over := asyncio.ensure_future(talk.over.wait())], return_when="FIRST_COMPLETED")
            over.cancel()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            for end in (writer, up_writer):
                end.transport.abort()
        for way in ways:
            if not way.cancelled() and not isinstance(way.exception(), OSError | EOFError):
                way.result()

    async def _asked(self, talk: Talk, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        [size] = struct.unpack(">I", head := await reader.readexactly(4))
        body = await reader.readexactly(size - 4)
        words = body[4:].split(b"\0")
        talk.name = dict(zip(words[::2], words[1::2], strict=False)).get(b"application_name", b"").decode()
        server.write(head + body)
        while True:
            kind, whole, body = await _message(reader)
            if kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                talk.texts[name] = text.decode()
            elif kind == b"B":
                portal, name, _ = body.split(b"\0", 2)
                talk.texts[b"portal " + portal] = talk.texts[name]
            elif kind == b"Q":
                await self._statement(talk, body[:-1].decode(), whole, server)
                continue
            elif kind == b"E":
                await self._statement(talk, talk.texts[b"portal " + body.split(b"\0")[0]], whole, server)
                continue
            server.write(whole)

    async def _statement(self, talk: Talk, text: str, whole: bytes, server: asyncio.StreamWriter) -> None:
        if not talk.counting and text.lower().startswith(self.begins):
            talk.counting, talk.statements = True, []
        here = None
        if talk.counting:
            talk.statements.append(text)
            here = self.aim(talk.name)
        number = len(talk.statements)
        if here == Point("before", number):
            await self._strikes(talk, here)
        talk.sent += 1
        if here == Point("after", number):
            talk.awaited = talk.sent
        # In a pipeline the server would keep its answer until it is asked for it.
        server.write(whole + (_FLUSH if talk.awaited and whole[:1] == b"E" else b""))
        if talk.awaited:
            await talk.over.wait()
        if talk.counting and _ENDS.match(text):
            talk.counting = False
            self.whole.append(talk.statements)

    async def _answers(self, talk: Talk, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        while True:
            kind, whole, body = await _message(reader)
            if kind == b"K":
                talk.backend = int(struct.unpack(">I", body[:4])[0])
            if kind in (b"C", b"I", b"E"):
                talk.answered += 1
                if talk.answered == talk.awaited:
                    await self._strikes(talk, Point("after", len(talk.statements)))
            client.write(whole)

    async def _strikes(self, talk: Talk, point: Point) -> None:
        self.struck.append(point)
        await asyncio.to_thread(self.strike, talk)
        talk.over.set()
        await asyncio.Event().wait()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes, bytes]:
    head = await reader.readexactly(5)
    [size] = struct.unpack(">I", head[1:])
    body = await reader.readexactly(size - 4)
    return head[:1], head + body, body


def _peer(writer: asyncio.StreamWriter) -> int:
    """The process at the other end of a socket of this machine."""
    end: socket.socket = writer.get_extra_info("socket")
    return int(struct.unpack("iII", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def kill_client(talk: Talk) -> None:
    """SIGKILL for the process that asks."""
    os.kill(talk.client, 9)


@asynccontextmanager
async def tapped(url: str, begins: str, strike: Callable[[Talk], None]) -> AsyncIterator[Tap]:
    """A way of its own to the server of this URL. Transactions are those that begin with these words."""
    async with way_of(Tap, url) as tap:
        tap.begins, tap.strike = begins, strike
        yield tap
