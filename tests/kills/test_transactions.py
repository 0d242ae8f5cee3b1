"""A process dies before and after each statement of a transaction that has an effect and its record in it.

Exactly once is proven by a sum in the user's own table: each run has moved an amount of its own.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any

import psycopg
import pytest

from outlive import Handle, Outlive
from outlive.app.audit import check_chain
from outlive.app.settings import Settings
from outlive.model.errors import StoreUnavailable
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.run import RunFilter
from outlive.store.port import Store
from outlive.store.postgres.connection import place_of
from tests.app.callers import Caller, Kind, caller_on
from tests.baddays.scene import patiently
from tests.baddays.server import Server, alive, own_server
from tests.baddays.waiting import until_now
from tests.kills.doomed import order
from tests.kills.scene import PATIENCE, ROOT
from tests.kills.tap import Point, Talk, Tap, kill_client, point_of, tapped
from tests.kills.transfers import TABLES, Amount, app, moving, worker_environment
from tests.store.pooler import NEEDED, pooler

pytestmark = pytest.mark.timeout(300)
KINDS = ["sqlite3", "psycopg async", pytest.param("psycopg", marks=pytest.mark.long)]


@dataclass
class Death:
    """A process that was to die at a point, and what it was to move."""

    point: str
    cents: int
    died: bool


@dataclass
class Till:
    """The accounts, and the runs that move money between them."""

    kind: Kind
    url: str
    place: str
    user: Caller
    store: Store

    async def cents(self, account: str) -> int:
        [[cents]] = await self.user.do(f"select cents from account where name = '{account}'")
        await self.user.rollback()
        return int(cents)

    async def ordered(self) -> list[str]:
        found = await self.user.do("select run from ordered")
        await self.user.rollback()
        return [str(run) for (run,) in found]

    async def moved(self) -> list[tuple[str, int]]:
        found = await self.user.do("select run, cents from movement order by cents")
        await self.user.rollback()
        return [(str(run), int(cents)) for run, cents in found]

    async def recorded(self) -> list[tuple[str, int]]:
        """What the logs say that was moved, each with its chain checked."""
        said: list[tuple[str, int]] = []
        for row in await self.runs():
            await check_chain(self.store, DEFAULT_TENANT, row)
            for one in await self.store.operations(DEFAULT_TENANT, RunId(row)):
                assert (one.status, one.tool) == ("succeeded", "move")
                said.append((row, int(json.loads(one.arguments)["cents"])))
        return sorted(said, key=lambda one: one[1])

    async def runs(self) -> list[str]:
        return [row.id for row in await self.store.runs(DEFAULT_TENANT, RunFilter(limit=1000))]

    async def doomed(self, what: str) -> tuple[list[Death], list[str]]:
        """Processes that die at one statement after the other, the last of them at none; and the statements."""
        statements: list[str] = []
        if self.kind == "sqlite3":
            lines = await self._doomed(what, self.url)
            return _deaths(lines), [one for line in lines for one in line.get("statements", [])]
        begins = "begin isolation" if what == "tool" else "begin"
        async with tapped(self.url, begins, kill_client) as tap:
            lines = await self._doomed(what, tap.url)
            statements = tap.whole[-1]
        return _deaths(lines), statements

    async def _doomed(self, what: str, url: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "tests.kills.doomed", what, self.kind, url]
        environment = {**os.environ, "OUTLIVE_LEASE": "1s"}
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    async def worked(self, runs: list[str]) -> None:
        """A worker process ends what is left of these runs."""
        worker = _worker(self.url, *runs)
        try:
            for run in runs:
                await app.handle(moving, run).result(timeout=PATIENCE)
        finally:
            worker.kill()
            worker.wait()


def _deaths(lines: list[dict[str, Any]]) -> list[Death]:
    return [Death(str(one["point"]), int(str(one["cents"])), one["exit"] == -9) for one in lines if "point" in one]


@asynccontextmanager
async def till(
    kind: Kind, directory: Path, request: pytest.FixtureRequest, *, through: str = ""
) -> AsyncIterator[Till]:
    """With nothing in the accounts."""
    sqlite = kind == "sqlite3"
    place = str(directory / "runs.db") if sqlite else str(request.getfixturevalue("postgres"))
    url = f"sqlite:///{place}" if sqlite else through or place
    await app.open(Settings.load(store=url))
    try:
        async with caller_on(kind, place) as user:
            for table in TABLES:
                await user.do(table)
            await user.commit()
            yield Till(kind, url, place, user, app.opened)
    finally:
        await app.close()


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg async"], ids=["sqlite", "postgres"])
async def test_a_worker_dies_at_each_statement_of_a_transactional_tool(
    kind: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with till(kind, tmp_path, request) as here:
        await tool_at_each_statement(here)


async def tool_at_each_statement(here: Till) -> None:
    deaths, statements = await here.doomed("tool")
    last = _at_each(deaths, statements)
    assert sum("movement" in one or "account" in one for one in statements) == 4, "the tool's own are among them"
    # What is there is both there or neither: the effect, and the record that says so.
    done = [(one.point, one.cents) for one in deaths if not one.died or one.point == last]
    assert await here.moved() == await here.recorded() == done
    await here.worked([one.point for one in deaths])
    assert await here.moved() == await here.recorded() == [(one.point, one.cents) for one in deaths]
    assert await here.cents("safe") == -await here.cents("till") == 2 ** len(deaths) - 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_caller_dies_at_each_statement_of_the_transaction_that_starts_a_run(
    kind: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with till(kind, tmp_path, request) as here:
        await start_at_each_statement(here)


async def start_at_each_statement(here: Till) -> None:
    deaths, statements = await here.doomed("start")
    # On SQLite the first start of all makes the key of its tenant in the same transaction.
    last = _at_each(deaths, statements, more=2 if here.kind == "sqlite3" else 0)
    assert any("ordered" in one for one in statements) and any("owed" in one for one in statements)
    done = [one.point for one in deaths if not one.died or one.point == last]
    assert sorted(await here.runs()) == sorted(await here.ordered()) == sorted(done)
    # Nobody knows of a dead caller whether it has committed: the order is given again, all of them.
    for one in deaths:
        await order(here.user, one.point, one.cents)
    assert sorted(await here.runs()) == sorted(await here.ordered()) == sorted(one.point for one in deaths)
    await here.worked([one.point for one in deaths])
    assert await here.moved() == await here.recorded() == [(one.point, one.cents) for one in deaths]
    assert await here.cents("owed") == await here.cents("safe") == 2 ** len(deaths) - 1


@pytest.mark.parametrize(("at_each", "size"), [(tool_at_each_statement, 1), (start_at_each_statement, 2)])
@NEEDED[0]
@NEEDED[1]
async def test_behind_a_pooler_with_hardly_a_connection_each_is_done_once(
    at_each: Callable[[Till], Awaitable[None]],
    size: int,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    postgres: str,
) -> None:
    """In transaction mode: a transaction has its connection to itself. Who starts a run in one needs another for it."""
    with pooler(postgres, place_of(postgres).schema, default_pool_size=size) as way:
        async with till("psycopg async", tmp_path, request, through=way.url) as here:
            await at_each(here)


@NEEDED[0]
@NEEDED[1]
async def test_behind_a_pooler_with_one_connection_a_start_in_a_transaction_is_an_error_and_starts_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, postgres: str
) -> None:
    async with till("psycopg async", tmp_path, request) as here:
        with pooler(postgres, place_of(postgres).schema, default_pool_size=1) as way:
            async with Outlive(store=way.url) as behind, caller_on("psycopg async", way.url) as caller:
                behind.registry.agents.update(app.registry.agents)
                await caller.do("insert into ordered values ('it', 1)")
                with pytest.raises(StoreUnavailable):
                    await behind.start(moving, Amount(1), id="it", connection=caller.connection)
                await caller.rollback()
        assert await here.runs() == await here.ordered() == []


def _at_each(deaths: list[Death], statements: list[str], more: int = 0) -> str:
    """Every statement had a death before it and one behind it, from the first to the commit; gives the last of these.

    `statements` are those of the one that lived; each that died had so many more.
    """
    assert statements[-1].lower() == "commit"
    assert any(one.lower().startswith("begin") for one in statements)
    count = len(statements) + more
    each = [f"{when}-{number}" for number in range(1, count + 1) for when in ("before", "after")]
    assert [one.point for one in deaths if one.died] == each
    assert [one.point for one in deaths if not one.died] == [f"before-{count + 1}"]
    return each[-1]


@pytest.mark.parametrize("signal", [SIGTERM, pytest.param(SIGKILL, marks=pytest.mark.long)])
async def test_a_server_process_dies_at_each_statement_of_a_transactional_tool(signal: Signals) -> None:
    """SIGKILL for one of them ends them all: the server starts anew."""
    with own_server() as server:
        for table in TABLES:
            server.ask(table)
        async with _struck(server, "begin isolation", signal) as tap:
            await app.open(Settings.load(store=server.url))
            worker = _worker(tap.url, lease="15s")
            try:
                runs: list[str] = []
                while not runs or tap.struck == [point_of(one) for one in runs]:
                    aim = Point(("before", "after")[len(runs) % 2], len(runs) // 2 + 1)
                    tap.aim = _once(tap, aim)
                    start = partial(app.start, moving, Amount(2 ** len(runs)), id=str(aim))
                    runs.append(str(aim))
                    assert await patiently(partial(_result, await patiently(start))) == 2 ** (len(runs) - 1)
            finally:
                worker.kill()
                worker.wait()
                await app.close()
            assert len(tap.struck) >= 2 * 10 and tap.whole[-1][-1] == "commit"
            assert Point("after", len(tap.whole[-1])) == tap.struck[-1]
        each = [(run, 2**number) for number, run in enumerate(runs)]
        assert server.ask("select run, cents from movement order by cents") == each
        assert server.ask("select cents from account where name = 'safe'") == [(2 ** len(runs) - 1,)]


@pytest.mark.long
@pytest.mark.parametrize("signal", [SIGTERM, SIGKILL])
async def test_a_server_process_dies_at_each_statement_of_the_transaction_that_starts_a_run(signal: Signals) -> None:
    """Whoever starts it is told of an error, and gives the order again: it may have been taken, or not."""
    with own_server() as server:
        for table in TABLES:
            server.ask(table)
        async with _struck(server, "begin", signal) as tap:
            await app.open(Settings.load(store=server.url))
            try:
                orders: list[str] = []
                while not orders or tap.struck == [point_of(one) for one in orders]:
                    aim = Point(("before", "after")[len(orders) % 2], len(orders) // 2 + 1)
                    tap.aim = _once(tap, aim)
                    orders.append(str(aim))
                    await patiently(partial(_ordered, tap.url, str(aim), 2 ** (len(orders) - 1)))
                assert tap.whole[-1][-1].lower() == "commit" and len(tap.struck) == 2 * len(tap.whole[-1])
                worker = _worker(server.url, *orders)
                try:
                    for run in orders:
                        await _result(app.handle(moving, run))
                finally:
                    worker.kill()
                    worker.wait()
            finally:
                await app.close()
        sums = server.ask("select cents from account where name in ('owed', 'safe')")
        assert sums == [(2 ** len(orders) - 1,)] * 2
        assert server.ask("select count(*) from movement") == server.ask("select count(*) from ordered")


def _worker(url: str, *queues: str, lease: str = "1s") -> subprocess.Popen[bytes]:
    named = [part for queue in queues for part in ("--queue", queue)]
    command = [sys.executable, "-m", "outlive", "worker", "tests.kills.transfers:app", *named]
    return subprocess.Popen(command, cwd=ROOT, env=worker_environment(url, lease))


async def _result(run: Handle[int]) -> int:
    return await run.result(timeout=PATIENCE)


async def _ordered(url: str, run: str, cents: int) -> None:
    """Raises StoreError also where it is the caller's own statement that has lost its connection."""
    try:
        async with caller_on("psycopg async", url) as caller:
            await order(caller, run, cents)
    except psycopg.OperationalError as error:
        raise StoreUnavailable(store="the caller's", why=str(error)) from error


def _once(tap: Tap, aim: Point) -> Callable[[str], Point | None]:
    return lambda _: None if aim in tap.struck else aim


@asynccontextmanager
async def _struck(server: Server, begins: str, signal: Signals) -> AsyncIterator[Tap]:
    """A way to the server on which its own process at the other end is what dies."""

    def strike(talk: Talk) -> None:
        os.kill(talk.backend, signal)
        until_now(lambda: not alive(talk.backend) and server.answers(), "it has gone, and the server answers")

    async with tapped(server.url, begins, strike) as tap:
        yield tap
