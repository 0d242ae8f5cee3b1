"""The three views: the columns that `docs/sql.md` promises, on both stores, read as people read them."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from outlive.store.postgres.connection import place_of
from tests.cli.survey_app import rows_of, served
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "sql.md"
QUERIES = blocks(PAGE, "sql")
# Never shortened, never in another order: programs of others rely on it.
COLUMNS = {
    "who_owns_it": "tenant run agent version status owner pid epoch renewed lease_ends".split(),
    "what_has_it_done": (
        "tenant run operation tool effect arguments status attempt outcome error how idempotency_key first_sent updated"
    ).split(),
    "what_is_it_waiting_for": "tenant run agent status waits_for detail since until deadline unread".split(),
}
NUMBERS = {"pid", "epoch", "attempt", "unread"}
WAITS = {
    "sleeps": "a timer",
    "listens": "a message on news",
    "asks": "an answer of clerk",
    "doubts": "a person: operation in doubt",
}
_PSQL = pytest.mark.skipif(
    shutil.which("psql") is None and "CI" not in os.environ, reason="psql is not installed (Debian: postgresql-client)"
)  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    found: str = request.getfixturevalue("postgres")
    return found


def test_the_page_describes_each_column() -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## )", PAGE.read_text("utf-8"), re.M | re.S))
    assert {view: re.findall(r"^\| `(\w+)` \|", sections[view], re.M) for view in COLUMNS} == COLUMNS
    assert len(QUERIES) == 3


async def test_the_views_have_these_columns_on_both_stores(url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            rows("update run set paused_at = updated_at, deadline_at = updated_at where id = 'sleeps'")
            for view, columns in COLUMNS.items():
                found = rows(f"select {', '.join(columns)} from {view}")
                assert [len(row) for row in rows(f"select * from {view}")] == [len(columns)] * len(found)
                assert rows(f"select * from {view} order by 2, 3") == rows(
                    f"select {', '.join(columns)} from {view} order by 2, 3"
                )
                for row in found:
                    for column, value in zip(columns, row, strict=True):
                        assert value is None or isinstance(value, int if column in NUMBERS else str), column
            ((since, deadline),) = rows("select since, deadline from what_is_it_waiting_for where run = 'sleeps'")
            for time in (since, deadline):
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", str(time))


async def test_what_a_run_waits_for_is_said_in_words(url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            assert dict(rows("select run, waits_for from what_is_it_waiting_for")) == WAITS
            until = dict(rows("select run, until from what_is_it_waiting_for"))
            assert [run for run, when in until.items() if when is not None] == ["sleeps"]
            rows("update run set paused_at = 1 where id = 'asks'")
            ((waits,),) = rows("select waits_for from what_is_it_waiting_for where run = 'asks'")
            assert waits == "an operator, who paused it"


async def test_the_queries_of_the_page_answer(url: str) -> None:
    async with served(url):
        with rows_of(url) as rows:
            waiting, doubtful, owners = (rows(query) for query in QUERIES)
            assert {row[0]: row[1] for row in waiting} == dict.fromkeys(WAITS.values(), 1)
            assert [(row[0], row[2], row[3]) for row in doubtful] == [("doubts", "lose", '{"cents":5}')]
            assert owners == []
            ((owner, pid),) = rows("select owner, pid from worker")
            rows("update run set status = 'running', owner = ?, expires_at = 5000 where id = 'listens'", owner)
            assert [tuple(row) for row in rows(QUERIES[2])] == [(owner, pid, 1, "1970-01-01T00:00:05Z")]


async def test_a_reader_of_the_file_needs_nothing_of_ours(tmp_path: Path) -> None:
    async with served(f"sqlite:///{tmp_path}/runs.db"):
        with closing(sqlite3.connect(f"file:{tmp_path}/runs.db?mode=ro", uri=True)) as database:
            assert dict(database.execute("select run, waits_for from what_is_it_waiting_for")) == WAITS
            for view, columns in COLUMNS.items():
                assert [one[0] for one in database.execute(f"select * from {view}").description] == columns


@pytest.mark.long
@_PSQL
async def test_psql_prints_the_same(postgres: str) -> None:
    async with served(postgres):
        for view, columns in COLUMNS.items():
            assert next(csv.reader(io.StringIO(await psql(postgres, f"select * from {view}")))) == columns
        shown = await psql(postgres, "select run, waits_for from what_is_it_waiting_for order by run")
        assert dict(list(csv.reader(io.StringIO(shown)))[1:]) == WAITS
        answers = [await psql(postgres, query) for query in QUERIES]
        assert [len(answer.splitlines()) for answer in answers] == [1 + len(WAITS), 2, 1]


async def psql(url: str, query: str) -> str:
    command = ["psql", "--no-psqlrc", "--csv", "--dbname", place_of(url).conninfo, "--command", query]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
