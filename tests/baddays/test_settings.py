"""Settings of the server that turn against us: time-outs, and those that would lose acknowledged commits."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from outlive.app.settings import Settings
from outlive.model.clock import SystemClock
from outlive.model.errors import CommitUnknown, Refused, UnsafeDurability
from outlive.store.port import Append
from outlive.store.postgres import open_postgres
from outlive.store.postgres import transaction as transaction_module
from outlive.store.postgres.transaction import IDLE_MS
from outlive.testing.store_scene import ANNA, event
from tests.baddays.network import network
from tests.baddays.scene import BadDay, bad_day, patiently
from tests.baddays.server import Server, own_server
from tests.baddays.waiting import last, until_now
from tests.kills.scene import kill
from tests.store.postgres_scene import scene_on

ENDED = "select pg_terminate_backend(pid) from pg_stat_activity where application_name ~ '^outlive'"


@pytest.mark.long
@pytest.mark.parametrize("setting", ["statement_timeout = 1", "lock_timeout = 1"])
async def test_a_time_out_that_is_far_too_short(day: BadDay, server: Server, setting: str) -> None:
    """Somebody sets it for the database; whoever connects from then on has it, until it is set right again."""

    def disaster() -> None:
        server.ask(f"alter database postgres set {setting}")
        try:
            server.ask(ENDED)
            last(2.0)
        finally:
            server.ask(f"alter database postgres reset {setting.split(maxsplit=1)[0]}")
            server.ask(ENDED)

    await day.pass_through(disaster)
    await day.judged()


async def test_whoever_stops_inside_a_control_claim_is_ended_after_a_third_of_the_lease(
    server: Server, url: str
) -> None:
    """The lock is held, and the statement that would let it go never arrives."""
    async with network(url) as way, scene_on(url) as scene:
        hold = await scene.hold()
        stopped = await open_postgres(way.url, clock=SystemClock())
        way.swallow = b"epoch = epoch + 1"
        claim = asyncio.ensure_future(stopped.again(hold.authority, owner=ANNA, lease_ms=900))
        await way.swallowed.wait()
        await scene.append(hold, event())
        assert "idle-in-transaction timeout" in server.written()
        way.cut()
        with pytest.raises(CommitUnknown):
            await claim
        await stopped.close()


async def test_a_transactional_tool_may_be_idle_for_a_third_of_the_usual_lease(url: str) -> None:
    async with scene_on(url) as scene:
        async with scene.store.transaction() as transaction:
            [[idle]] = await transaction.execute("show idle_in_transaction_session_timeout")
            [[lock]] = await transaction.execute("show lock_timeout")
        assert (idle, lock) == ("10s", "10s")
        assert Settings().lease.total_seconds() * 1000 == 3 * IDLE_MS


async def test_one_that_is_idle_for_longer_is_refused_and_not_repeated_for_ever(
    url: str, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr(transaction_module, "IDLE_MS", 100)
    async with scene_on(url) as scene:
        hold = await scene.hold()
        with pytest.raises(Refused, match="it did nothing in its transaction"):
            async with scene.store.transaction() as transaction:
                before = server.written().count("idle-in-transaction timeout")
                await transaction.execute("select 1")
                await asyncio.to_thread(
                    until_now, lambda: server.written().count("idle-in-transaction timeout") > before, "it is ended"
                )
                await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)


@pytest.mark.parametrize("whose", ["role postgres", "database postgres", "role postgres in database postgres"])
async def test_a_database_that_is_told_to_lose_commits_is_refused(server: Server, url: str, whose: str) -> None:
    server.ask(f"alter {whose} set synchronous_commit = off")
    try:
        with pytest.raises(UnsafeDurability, match="synchronous_commit = off"):
            await open_postgres(url, clock=SystemClock())
    finally:
        server.ask(f"alter {whose} reset synchronous_commit")
    await (await open_postgres(url, clock=SystemClock())).close()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
async def test_a_server_that_is_told_to_lose_commits_is_refused(server: Server, url: str, setting: str) -> None:
    server.ask(f"alter system set {setting} = off")
    server.ask("select pg_reload_conf()")
    try:
        await asyncio.to_thread(until_now, lambda: server.ask(f"show {setting}") == [("off",)], "it is off")
        with pytest.raises(UnsafeDurability, match=f"{setting} = off"):
            await open_postgres(url, clock=SystemClock())
    finally:
        server.ask(f"alter system reset {setting}")
        server.ask("select pg_reload_conf()")
        await asyncio.to_thread(until_now, lambda: server.ask(f"show {setting}") == [("on",)], "it is on")


@pytest.mark.long
async def test_what_was_acknowledged_is_kept_whatever_the_server_was_told_meanwhile(
    tmp_path: Path,
) -> None:
    """The server may keep a commit to itself for ten seconds, and is killed: ours are there, another's is not."""
    with own_server(wal_writer_delay="10s") as server:
        server.ask("create table told (number integer)")
        async with bad_day(tmp_path, server.url) as day:
            day.workers()
            await day.begun()

            def disaster() -> None:
                server.ask("alter database postgres set synchronous_commit = off")
                server.ask(ENDED)

            await day.pass_through(disaster)
            await day.judged()
            # Nobody's later commit may take these along to the disk.
            for worker in day.fleet:
                kill(worker)
            await day.load(3, each=1, begin="last")
            rows = {run: await day.scene.row(run) for run in day.runs}
            assert await asyncio.to_thread(loses_what_is_not_ours, server)
            assert {run: await patiently(partial(day.scene.row, run)) for run in day.runs} == rows
            server.ask("alter database postgres reset synchronous_commit")
            day.fleet.clear()
            day.workers()
            await day.judged()


def loses_what_is_not_ours(server: Server) -> bool:
    """Kill it right after a commit of somebody else's. Now and then that one was just being written: then again."""
    for _ in range(5):
        server.ask("insert into told values (1)")
        server.kill()
        server.start()
        if server.ask("select * from told") == []:
            return True
        server.ask("delete from told")
    return False
