"""Between the store and the server: cuts the connection before, while or after the server executes an append."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, quote, urlsplit

Moment = Literal["before", "during", "after"]

_APPEND = b"with given as materialized"


class Proxy:
    """Forwards all connections; `cut_at` the next append, the connection that sends it is cut, once."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.cut_at: Moment | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends or is cut."""
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        await asyncio.wait([task])
        self._serving.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._server)
        except OSError:
            writer.close()  # nobody is there
            return
        self._writers |= {writer, up_writer}
        answers = asyncio.ensure_future(self._forward(up_reader, writer))
        try:
            while data := await reader.read(2**16):
                if self.cut_at is None or _APPEND not in data:
                    up_writer.write(data)
                    continue
                moment, self.cut_at = self.cut_at, None
                if moment != "before":
                    answers.cancel()
                    await asyncio.wait([answers])
                    up_writer.write(data)
                    await up_writer.drain()
                if moment == "after":
                    await up_reader.read(1)
                break
        finally:
            answers.cancel()
            for one in (writer, up_writer):
                self._writers.discard(one)
                one.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            writer.write(data)
        writer.close()

    def lead_to(self, url: str) -> None:
        """From now on to another server; the connections to the old one are cut."""
        self._server = _socket(url)
        self._cut()

    def _cut(self) -> None:
        for one in self._writers:
            one.close()

    async def close(self) -> None:
        """Cut all connections."""
        self._cut()
        if self._serving:
            await asyncio.wait(self._serving)


@asynccontextmanager
async def proxied(url: str, folder: Path) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy, and the URL that leads through it."""
    [host] = parse_qs(urlsplit(url).query)["host"]
    proxy = Proxy(_socket(url))
    server = await asyncio.start_unix_server(proxy.serve, folder / ".s.PGSQL.5432")
    (folder / ".s.PGSQL.5432").chmod(0o777)
    try:
        yield proxy, url.replace(quote(host, safe=""), quote(str(folder), safe=""))
    finally:
        server.close()
        await proxy.close()


def _socket(url: str) -> str:
    [host] = parse_qs(urlsplit(url).query)["host"]
    return f"{host}/.s.PGSQL.5432"
