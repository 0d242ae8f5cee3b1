"""No room at the server: the limit of connections, and many workers that connect at once."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from outlive.store.postgres.connection import place_of
from tests.baddays.scene import bad_day
from tests.baddays.server import Server, own_server
from tests.baddays.waiting import until_now

LIMIT = 24


@pytest.fixture(scope="module")
def crowded() -> Iterator[Server]:
    """A server with few connections, and a role that is not let into the last three."""
    with own_server(max_connections=str(LIMIT + 3), superuser_reserved_connections="3") as here:
        here.ask("create role clerk login; grant create on database postgres to clerk")
        yield here


@pytest.fixture
def clerk(crowded: Server, tmp_path: Path) -> str:
    """Where the role's workers go."""
    schema = f"limits_{len(crowded.ask('select 1 from pg_namespace'))}"
    return f"{crowded.url.replace('//postgres@', '//clerk@')}&schema={schema}"


@contextmanager
def others(url: str) -> Iterator[Callable[[], None]]:
    """Somebody else takes every connection that is left, and each time that it is called those that are left then."""
    with ExitStack() as stack:

        def take() -> None:
            try:
                while True:
                    stack.enter_context(psycopg.connect(place_of(url).conninfo))
            except psycopg.OperationalError as full:
                assert "connection slots" in str(full) or "too many" in str(full)

        take()
        yield take


@pytest.mark.long
async def test_a_worker_waits_for_room(clerk: str, tmp_path: Path) -> None:
    async with bad_day(tmp_path, clerk) as day:
        await day.load(4, each=4)
        with others(clerk):
            day.workers(1)
            await day.written_is("the store cannot be opened, trying again")
            await day.written_is("remaining connection slots are reserved")
            assert day.scene.counted_now() == {}
        await day.judged()


@pytest.mark.long
async def test_no_room_for_a_new_connection_while_runs_are_driven(crowded: Server, clerk: str, tmp_path: Path) -> None:
    async with bad_day(tmp_path, clerk) as day:
        day.workers(1)
        await day.begun()
        await day.load()
        await day.effects(15)
        with others(clerk) as take:

            def crowd_out() -> bool:
                """The worker may be faster than they are, now and then."""
                crowded.ask(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name ~ '^outlive'"
                )
                take()
                return "remaining connection slots are reserved" in day.written()

            await asyncio.to_thread(until_now, crowd_out, "the worker finds no room")
        await day.judged()


@pytest.mark.long
async def test_fifty_workers_connect_at_once(tmp_path: Path) -> None:
    """Each needs four connections (appends, renewals, hints, the pool's first); there is hardly room for five each."""
    with own_server(max_connections=str(5 * 50 + 10), superuser_reserved_connections="3") as server:
        server.ask("create role clerk login; grant create on database postgres to clerk")
        url = server.url.replace("//postgres@", "//clerk@")
        async with bad_day(tmp_path, url, lease_s=9.0) as day:
            for _ in range(5):
                day.crowd(10)
            await day.in_number(50)
            await day.load(50, each=4)
            await day.judged()
            assert len(server.backends("renewals")) == 50
