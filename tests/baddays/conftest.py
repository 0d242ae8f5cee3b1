"""A server for the tests of a module, and for each test a schema of its own with two workers."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.baddays.scene import BadDay, bad_day
from tests.baddays.server import Server, own_server

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Ours to be stopped and killed."""
    with own_server() as here:
        yield here


@pytest.fixture
def url(server: Server) -> str:
    """A schema of its own."""
    return f"{server.url}&schema=day_{next(_NUMBERS)}"


@pytest.fixture
async def day(url: str, tmp_path: Path) -> AsyncIterator[BadDay]:
    """Two workers that serve."""
    async with bad_day(tmp_path, url) as here:
        here.workers()
        await here.begun()
        yield here
