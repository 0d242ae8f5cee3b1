"""The two ways in which clients reach a server: as its parent over stdio, or over HTTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from typing import Any, TextIO

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from outlive.mcp.http import PATH, Application

Streams = tuple[Any, Any]


@asynccontextmanager
async def stdio(stdout: TextIO) -> AsyncIterator[Streams]:
    """The wire of this process, which nothing else writes to meanwhile: what code prints goes to stderr.

    A thread reads stdin until it ends: a process that is to end earlier leaves hard, from inside the block.
    """
    with redirect_stdout(stdout):
        async with stdio_server() as streams:
            yield streams


async def over_stdio(server: Server[Any], streams: Streams, stopped: asyncio.Event) -> None:
    """Serve until the client has gone, or `stopped` is set."""
    work = server.run(*streams, server.create_initialization_options())
    async with asyncio.TaskGroup() as group:
        tasks = {group.create_task(work), group.create_task(_until(stopped))}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


async def over_http(
    inner: Application, host: str, port: int, stopped: asyncio.Event, ready: Callable[[str], None]
) -> None:
    """Listen until `stopped` is set; `ready` is told the URL as soon as connections are taken. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as bound:
        config = uvicorn.Config(inner, log_config=None, access_log=False, timeout_graceful_shutdown=2, lifespan="on")
        http = _Server(config)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(http.serve(sockets=[bound]))
            shown = f"[{host}]" if ":" in host else host
            ready(f"http://{shown}:{bound.getsockname()[1]}{PATH}")
            waiting = group.create_task(_until(stopped))
            await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
            http.should_exit = True
            waiting.cancel()


async def _until(stopped: asyncio.Event) -> None:
    await stopped.wait()


class _Server(uvicorn.Server):
    """uvicorn, which leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
