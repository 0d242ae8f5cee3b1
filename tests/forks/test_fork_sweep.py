"""Wherever a process dies while it forks, or while it drives a fork, the fork is there once or not at all, and nothing
happens a second time.
"""

import logging
from dataclasses import dataclass

import pytest

from outlive import Agent, Handle
from outlive.engine import forking
from outlive.model.errors import StoreError
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.testing import lab
from outlive.testing.audit import whole_log
from outlive.testing.faults import Died, Fault, FaultyStore
from outlive.testing.sweep import points
from outlive.testing.world import World
from tests.forks.scene import finish, wrong_with
from tests.sweep.corpus import Bank, app, gathers_with_store, looked_up, transactional, turns

WISH = forking.Wish(at=0, who="ada", id="fork")
AGENTS = (looked_up, transactional, gathers_with_store, turns)
BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


@dataclass
class Play:
    """A run that has ended, in a world of its own."""

    world: World[Bank]
    bank: Bank
    parent: Handle[object]


async def forked_with(world: World[Bank], *faults: Fault) -> FaultyStore:
    """Fork through a store with these faults; whoever dies is followed by another, who says the same again."""
    store = FaultyStore(world.store, faults, on_commit=lambda _: None)
    try:
        await forking.fork(store, world.clock, DEFAULT_TENANT, RunId("parent"), WISH)
    except (Died, StoreError):
        there = await world.store.run(DEFAULT_TENANT, RunId("fork"))
        if there is not None:
            assert await wrong_with(world, there) == [], "a fork that is there is whole"
        await forking.fork(world.store, world.clock, DEFAULT_TENANT, RunId("parent"), WISH)
    await store.deliver()
    return store


@BOTH
async def test_a_process_that_dies_as_it_forks(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    bank = Bank(mark="?" if store == "sqlite" else "%s")
    async with lab(app, deps=bank, store=store) as t:
        await (await t.start(looked_up, "inv", id="parent")).result()
        undisturbed = await forked_with(t._world)
        before = [entry.digest for entry in await whole_log(t._world, RunId("fork"))][:1]
    assert [made.method for made in undisturbed.made] != []
    tried = 0
    for call, made in enumerate(undisturbed.made, start=1):
        for point in points(call, made):
            async with lab(app, deps=Bank(mark=bank.mark), store=store) as t:
                await (await t.start(looked_up, "inv", id="parent")).result()
                met = await forked_with(t._world, *point.first)
                assert met.met == list(point.first), str(point)
                log = await whole_log(t._world, RunId("fork"))
                assert [entry.kind for entry in log] == ["started", "forked"], str(point)
                row = await finish(t._world, "fork")
                assert (row.status, await wrong_with(t._world, row)) == ("succeeded", []), str(point)
                tried += 1
    assert tried > 5
    assert before


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
async def test_a_worker_that_dies_as_it_drives_a_fork(
    agent: Agent[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    tried, call, met = 0, 1, True
    while met:
        call += 3
        for kind in ("die", "after"):
            bank = Bank()
            async with lab(app, deps=bank) as t:
                world = t._world
                parent = await t.start(agent, "inv", id="parent")
                result = await parent.result()
                await forking.fork(world.store, world.clock, DEFAULT_TENANT, RunId("parent"), WISH)
                world.witnessed.clear()
                fault = Fault("die" if kind == "die" else "after", call)
                world.serve(fault)
                store = world.process
                row = await finish(world, "fork")
                log = "\n".join(await world.lines("fork"))
                assert row.status == "succeeded", f"{fault}: {row.status} {row.reason} {row.detail}\n{log}"
                assert await wrong_with(world, row) == [], f"{fault}\n{log}"
                assert await world.client.handle(agent, "fork").result() == result, f"{fault}\n{log}"
                assert max(bank.acted.values(), default=0) <= 1, f"{fault}\n{log}"
                met = store.met == [fault]
                tried += met
    assert tried > 5
