"""The clock of one worker's machine is hours off, or jumps: leases, timers, deadlines and doubts go by the database's.

`libfaketime` gives a process another wall clock. The clocks that count from the start of the machine are left alone: to
fake those too contradicts what the kernel waits by, so that Python's own waits do not return.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from examples.dunning.bank_process import Modes
from outlive.app.doctor import Tally, examine
from outlive.app.inspect import Line
from outlive.app.operate import reading
from outlive.app.settings import Settings
from outlive.model.ids import RunId
from tests.baddays.scene import BadDay
from tests.kills.agents import Order, app, paying
from tests.kills.scene import Worker, kill, scene
from tests.kills.waiting import epoch_ms

# Long beside what a loaded machine may hold a worker up for, so that a run that moves has moved for no reason.
LEASE_S = 15.0
SHORT_S = 3.0
RUNS, EACH = 8, 4
TIMES = ("send_by", "first_sent_at", "not_before", "retry_at", "again_at", "wake_at")

_LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        _LIBRARY is None and "CI" not in os.environ, reason="libfaketime is not installed (Debian: faketime)"
    ),
]


class Clock:
    """The wall clock of workers: so many hours off, changed while they run."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"

    def off(self, hours: int) -> None:
        """Ahead (or behind) by so many hours from now on."""
        written = self._file.with_suffix(".new")
        written.write_text(f"{hours:+d}h\n")
        written.rename(self._file)

    def environment(self) -> dict[str, str]:
        """What makes a process go by it."""
        return {
            "LD_PRELOAD": str(_LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(self._file), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }  # fmt: skip


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@asynccontextmanager
async def day_on(store: str, folder: Path, *, lease_s: float = LEASE_S) -> AsyncIterator[BadDay]:
    """The bank drops answers and requests, so that there are doubts, look-ups and retries, each with its time."""
    modes: Modes = {"delay": 0.5, "delay_ms": 60, "drop": 0.15, "drop_before": 0.1, "seed": 5}
    async with scene(folder, store=store, lease_s=lease_s, **modes) as here:
        yield BadDay(here, ("looked_up", "looked_up"))


def worker(day: BadDay, **environment: str) -> Worker:
    """One that can have half of the runs at once, so that the other half is another's."""
    started = day.scene.worker("--concurrency", str(RUNS // 2), OUTLIVE_LOG_LEVEL="WARNING", **environment)
    day.fleet.append(started)
    return started


async def load(day: BadDay, *, deadline: timedelta | None = timedelta(hours=1)) -> None:
    """Runs that are far from their deadline, unless somebody takes the time from elsewhere."""
    for number in range(RUNS):
        invoices = [f"r{number}-{place}" for place in range(EACH)]
        order = Order(first="looked_up", others="looked_up", invoices=invoices)
        day.handles[invoices[0]] = await app.start(paying, order, id=invoices[0], deadline=deadline)
        day.runs[invoices[0]] = invoices


async def once_each(day: BadDay) -> list[Line]:
    """All lines of all runs, which have ended well and have paid each invoice once."""
    for handle in day.handles.values():
        assert len(await day.scene.result(handle)) == EACH
    counted = await asyncio.to_thread(day.scene.counted)
    assert counted == {invoice: 1 for invoices in day.runs.values() for invoice in invoices}
    return [line for run in day.runs for line in await day.scene.log(run)]


def claims(lines: list[Line]) -> Counter[str]:
    return Counter(str(line.data["why"]) for line in lines if line.kind == "claimed")


def by_one_clock(lines: list[Line], since: int) -> None:
    """Every time that is written down is one of the database's, which is right."""
    for line in lines:
        said = [value for name in TIMES if isinstance(value := line.data.get(name), int) and value]
        assert all(since <= at <= epoch_ms() + 600_000 for at in [line.at, *said]), line


@pytest.mark.parametrize("hours", [5, -5])
async def test_a_worker_that_is_hours_off_does_as_the_others_do(
    url: str, tmp_path: Path, clock: Clock, hours: int
) -> None:
    since = epoch_ms()
    clock.off(hours)
    async with day_on(url, tmp_path) as day:
        worker(day)
        worker(day, **clock.environment())
        await day.begun()
        await load(day)
        lines = await once_each(day)
        by_one_clock(lines, since)
        assert set(claims(lines)) <= {"start", "resume"}, "no run was taken from a worker that lives"
        assert len({line.data["owner"] for line in lines if line.kind == "claimed"}) == 2, "both have had some"
        assert {"unknown", "lookup"} <= {line.kind for line in lines}


@pytest.mark.parametrize("hours", [5, -5])
async def test_doctor_names_the_worker_that_is_hours_off(url: str, tmp_path: Path, clock: Clock, hours: int) -> None:
    clock.off(hours)
    async with day_on(url, tmp_path) as day:
        off = worker(day, **clock.environment())
        worker(day)
        await day.begun()
        async with reading(Settings(store=url)) as store:
            found = [one async for one in examine(store, Tally()) if one.trouble == "clock skew"]
        assert [one.subject for one in found] == [await day.scene.owner(off)]
        assert f"{'ahead of' if hours > 0 else 'behind'} the database's" in found[0].why


@pytest.mark.parametrize("dies", ["the one that is off", "the other one"])
@pytest.mark.parametrize("hours", [5, -5])
async def test_the_runs_of_a_dead_worker_move_when_its_leases_have_ended(
    url: str, tmp_path: Path, clock: Clock, hours: int, dies: str
) -> None:
    clock.off(hours)
    async with day_on(url, tmp_path, lease_s=SHORT_S) as day:
        off = worker(day, **clock.environment())
        right = worker(day)
        await day.begun()
        await load(day)
        await day.effects(RUNS)
        victim = off if dies == "the one that is off" else right
        name = await day.scene.owner(victim)
        leases = {row.id: row.expires_at for row in [await day.scene.row(run) for run in day.runs] if row.owner == name}
        died = epoch_ms()
        kill(victim)
        await once_each(day)
        moved = {run: at for run in day.runs for at in await taken_from(day, run, died)}
        assert set(moved) <= set(leases) and moved, "only its runs have moved"
        assert all(at >= (leases[RunId(run)] or 0) for run, at in moved.items()), "and none before its lease had ended"
        later = [at - died for at in moved.values()]
        print(f"{dies} dies, {hours:+d} h: moved {min(later)} to {max(later)} ms later, a lease is {SHORT_S:g} s")


async def taken_from(day: BadDay, run: str, died: int) -> list[int]:
    """When, after that, the run was taken over for the first time, if it was."""
    claimed = [line for line in await day.scene.log(run) if line.kind == "claimed" and line.at >= died]
    return [line.at for line in claimed[:1] if line.data["why"] == "takeover"]


async def test_a_clock_that_jumps_moves_no_run(url: str, tmp_path: Path, clock: Clock) -> None:
    since = epoch_ms()
    clock.off(0)
    async with day_on(url, tmp_path) as day:
        worker(day, **clock.environment())
        worker(day, **clock.environment())
        await day.begun()
        await load(day)
        for number, hours in enumerate((5, -5, 0), start=1):
            await day.effects(number * RUNS * EACH // 4)
            clock.off(hours)
        lines = await once_each(day)
        by_one_clock(lines, since)
        assert set(claims(lines)) <= {"start", "resume"}


def test_the_fake_is_one(tmp_path: Path, clock: Clock) -> None:
    """Without it the other tests prove nothing."""
    code = "import time; print(time.time(), time.monotonic())"
    for hours in (5, -5):
        clock.off(hours)
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **clock.environment()}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        wall, monotonic = map(float, done.stdout.split())
        assert abs(wall * 1000 - epoch_ms() - hours * 3_600_000) < 60_000
        assert monotonic < 2**40 and "libfaketime" not in done.stderr


@pytest.mark.parametrize("hours", [5, -5])
async def test_on_sqlite_the_clock_of_a_process_is_that_of_its_database(
    tmp_path: Path, clock: Clock, hours: int
) -> None:
    """Two processes of one machine that differ by hours: runs may move for no reason, or late. Nothing acts twice."""
    clock.off(hours)
    async with day_on("", tmp_path) as day:
        await load(day, deadline=None)
        worker(day, **clock.environment())
        await day.effects(RUNS)
        worker(day)
        print(f"{hours:+d} h: claims {dict(claims(await once_each(day)))}")
