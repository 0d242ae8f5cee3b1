"""Cancels while processes die: a request outlives whoever could serve it, and a clean-up whoever had begun it."""

from __future__ import annotations

from pathlib import Path

from outlive import Handle
from outlive.model.ids import Owner
from tests.kills import cancelled
from tests.kills.scene import BOTH, SQLITE_FIRST, TENANT, Scene, kill, scene

AGENTS = "tests.kills.cancelled:app"
BYSTANDERS = "tests.kills.bystanders:app"
WHO, WHY = "ada", "enough"


async def booked(here: Scene, room: str) -> Handle[str]:
    """A run that has booked a room and waits."""
    run = await cancelled.app.start(cancelled.booking, room, id=room)
    await here.status(room, "waiting")
    return run


@BOTH
async def test_the_last_worker_is_killed_before_it_serves_a_cancel(tmp_path: Path, store: str) -> None:
    """One run waits, another is driven; a worker of another application ends both."""
    async with scene(tmp_path, store=store) as here:
        cancelled.app.use(here.store)
        worker, there = here.process("outlive", "worker", AGENTS), here.process("outlive", "worker", BYSTANDERS)
        await here.owner(there)
        waiting = await booked(here, "room 1")
        here.bank.rule("hold", when="before", invoice="room 2")
        driven = await cancelled.app.start(cancelled.booking, "room 2", id="room 2")
        here.bank.wait_held(1, timeout=30)
        await here.freeze(worker)
        for run in (waiting, driven):
            assert await run.cancel(who=WHO, why=WHY) == "asked"
        kill(worker)
        for run in (waiting, driven):
            row = await here.status(run.id, "cancelled")
            assert row.detail == f"{WHO}: {WHY}"
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
