"""The database's disk is full: it refuses or stops, and when there is room again everything goes on."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.baddays.scene import bad_day
from tests.baddays.server import Server, alive, own_server
from tests.baddays.waiting import until_now
from tests.store.postgres_server import own_folder


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """A file system of that size, of the server's user. It takes the right to mount one."""
    with own_folder() as (folder, user):
        disk = folder / "disk"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        mount = subprocess.run(command, capture_output=True, text=True, check=False)
        if mount.returncode != 0:
            pytest.skip(f"a small tmpfs cannot be mounted here: {mount.stderr.strip()}")
        try:
            if user is not None:
                shutil.chown(disk, user)
            yield disk
        finally:
            subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """What takes the last byte."""
    ballast = disk / "ballast"
    for size in (2**20, 4096):
        with ballast.open("ab", buffering=0) as file:
            try:
                while file.write(os.urandom(size)) == size:
                    pass
            except OSError:
                continue
    return ballast


@pytest.mark.long
async def test_no_room_for_data(tmp_path: Path) -> None:
    with small_disk("64m") as disk, own_folder() as (elsewhere, _):
        initdb = ("--wal-segsize=1", f"--waldir={elsewhere / 'wal'}")
        with own_server(disk / "data", initdb=initdb) as server:
            async with bad_day(tmp_path, server.url) as day:
                day.workers()
                await day.begun()
                await day.load(each=16)
                await day.effects(15)
                ballast = await asyncio.to_thread(fill, disk)
                await day.written_is("no space left on the device; nothing was written")
                ballast.unlink()
                await day.judged()


@pytest.mark.long
async def test_no_room_for_the_write_ahead_log(tmp_path: Path) -> None:
    """The server stops itself, and stays down until somebody makes room and starts it."""
    with small_disk("24m") as disk:
        initdb = ("--wal-segsize=1", f"--waldir={disk / 'wal'}")
        with own_server(initdb=initdb, max_wal_size="4MB", min_wal_size="2MB") as server:
            async with bad_day(tmp_path, server.url) as day:
                day.workers()
                await day.begun()
                await day.load(each=16)
                await day.effects(15)
                ballast = await asyncio.to_thread(fill, disk)
                await asyncio.to_thread(use_up, server)
                await day.written_is("cannot be used")
                ballast.unlink()
                await asyncio.to_thread(server.start)
                await day.judged()
                assert "PANIC" in "".join(log.read_text() for log in server.folder.glob("log-*"))


def use_up(server: Server) -> None:
    """Write until the server has stopped."""
    postmaster = server.postmaster()

    def gone() -> bool:
        try:
            server.ask("select pg_switch_wal() from pg_logical_emit_message(false, 'test', repeat('x', 100000))")
        except psycopg.Error:
            pass
        return not alive(postmaster)

    until_now(gone, "the server has stopped")
    server.ended([postmaster])


@pytest.mark.long
async def test_a_full_disk_under_a_sqlite_store(tmp_path: Path) -> None:
    with small_disk("16m") as disk:
        async with bad_day(tmp_path, f"sqlite:///{disk / 'outlive.db'}") as day:
            day.workers()
            await day.begun()
            await day.load(each=16)
            await day.effects(15)
            ballast = await asyncio.to_thread(fill, disk)
            await day.written_is("no space left on the device; nothing was written")
            ballast.unlink()
            await day.judged()
