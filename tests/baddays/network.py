"""The way to the server, which can be cut or turn into a black hole: packets vanish, and nobody is told."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, quote, urlsplit

_Pair = tuple[asyncio.StreamWriter, asyncio.StreamWriter]


@dataclass
class Network:
    """Forwards all connections to the server."""

    server: str
    url: str
    cuts: int = 0
    swallow: bytes = b""
    """What a client may not say: from there on its connection is a black hole."""
    swallowed: asyncio.Event = field(default_factory=asyncio.Event)
    _dark: bool = False
    _pairs: set[_Pair] = field(default_factory=set)
    _lost: set[_Pair] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def cut(self) -> None:
        """End all connections, on both sides at once."""
        self.cuts += len(self._pairs)
        for pair in self._pairs:
            for end in pair:
                end.transport.abort()

    def darken(self) -> None:
        """From here on nothing that is sent arrives, new connections included."""
        self._dark = True

    def lighten(self) -> None:
        """New connections work; those that there were in the dark are never heard of again."""
        self._dark = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one of its sides ends it."""
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        await asyncio.wait([task])
        self._tasks.discard(task)
        if not task.cancelled() and not isinstance(task.exception(), OSError | None):
            task.result()

    async def close(self) -> None:
        """End everything."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self.server)
        pair = (writer, up_writer)
        self._pairs.add(pair)
        if self._dark:
            self._lost.add(pair)
        ways = [
            asyncio.ensure_future(self._forward(reader, up_writer, pair)),
            asyncio.ensure_future(self._forward(up_reader, writer, pair)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.discard(pair)
            self._lost.discard(pair)
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
            for end in pair:
                end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
        while data := await reader.read(2**16):
            if self.swallow and self.swallow in data:
                self.swallow = b""
                self._lost.add(pair)
                self.swallowed.set()
            if self._dark:
                self._lost.add(pair)
            if pair not in self._lost:
                writer.write(data)


N = TypeVar("N", bound=Network)


@asynccontextmanager
async def network(url: str) -> AsyncIterator[Network]:
    """A way of its own to the server of this URL."""
    async with way_of(Network, url) as here:
        yield here


@asynccontextmanager
async def way_of(kind: type[N], url: str) -> AsyncIterator[N]:
    """Such a way, of a kind that knows more."""
    options = parse_qs(urlsplit(url).query)
    [host], [port] = options["host"], options.get("port", ["5432"])
    with tempfile.TemporaryDirectory(prefix="outlive-net-") as folder:
        here = kind(f"{host}/.s.PGSQL.{port}", url.replace(quote(host, safe=""), quote(folder, safe="")))
        server = await asyncio.start_unix_server(here.serve, Path(folder) / f".s.PGSQL.{port}")
        try:
            yield here
        finally:
            server.close()
            await here.close()
