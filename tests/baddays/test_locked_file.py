"""A SQLite file that somebody else keeps locked while runs are driven: who it is is said, and nothing is lost."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.baddays.scene import bad_day
from tests.store import writer


@contextmanager
def locked(file: Path) -> Iterator[int]:
    """The file, locked by another process; its id."""
    command = [sys.executable, writer.__file__, "hold", str(file), "", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "inside\n"
        try:
            yield holder.pid
        finally:
            holder.communicate("go\n")


@pytest.mark.long
async def test_locked_for_longer_than_anybody_waits(tmp_path: Path) -> None:
    file = tmp_path / "outlive.db"
    async with bad_day(tmp_path, f"sqlite:///{file}", lease_s=60.0) as day:
        day.workers()
        await day.begun()
        await day.load()
        await day.effects(15)
        with locked(file) as holder:
            await day.written_is(f"process {holder} holds it")
        await day.judged()
