"""The three views: the columns that `docs/sql.md` promises, on both stores, read as people read them."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from outlive.model.run import ENDED, STATUSES
from outlive.store.postgres.connection import place_of
from outlive.store.sqlite.store import place_of as file_of
from outlive.testing.postgres import _binary
from tests.cli.survey_app import rows_of, served
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "sql.md"
QUERIES = blocks(PAGE, "sql")
# Never shortened, never in another order: programs of others rely on it.
COLUMNS = {
    "who_owns_it": "tenant run agent version status owner pid epoch renewed lease_ends".split(),
    "what_has_it_done": (
        "tenant run operation tool effect arguments status attempt outcome error how idempotency_key first_sent "
        "updated compensates compensated_by shared_run shared_operation"
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
async def test_the_shell_of_each_database_prints_the_same_in_every_status(url: str) -> None:
    async with served(url):
        pass  # no worker is to take the run on as soon as it is ready
    with rows_of(url) as rows:
        rows("update run set lease_ms = 1, renewed_at = 1, expires_at = 2 where id = 'listens'")
        for status, paused in itertools.product(STATUSES, (None, 3000)):
            ended = 4000 if status in ENDED else None
            rows("update run set status = ?, paused_at = ?, ended_at = ? where id = 'listens'", status, paused, ended)
            shown = await printed(url, *(f"select * from {view} order by 1, 2, 3" for view in COLUMNS), *QUERIES)
            for view, table in zip(COLUMNS, shown, strict=False):
                columns = COLUMNS[view]
                assert table[:1] in ([columns], []), (status, view)
                assert table[1:] == as_text(rows(f"select * from {view} order by 1, 2, 3")), (status, paused, view)
            for query, table in zip(QUERIES, shown[len(COLUMNS) :], strict=True):
                assert sorted(table[1:]) == sorted(as_text(rows(query))), (status, paused)
            waits = [row[4] for row in shown[2] if row[1] == "listens"]
            assert (waits == []) == (status in ENDED)
            assert paused is None or waits in ([], ["an operator, who paused it"])


def as_text(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    return [["" if value is None else str(value) for value in row] for row in rows]


async def printed(url: str, *queries: str) -> list[list[list[str]]]:
    """What the shell that comes with the database prints for each, as CSV with the names of the columns."""
    between = "--- next ---"
    if url.startswith("sqlite"):
        # Nobody who runs these tests in earnest is without it: there it fails.
        if shutil.which("sqlite3") is None and "CI" not in os.environ:
            pytest.skip("sqlite3 is not installed (Debian: sqlite3)")
        command = ["sqlite3", "-batch", "-readonly", "-csv", "-header", str(file_of(url)[0])]
        lines = [part for query in queries for part in (f"{query};".replace(";;", ";"), f".print '{between}'")]
    else:
        command = [_binary("psql"), "--no-psqlrc", "--quiet", "--csv", "--dbname", place_of(url).conninfo]
        command += ["--set", "ON_ERROR_STOP=1"]
        lines = [part for query in queries for part in (f"{query};".replace(";;", ";"), f"\\echo '{between}'")]
    done = await asyncio.to_thread(
        subprocess.run, command, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [[*csv.reader(io.StringIO(one.lstrip()))] for one in done.stdout.split(between)[:-1]]
