"""Cancels that race with the end of a run, and cancels while processes die.

A request outlives whoever could serve it, a clean-up whoever had begun it, and what the command says the log says too.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from outlive import Handle
from outlive.model.ids import Owner
from outlive.model.run import RunRow
from tests.kills import cancelled
from tests.kills.scene import BOTH, PATIENCE, POSTGRES_FIRST, ROOT, SQLITE_FIRST, TENANT, Scene, kill, scene
from tests.kills.waiting import rest, until

AGENTS = "tests.kills.cancelled:app"
BYSTANDERS = "tests.kills.bystanders:app"
WHO, WHY = "ada", "enough"


async def booked(here: Scene, room: str) -> Handle[str]:
    """A run that has booked a room and waits."""
    run = await cancelled.app.start(cancelled.booking, room, id=room)
    await here.status(room, "waiting")
    return run


async def ends(here: Scene, run: str) -> RunRow:
    """Its row, once it was cancelled; a starved machine takes its time."""

    async def look() -> RunRow | None:
        row = await here.row(run)
        return row if row.ended else None

    row = await until(look, f"run {run} has ended", within=60)
    assert (row.status, row.detail) == ("cancelled", f"{WHO}: {WHY}")
    return row


class Canceller:
    """A process that cancels runs with the command, each as soon as it is told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE.total_seconds()):
            return (await self._process.stdout.readline()).decode().strip()

    async def cancel(self, run: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{run}\n".encode())
        await self._process.stdin.drain()
        return int(await self.line())


@asynccontextmanager
async def canceller(here: Scene) -> AsyncIterator[Canceller]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kills.canceller", cwd=ROOT, env=here.environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        made = Canceller(process)
        assert await made.line() == "ready"
        yield made
    finally:
        process.kill()
        await process.wait()


async def the_same_is_said(here: Scene, run: Handle[int], code: int) -> str:
    """What came of a cancel: the command, the row and the log agree, and nothing is left unanswered."""
    row, log = await here.row(run.id), [line.kind for line in await here.log(run.id)]
    assert not await here.store.unread(TENANT, row.id)
    assert log.count("ended") == 1
    if code == 0:
        assert (row.status, row.detail) == ("cancelled", f"{WHO}: {WHY}")
        assert log.count("cancelling") == 1
        assert "too late" not in log
        return "cancelled"
    assert (code, row.status) == (1, "succeeded")
    assert "cancelling" not in log
    assert log[log.index("ended") :].count("too late") == 1
    return "too late"


async def races(here: Scene, rounds: int, *, kills_every: int = 0) -> Counter[str]:
    """Cancel one run after the other at about the moment of its end, which each result brings nearer."""
    cancelled.app.use(here.store)
    worker, came, steps = here.process("outlive", "worker", AGENTS), Counter[str](), 40.0
    await here.owner(worker)
    async with canceller(here) as by:
        for number in range(1, rounds + 1):
            run = await cancelled.app.start(cancelled.counting, int(steps), id=f"run-{number}")
            if steps < 1:
                await rest(0.01 / steps)
            if kills_every and number % kills_every == 0:
                worker.kill()
            code = await by.cancel(run.id)
            if kills_every and number % kills_every == 0:
                worker.wait()
                worker = here.process("outlive", "worker", AGENTS)
                await here.owner(worker)
            said = await the_same_is_said(here, run, code)
            came[said] += 1
            steps *= 1.25 if said == "too late" else 0.8
    return came


@BOTH
async def test_a_cancel_at_the_moment_of_the_end_is_met_or_too_late(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        came = await races(here, 20)
        assert min(came["cancelled"], came["too late"]) > 0, came


@pytest.mark.long
@pytest.mark.timeout(300)
@BOTH
async def test_so_it_is_when_the_worker_is_killed_as_well(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        there = here.process("outlive", "worker", AGENTS)
        await here.owner(there)
        came = await races(here, 100, kills_every=10)
        assert min(came["cancelled"], came["too late"]) > 0, came


@SQLITE_FIRST
async def test_the_worker_is_killed_within_the_grace_and_the_next_one_cleans_up(tmp_path: Path, store: str) -> None:
    """What the clean-up had sent is sent again under its key, and happens once."""
    async with scene(tmp_path, store=store, dedupe=True) as here:
        cancelled.app.use(here.store)
        first = here.process("outlive", "worker", AGENTS)
        run = await booked(here, "room-1")
        here.bank.rule("hold", when="after", invoice="room-1 back", times=1)
        assert await run.cancel(who=WHO, why=WHY, grace=timedelta(minutes=5)) == "asked"
        here.bank.wait_held(1, timeout=90)
        kill(first)
        here.bank.release()
        here.process("outlive", "worker", AGENTS)
        await ends(here, run.id)
        assert [one.status for one in await here.operations(run.id)] == ["succeeded", "succeeded"]
        assert here.counted() == {"room-1": 1, "room-1 back": 1}
        log = [line.kind for line in await here.log(run.id)]
        assert log.count("cancelling") == 1
        assert log[log.index("cancelling") :].count("step") == 1


@POSTGRES_FIRST
async def test_the_last_worker_is_killed_before_it_serves_a_cancel(tmp_path: Path, store: str) -> None:
    """One run waits, another is driven; a worker of another application ends both."""
    async with scene(tmp_path, store=store) as here:
        cancelled.app.use(here.store)
        worker, there = here.process("outlive", "worker", AGENTS), here.process("outlive", "worker", BYSTANDERS)
        await here.owner(there)
        waiting = await booked(here, "room 1")
        here.bank.rule("hold", when="before", invoice="room 2")
        driven = await cancelled.app.start(cancelled.booking, "room 2", id="room 2")
        here.bank.wait_held(1, timeout=90)
        await here.freeze(worker)
        for run in (waiting, driven):
            assert await run.cancel(who=WHO, why=WHY) == "asked"
        kill(worker)
        for run in (waiting, driven):
            row = await ends(here, run.id)
            assert not await here.store.unread(TENANT, row.id)
            assert [line.kind for line in await here.log(run.id)][-1] == "ended"
        assert [one.status for one in await here.operations("room 1")] == ["succeeded"]
        assert [one.status for one in await here.operations("room 2")] == ["unknown"], "it may have been sent"
        assert there.poll() is None


@SQLITE_FIRST
async def test_the_command_ends_what_nobody_serves_any_more(tmp_path: Path, store: str) -> None:
    """The worker had taken its leave, as one that is drained does, before it served the request."""
    async with scene(tmp_path, store=store) as here:
        cancelled.app.use(here.store)
        worker = here.process("outlive", "worker", AGENTS)
        owner = await here.owner(worker)
        run = await booked(here, "room-1")
        await here.freeze(worker)
        assert await run.cancel(who=WHO, why=WHY) == "asked"
        kill(worker)
        await here.store.leave(Owner(owner))
        assert (await here.row(run.id)).status == "waiting"
        assert "outlive cancel room-1 ends it" in here.outlive("doctor").stdout
        assert here.outlive("cancel", "room-1", "--why", "again").returncode == 0
        assert (await here.row(run.id)).detail == f"{WHO}: {WHY}", "the first request counts"
