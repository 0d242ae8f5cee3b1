"""What is written to a second database is in no commit of the runs: it is done again, unless the key is known there."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from outlive import Agent, NotSent, Operation, Outlive, Retry, Run
from outlive.app.settings import Settings

FIRST_FAILS = Retry(attempts=2, first=timedelta(milliseconds=10))
app: Outlive[None] = Outlive()
second: list[Path] = []


def book(key: str, attempt: int) -> int:
    """In the second database; the first attempt is lost behind that."""
    with closing(sqlite3.connect(second[-1])) as elsewhere, elsewhere:
        elsewhere.execute("insert into booked values (?) on conflict do nothing", (key,))
    if attempt == 1:
        raise NotSent("the commit of what is written here did not come about")
    return attempt


@app.tool(effect="transactional", retry=FIRST_FAILS)
async def book_twice(op: Operation[None]) -> int:
    await op.connection.execute("create table if not exists here (attempt)")
    await op.connection.execute("insert into here values (?)", (op.attempt,))
    return book(op.key, op.attempt)


@app.tool(effect="idempotent", retry=FIRST_FAILS)
async def book_once(op: Operation[None]) -> int:
    return book(op.key, op.attempt)


@app.agent()
async def books_twice(run: Run[None], what: str) -> int:
    return await run.call(book_twice)


@app.agent()
async def books_once(run: Run[None], what: str) -> int:
    return await run.call(book_once)


async def booked(directory: Path, agent: Agent[str, int], column: str) -> list[str]:
    """The keys in the second database, after a run whose tool has had two attempts."""
    second.append(directory / "second.db")
    with closing(sqlite3.connect(second[-1])) as elsewhere:
        elsewhere.execute(f"create table booked ({column})")
        await app.open(Settings.load(store=f"sqlite:///{directory / 'runs.db'}"))
        async with app, app.worker():
            assert await (await app.start(agent, "it")).result(timeout=timedelta(seconds=30)) == 2
        return [str(key) for (key,) in elsewhere.execute("select key from booked")]


async def test_what_a_transactional_tool_writes_elsewhere_is_in_no_commit_and_done_again(tmp_path: Path) -> None:
    keys = await booked(tmp_path, books_twice, "key text")
    assert len(keys) == 2 and len(set(keys)) == 1
    with closing(sqlite3.connect(tmp_path / "runs.db")) as ours:
        assert ours.execute("select attempt from here").fetchall() == [(2,)]


async def test_a_second_database_that_knows_the_key_has_it_once(tmp_path: Path) -> None:
    assert len(await booked(tmp_path, books_once, "key text primary key")) == 1
