"""Between a store and its server: writes down every statement of every connection, as it is on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit


class Wiretap:
    """Forwards all connections. `statements` are the texts of those that the server was told to execute."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._serving: set[asyncio.Task[None]] = set()
        self.statements: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        await asyncio.wait([task])
        self._serving.discard(task)

    async def close(self) -> None:
        """Return once every connection has ended; those who have opened them must have closed them."""
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._server)
        answers = asyncio.ensure_future(_forward(up_reader, writer))
        try:
            await self._listen(reader, up_writer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            up_writer.close()
            await asyncio.wait([answers])
            for one in (writer, up_writer):
                one.close()
                await one.wait_closed()

    async def _listen(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter) -> None:
        # The first message has no kind: its length, and who wants to connect to what.
        up.write(await _message(reader, await reader.readexactly(4)))
        prepared = dict[bytes, bytes]()
        portal = b""
        while True:
            kind = await reader.readexactly(1)
            message = await _message(reader, await reader.readexactly(4))
            fields = message[4:].split(b"\0")
            match kind:
                case b"Q":
                    self.statements.append(fields[0])
                case b"P":
                    prepared[fields[0]] = fields[1]
                case b"B":
                    portal = prepared[fields[1]]
                case b"E":
                    self.statements.append(portal)
                case _:
                    pass
            up.write(kind + message)


@asynccontextmanager
async def tapped(url: str, folder: Path) -> AsyncIterator[tuple[Wiretap, str]]:
    """A wiretap, and the URL that leads through it."""
    [host] = parse_qs(urlsplit(url).query)["host"]
    tap = Wiretap(f"{host}/.s.PGSQL.5432")
    server = await asyncio.start_unix_server(tap.serve, folder / ".s.PGSQL.5432")
    try:
        yield tap, url.replace(quote(host, safe=""), quote(str(folder), safe=""))
    finally:
        server.close()
        await tap.close()


async def _message(reader: asyncio.StreamReader, length: bytes) -> bytes:
    return length + await reader.readexactly(int.from_bytes(length) - 4)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(2**16):
        writer.write(data)
    writer.close()
