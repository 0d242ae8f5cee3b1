"""Servers as processes of the real command, over both transports, on both stores."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.cli.conftest import ROOT
from tests.cli.waiting import Place, Process
from tests.mcp.tasks import Tasks

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, ROOT)
    made.env["OUTLIVE_LEASE"] = "2s"
    yield made
    made.close()


def on(request: pytest.FixtureRequest, place: Place, store: str) -> str:
    """The URL of a store, which the processes of `place` use from now on."""
    url = f"sqlite:///{place.path}/runs.db" if store == "sqlite" else request.getfixturevalue("postgres")
    place.env["OUTLIVE_STORE"] = url
    return str(url)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, place: Place) -> str:
    """A store of each kind."""
    return on(request, place, request.param)


def child(place: Place, *arguments: str, tasks: bool = True, mode: str = "auto") -> Client:
    """A client with a server as its child."""
    command = ["-m", "outlive", "mcp", *arguments]
    server = StdioServerParameters(command=sys.executable, args=command, env=place.env, cwd=place.path)
    return Client(server, extensions=[Tasks()] if tasks else None, mode=mode, cache=None)


def listening(place: Place, *arguments: str) -> tuple[Process, str]:
    """A server that listens on a port of its own, and its URL."""
    process = place.outlive("mcp", "--transport", "http", "--port", "0", *arguments)
    return process, process.line("serving MCP at ").split()[-1]


WAYS = ("stdio sqlite", "http postgres")
ALL_WAYS = (*WAYS, "stdio postgres", "http sqlite")


@pytest.fixture(params=WAYS)
def connect(request: pytest.FixtureRequest, place: Place) -> Connect:
    """Starts a server and a client of it; both are gone at the end of the block."""
    transport, kind = request.param.split()
    on(request, place, kind)

    @asynccontextmanager
    async def over_http(*arguments: str, tasks: bool = True, mode: str = "auto") -> AsyncIterator[Client]:
        process, url = listening(place, *arguments)
        try:
            async with Client(url, extensions=[Tasks()] if tasks else None, mode=mode, cache=None) as client:
                yield client
        finally:
            process.end()

    @asynccontextmanager
    async def over_stdio(*arguments: str, tasks: bool = True, mode: str = "auto") -> AsyncIterator[Client]:
        async with child(place, *arguments, tasks=tasks, mode=mode) as client:
            yield client

    return over_stdio if transport == "stdio" else over_http
