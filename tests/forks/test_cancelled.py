"""A run that was cancelled is forked where it was before that: the fork has nothing of the cancellation."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from outlive import Operation, Outlive, Retry, Run
from outlive.app import stop
from outlive.errors import NotForkable
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.signals import NotSent
from outlive.testing import lab
from outlive.testing.audit import whole_log
from tests.forks.scene import finish, forked, operations, person, world_of, wrong_with
from tests.sweep.corpus import Bank

app: Outlive[Bank] = Outlive()


@app.tool(effect="external", retry=Retry(attempts=9, first=timedelta(hours=1)))
async def pay(op: Operation[Bank], what: str) -> str:
    if op.attempt == 1:
        raise NotSent("the bank is closed")
    return f"paid {what}"


@app.agent()
async def pays(run: Run[Bank], what: str) -> str:
    async def one(part: str) -> str:
        return await run.call(pay, part)

    try:
        return ", ".join(await run.map(one, [f"{what} 1", f"{what} 2"], key=str))
    except asyncio.CancelledError:
        return "it was told"


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_no_fork_begins_between_the_entries_of_a_cancellation(store: str) -> None:
    async with lab(app, deps=Bank(), store=store) as t:
        world = world_of(t)
        parent = await t.start(pays, "INV-7", id="parent")
        await t.advance(minutes=1)
        await stop.cancel(person(world), DEFAULT_TENANT, "parent", who="ada", why="a mistake")
        await world.work()
        log = await whole_log(world, RunId("parent"))
        kinds = [entry.kind for entry in log]
        first, last = kinds.index("scope cancelled"), kinds.index("cancelling")
        assert last == first + 2
        for at in range(first, len(log)):
            with pytest.raises(NotForkable):
                await forked(world, parent, at, f"fork-{at}")
        # Before it an operation has no outcome; behind it nothing is sent again, in a fork neither.
        await forked(world, parent, None, "fork")
        row = await finish(world, "fork")
        assert (row.status, await wrong_with(world, row)) == ("succeeded", [])
        assert [one.status for one in await operations(world, "fork")] == ["succeeded", "succeeded"]
