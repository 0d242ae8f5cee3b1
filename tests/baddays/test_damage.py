"""What cannot be read is named and not tried for ever; what a lost connection did is tried again and not counted."""

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from outlive import Operation, Outlive, Retry, Run
from outlive.app.settings import Settings
from outlive.model.errors import StoreUnavailable, UndecodableEntry
from outlive.model.ids import DEFAULT_TENANT, RunId
from tests.baddays.server import own_server
from tests.engine.rig import rig_at
from tests.engine.scenes import acts, control, lost
from tests.engine.subject import RUN, base, begin, does, reset


async def test_bytes_that_are_no_text_block_the_run(tmp_path: Path) -> None:
    reset()
    async with rig_at(tmp_path) as rig:
        does.tool = lost
        await rig.settle(await begin(rig, acts))
        await control(rig).retry(await rig.row(RUN), who="ada", why="to see")
        with sqlite3.connect(str(rig.store._path)) as direct:  # type: ignore[attr-defined]  # the file of this store
            direct.execute("update entry set body = cast(x'ff' as text) where seq = 1")
        with pytest.raises(UndecodableEntry, match="decode"):
            await rig.store.window(DEFAULT_TENANT, RunId(RUN))
        await rig.settle(rig.worker(rig.app(base), code="second"))
        row = await rig.row(RUN)
        assert (row.status, row.reason) == ("blocked", "undecodable")


async def test_a_database_that_cannot_hold_all_text_is_refused() -> None:
    with own_server(initdb=("-E", "SQL_ASCII")) as server:
        with pytest.raises(StoreUnavailable, match="its encoding is SQL_ASCII"):
            await Outlive(store=server.url).open()


ends: list[str] = []
booking: Outlive[None] = Outlive()


@booking.tool(effect="transactional")
async def book(op: Operation[None]) -> int:
    await op.connection.execute("insert into booked values (%s)", (op.attempt,))
    if ends:
        await op.connection.execute(ends.pop())
    return op.attempt


@booking.agent()
async def books(run: Run[None], what: str) -> int:
    return await run.options(retry=Retry(attempts=1)).call(book)


async def test_a_transaction_whose_connection_is_lost_is_repeated_and_not_counted() -> None:
    """Its tool may be tried once; twice the server ends it in the middle, which is nothing that the tool has done."""
    with own_server() as server:
        server.ask("create table booked (attempt integer)")
        ends[:] = ["select pg_terminate_backend(pg_backend_pid())"] * 2
        await booking.open(Settings(store=server.url))
        async with booking, booking.worker():
            run = await booking.start(books, "it")
            assert await run.result(timeout=timedelta(seconds=60)) == 1
        assert ends == []
        assert server.ask("select attempt from booked") == [(1,)]
