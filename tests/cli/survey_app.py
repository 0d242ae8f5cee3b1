"""An application whose runs come to stand in each of the ways that a run can, and rows that a test changes by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg

from outlive import Operation, Outlive, Run
from outlive.app.settings import Settings
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite.store import place_of as file_of
from tests.cli.waiting import reaches

LARGE = "x" * 40_000

app: Outlive[None] = Outlive()


@app.tool(effect="external")
async def charge(op: Operation[None], cents: int) -> str:
    await op.note(bank="first")
    return f"charge of {cents}"


@app.tool(effect="external")
async def lose(op: Operation[None], cents: int) -> str:
    raise ConnectionError("the answer was lost")


def write(lines: int) -> str:
    return LARGE


@app.agent()
async def bill(run: Run[None], cents: int) -> str:
    """Two operations, a blob, a small step."""
    await run.call(charge, cents)
    await run.step(write, 1)
    await run.call(charge, cents + 1)
    return "billed"


@app.agent()
async def doubt(run: Run[None], cents: int) -> str:
    return await run.call(lose, cents)


@app.agent()
async def nap(run: Run[None], input: None) -> None:
    await run.sleep(timedelta(hours=1))


@app.agent()
async def listen(run: Run[None], input: None) -> str:
    return await run.receive("news", str)


@app.agent()
async def ask(run: Run[None], input: None) -> str:
    return await run.ask("Pay it?", str, role="clerk")


def settings(url: str) -> Settings:
    return Settings(store=url, lease=timedelta(seconds=30))


@asynccontextmanager
async def served(url: str) -> AsyncIterator[None]:
    """A run in each state that lasts, and a worker that is alive."""
    await app.open(settings(url))
    async with app, app.worker():
        for agent, run, status in (
            (nap, "sleeps", "waiting"), (listen, "listens", "waiting"), (ask, "asks", "waiting"),
        ):  # fmt: skip
            await app.start(agent, None, id=run)
            await reaches(app.opened, run, status)
        await app.start(doubt, 5, id="doubts")
        await reaches(app.opened, "doubts", "blocked")
        await app.start(bill, 7, id="bills")
        await reaches(app.opened, "bills", "succeeded")
        yield


class Rows:
    """The tables, written to by somebody who is not the store."""

    def __init__(self, connection: sqlite3.Connection | psycopg.Connection[tuple[object, ...]]) -> None:
        self._connection = connection
        self.in_file = isinstance(connection, sqlite3.Connection)

    def __call__(self, sql: str, *parameters: object) -> Sequence[tuple[Any, ...]]:
        """One statement with `?` for parameters; it commits by itself."""
        if isinstance(self._connection, sqlite3.Connection):
            return self._connection.execute(sql, parameters).fetchall()
        cursor = self._connection.execute(sql.replace("?", "%s").encode(), parameters)
        return cursor.fetchall() if cursor.description is not None else []


@contextmanager
def rows_of(url: str) -> Iterator[Rows]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(file_of(url)[0], isolation_level=None, timeout=60)) as database:
            yield Rows(database)
    else:
        with psycopg.connect(place_of(url).conninfo, autocommit=True) as connection:
            yield Rows(connection)
