"""`outlive audit verify` on both stores: whatever byte is changed in a log, a record or a blob, it is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from outlive.app.audit import Misfit, Progress, verify_all, verify_run
from outlive.app.decide import resolve, retry
from outlive.app.operate import reading
from outlive.cli import codes
from outlive.engine.control import Control
from outlive.errors import UnknownRun
from outlive.model.clock import SystemClock
from outlive.model.ids import DEFAULT_TENANT, Owner
from outlive.store.survey import Surveyed
from tests.cli.conftest import Cli
from tests.cli.survey_app import Rows, app, bill, doubt, listen, rows_of, settings
from tests.cli.waiting import reaches

ENTRY = (
    "tenant run_id seq epoch kind version at scope key body payload blob data_class key_id digest"
).split()  # fmt: skip
OPERATION = (
    "tenant run_id id call tool effect key digest arguments status attempt epoch first_sent_at updated_at not_before "
    "outcome error how notes duplicates data_class key_id"
).split()
BLOB = ("tenant", "address", "payload", "data_class", "key_id")
RUN = (
    "agent version status epoch next_seq head input_digest reason principal purpose labels prologue_seq window_seq"
).split()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    found: str = request.getfixturevalue("postgres")
    return found


@asynccontextmanager
async def written(url: str) -> AsyncIterator[tuple[Surveyed, Rows]]:
    """A run with two operations and a blob, one that is blocked, one that waits; nobody drives them any more."""
    await app.open(settings(url))
    async with app, app.worker():
        await app.start(bill, 7, id="bills")
        await reaches(app.opened, "bills", "succeeded")
        await app.start(doubt, 5, id="doubts")
        await reaches(app.opened, "doubts", "blocked")
        await app.start(listen, None, id="listens")
        await reaches(app.opened, "listens", "waiting")
    async with reading(settings(url)) as store:
        with rows_of(url) as rows:
            yield store, rows


async def misfits(store: Surveyed, run: str = "") -> list[Misfit]:
    progress = Progress()
    source = verify_run(store, DEFAULT_TENANT, run, progress) if run else verify_all(store, DEFAULT_TENANT, progress)
    return [one async for one in source]


def flipped(value: object, at: int = 0) -> object:
    """The value with one bit of one byte changed; of a text that is empty, with one byte."""
    match value:
        case None:
            return 7
        case int():
            return value ^ 64
        case "":
            return "a"
        case str():
            return value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
        case _:
            raise AssertionError(value)


@contextmanager
def changed(rows: Rows, table: str, column: str, where: str) -> Iterator[None]:
    """One byte of one row is another inside."""
    ((before,),) = rows(f"select {column} from {table} where {where}")
    after = flipped(before)
    rows(f"update {table} set {column} = ? where {where}", after)
    # Where the row is found again, if that column is part of its key.
    there = where.replace(f"{column} = {_literal(before)}", f"{column} = {_literal(after)}")
    yield
    rows(f"update {table} set {column} = ? where {there}", before)


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


async def test_what_was_written_fits(url: str) -> None:
    async with written(url) as (store, _):
        assert await misfits(store) == []
        with pytest.raises(UnknownRun):
            await misfits(store, "nobody")


async def test_a_byte_of_an_entry(url: str) -> None:
    """`bills` has a payload in entry 0, and names its blob in the entry of its step."""
    async with written(url) as (store, rows):
        ((step,),) = rows("select seq from entry where run_id = 'bills' and blob is not null")
        for column in ENTRY:
            seq = step if column == "blob" else 0 if column == "payload" else 3
            with changed(rows, "entry", column, f"tenant = 'default' and run_id = 'bills' and seq = {seq}"):
                found = await misfits(store, "bills")
                named = [one for one in found if one.entry == seq or f"entry {seq} is not there" in one.why]
                assert named[:1] == found[:1], column
                assert found, column
        assert await misfits(store) == []


async def test_a_byte_of_each_entry(url: str) -> None:
    async with written(url) as (store, rows):
        ((entries,),) = rows("select count(*) from entry where run_id = 'bills'")
        assert isinstance(entries, int)
        assert entries > 5
        for seq in range(entries):
            with changed(rows, "entry", "body", f"tenant = 'default' and run_id = 'bills' and seq = {seq}"):
                assert [(one.run, one.entry) for one in await misfits(store)] == [("bills", seq)]


async def test_an_end_that_was_cut_off(url: str) -> None:
    async with written(url) as (store, rows):
        rows("delete from entry where run_id = 'bills' and seq = (select max(seq) from entry where run_id = 'bills')")
        found = {one.what for one in await misfits(store, "bills")}
        assert {"run row, head", "run row, status"} <= found


async def test_a_byte_of_an_operation_record(url: str) -> None:
    async with written(url) as (store, rows):
        ((first,),) = rows("select min(id) from operation where run_id = 'bills'")
        for column in OPERATION:
            with changed(rows, "operation", column, f"tenant = 'default' and run_id = 'bills' and id = '{first}'"):
                found = await misfits(store)
                assert f"operation {first}" in [one.what for one in found], column
                if column not in ("tenant", "run_id", "id"):
                    assert {(one.run, one.what) for one in found} == {("bills", f"operation {first}")}, column
        assert await misfits(store) == []


async def test_the_order_of_operation_records(url: str) -> None:
    async with written(url) as (store, rows):
        ((first,),) = rows("select id from operation where run_id = 'bills' order by position limit 1")
        behind = "100" if rows.in_file else "default"
        rows(f"update operation set position = {behind} where id = ?", first)
        ((only),) = await misfits(store)
        assert "position: the records are not in the order" in only.why


async def test_a_byte_of_a_blob(url: str) -> None:
    async with written(url) as (store, rows):
        ((step, address),) = rows("select seq, blob from entry where run_id = 'bills' and blob is not null")
        for column in BLOB:
            rows("create table kept as select * from blob")
            ((before,),) = rows(f"select {column} from blob")
            rows(f"update blob set {column} = ?", flipped(before, 9 if column == "payload" else 0))
            assert [(one.run, one.entry) for one in await misfits(store)] == [("bills", step)], column
            rows("delete from blob")
            rows("insert into blob select * from kept")
            rows("drop table kept")
        assert address
        assert await misfits(store) == []


async def test_a_byte_of_what_the_log_says_of_a_run(url: str) -> None:
    async with written(url) as (store, rows):
        for column in RUN:
            run = "doubts" if column == "reason" else "bills"
            if column == "labels":
                rows("update run set labels = ? where id = ?", '{"a":"b"}', run)
                assert [one.what for one in await misfits(store)] == ["run row, labels"]
                rows("update run set labels = '{}' where id = ?", run)
                continue
            with changed(rows, "run", column, f"tenant = 'default' and id = '{run}'"):
                name = "head" if column == "next_seq" else column
                assert [(one.run, one.what) for one in await misfits(store)] == [(run, f"run row, {name}")], column


async def test_rows_of_a_run_that_is_gone(url: str) -> None:
    async with written(url) as (store, rows):
        rows("delete from run where id = 'bills'")
        assert [(one.run, one.what) for one in await misfits(store)] == [
            ("bills", "table entry"), ("bills", "table operation"),
        ]  # fmt: skip


async def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    async with written(f"sqlite:///{tmp_path}/runs.db") as (store, rows):
        rows("update entry set body = cast(x'ff' as text) where run_id = 'bills' and seq = 2")
        assert [(one.run, one.what, one.entry) for one in await misfits(store)] == [("bills", "entry", 2)]


async def test_what_people_decide_fits(url: str) -> None:
    """A resolution is written by others than the run's worker, from what they find in the record."""
    async with written(url):
        pass
    await app.open(settings(url))
    async with app:
        store = app.opened
        ((operation),) = await store.operations(DEFAULT_TENANT, "doubts")  # type: ignore[arg-type]  # a run's id
        control = Control(store, SystemClock(), Owner("ada"))
        await retry(control, DEFAULT_TENANT, "doubts", who="ada", why="to see")
        await resolve(control, app.registry, DEFAULT_TENANT, "doubts", operation.id, "abandon", who="ada", why="lost")
        async with reading(settings(url)) as there:
            assert await misfits(there) == []
        async with app.worker():
            await reaches(store, "doubts", "failed")
            await app.handle(listen, "listens").send("news", "hello", key="k1")
            assert await app.handle(listen, "listens").result(timeout=timedelta(seconds=60)) == "hello"
        async with reading(settings(url)) as there:
            assert await misfits(there) == []


async def test_the_command_names_what_does_not_fit(cli: Cli, url: str) -> None:
    async with written(url) as (_, rows):
        done = await asyncio.to_thread(cli, "audit", "verify", "--store", url)
        assert (done.exit_code, done.stdout) == (codes.OK, "")
        assert done.stderr.startswith("3 runs, ")
        assert done.stderr.endswith(" entries: all fits\n")
        rows("update entry set key = 'other' where run_id = 'bills' and seq = 2")
        done = await asyncio.to_thread(cli, "audit", "verify", "bills", "--store", url)
        says = "run bills: entry 2, chain: it is not what was written, or its payload is not\n"
        assert (done.exit_code, done.stdout) == (codes.ERROR, says)
        shown = json.loads((await asyncio.to_thread(cli, "audit", "verify", "--json", "--store", url)).stdout)
        assert list(shown) == ["fits", "runs", "entries", "busy", "misfits"]
        assert (shown["fits"], shown["runs"]) == (False, 3)
        assert [(one["run"], one["entry"], one["what"]) for one in shown["misfits"]] == [("bills", 2, "chain")]
        gone = await asyncio.to_thread(cli, "audit", "verify", "nobody", "--store", url)
        assert (gone.exit_code, gone.stdout) == (codes.ERROR, "")
