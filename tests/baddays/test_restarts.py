"""A restart of the database costs latency, not runs: stopped, killed, or one of its processes killed, under load."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.baddays.scene import BadDay, bad_day
from tests.baddays.server import Server, alive, signalled
from tests.baddays.waiting import last, until_now


async def test_stopped_and_started_again(day: BadDay, server: Server) -> None:
    def disaster() -> None:
        server.stop()
        last(2.0)
        server.start()

    await day.pass_through(disaster)
    await day.judged()


async def test_killed_with_all_its_processes(day: BadDay, server: Server) -> None:
    def disaster() -> None:
        server.kill()
        server.start()

    await day.pass_through(disaster)
    await day.judged()


async def kill_one(day: BadDay, server: Server, use: str) -> None:
    """The server then ends all others too, and recovers."""
    if use == "renewals":
        await asyncio.to_thread(until_now, lambda: len(server.backends(use)) == 2, "both workers have renewed")
    found: list[int] = []

    def disaster() -> None:
        found.extend(server.backends(use))
        signalled(found[0], signal.SIGKILL)
        until_now(lambda: not alive(found[0]) and server.answers(), "it has recovered")

    await day.pass_through(disaster)
    await day.judged()
    assert not set(found) & set(server.backends(use))


async def test_the_process_that_appends_is_killed(day: BadDay, server: Server) -> None:
    await kill_one(day, server, "appends")


@pytest.mark.long
@pytest.mark.parametrize("use", ["renewals", ""])
async def test_another_process_of_a_worker_is_killed(day: BadDay, server: Server, use: str) -> None:
    await kill_one(day, server, use)


async def test_a_worker_waits_for_a_database_that_is_down(server: Server, url: str, tmp_path: Path) -> None:
    async with bad_day(tmp_path, url) as day:
        await day.load(2, each=2)
        await asyncio.to_thread(server.stop)
        try:
            [worker] = day.workers(1)
            await day.written_is("the store cannot be opened, trying again")
            day.scene.worker()
            await day.written_is("connection to server")
        finally:
            await asyncio.to_thread(server.start)
        await day.judged()
        worker.terminate()
        assert await day.scene.exited(worker) == 0


async def test_a_worker_that_waits_for_its_database_can_be_stopped(server: Server, url: str, tmp_path: Path) -> None:
    async with bad_day(tmp_path, url) as day:
        await asyncio.to_thread(server.stop)
        try:
            [worker] = day.workers(1)
            await day.written_is("the store cannot be opened, trying again")
            worker.terminate()
            assert await day.scene.exited(worker) == 0
        finally:
            await asyncio.to_thread(server.start)


async def test_a_worker_that_will_never_be_let_in_says_so(url: str, tmp_path: Path) -> None:
    async with bad_day(tmp_path, url) as day:
        [worker] = day.workers(1, OUTLIVE_STORE=url.replace("//postgres@", "//nobody_of_this_name@"))
        assert await day.scene.exited(worker) != 0
        assert 'role "nobody_of_this_name" does not exist' in day.written()


@pytest.mark.long
async def test_a_day_of_restarts(day: BadDay, server: Server) -> None:
    def stopped() -> None:
        server.stop()
        server.start()

    def killed() -> None:
        server.kill()
        server.start()

    def one_killed() -> None:
        one = server.backends("appends")[-1]
        signalled(one, signal.SIGKILL)
        until_now(lambda: not alive(one) and server.answers(), "it has recovered")

    await day.load(16, each=16)
    await day.claimed()
    for number, disaster in enumerate([stopped, killed, one_killed, stopped, killed, one_killed], start=1):
        await day.effects(number * 35)
        await asyncio.to_thread(disaster)
    await day.judged()


@pytest.mark.long
async def test_an_outage_longer_than_the_lease_loses_no_run(server: Server, url: str, tmp_path: Path) -> None:
    async with bad_day(tmp_path, url, lease_s=2.0, moving=True) as day:
        day.workers()
        await day.begun()

        def disaster() -> None:
            server.stop()
            last(6.0)
            server.start()

        await day.pass_through(disaster)
        await day.judged()
