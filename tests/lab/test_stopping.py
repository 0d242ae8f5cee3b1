"""A lab cancels, pauses and resumes as the world outside does; the code of a run that is cancelled is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from outlive import Operation, Outlive, Run
from outlive.errors import RunCancelled, UnknownRun, WrongState
from outlive.testing import Fault, Stuck, lab


@dataclass
class Hotel:
    booked: list[str] = field(default_factory=list)


app: Outlive[Hotel] = Outlive()


@app.tool(effect="idempotent")
async def book(op: Operation[Hotel], room: str) -> str:
    op.deps.booked.append(room)
    return room


@app.tool(effect="idempotent")
async def unbook(op: Operation[Hotel], room: str) -> str:
    op.deps.booked.remove(room)
    return room


@app.agent()
async def travels(run: Run[Hotel], days: int) -> str:
    await run.call(book, "12")
    try:
        await run.sleep(timedelta(days=3))
    except asyncio.CancelledError:
        await run.sleep(timedelta(days=days))
        await run.call(unbook, "12")
        raise
    return "home again"


@pytest.mark.parametrize("evict", [False, True])
async def test_a_cancel_is_told_and_cleaned_up_after(evict: bool) -> None:
    async with lab(app, deps=Hotel(), evict=evict) as t:
        run = await t.start(travels, 0)
        assert await t.cancel(run, who="ada", why="rain") in ("asked", "cancelled")
        await t.advance(seconds=1)
        assert [one["room"] for one in t.sent("unbook")] == ["12"]
        with pytest.raises(RunCancelled, match="ada: rain"):
            await run.result()
        assert await t.cancel(run) == "cancelled"


async def test_a_clean_up_that_waits_has_its_grace_and_no_more() -> None:
    hotel = Hotel()
    async with lab(app, deps=hotel) as t:
        slow, slower = await t.start(travels, 1), await t.start(travels, 3)
        for run in (slow, slower):
            assert await t.cancel(run, grace=timedelta(days=2)) == "asked"
        assert await t.status(slow) == "waiting"
        await t.advance(days=2)
        assert [await t.status(run) for run in (slow, slower)] == ["cancelled", "cancelled"]
        assert hotel.booked == ["12"]


async def test_a_handle_of_the_lab_tells_the_code_too() -> None:
    hotel = Hotel()
    async with lab(app, deps=hotel) as t:
        run = await t.start(travels, 1)
        await t.advance(hours=1)
        grace = timedelta(days=2)
        assert await run.cancel(who="ada", why="rain", grace=grace, wait=grace) == "cancelled"
        assert hotel.booked == []


async def test_who_ended_first_is_too_late() -> None:
    async with lab(app, deps=Hotel()) as t:
        run = await t.start(travels, 0)
        await t.advance(days=3)
        assert await t.cancel(run) == "too late"
        assert await run.result() == "home again"
        with pytest.raises(UnknownRun):
            await t.cancel("nobody")


async def test_the_worker_dies_in_the_clean_up_and_the_next_goes_on() -> None:
    hotel = Hotel()
    async with lab(app, deps=hotel) as t:
        run = await t.start(travels, 1)
        await t.advance(hours=1)
        t.crash(Fault("after", 1, "append"))
        assert await t.cancel(run, grace=timedelta(days=2)) == "asked"
        await t.advance(days=2)
        assert await t.status(run) == "cancelled"
        assert hotel.booked == []


async def test_a_paused_run_lets_time_pass_it_by() -> None:
    async with lab(app, deps=Hotel()) as t:
        run = await t.start(travels, 0)
        assert await t.pause(run) == "paused"
        await t.advance(days=30)
        assert await t.status(run) == "waiting"
        with pytest.raises(Stuck, match="is paused, and waiting"):
            await run.result()
        await t.resume(run)
        assert await run.result() == "home again"
        with pytest.raises(WrongState):
            await t.resume(run)
