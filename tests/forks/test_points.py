"""A fork at every entry at which one can begin ends as its parent did, and nothing happens a second time."""

import logging
from collections.abc import Callable
from operator import eq

import pytest

from outlive import Agent, Handle
from outlive.errors import NotForkable, RunEnded
from outlive.log import kinds
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.testing import lab
from outlive.testing.audit import whole_log
from tests.forks.scene import finish, forked, world_of, wrong_with
from tests.sweep.corpus import (
    CORPUS,
    EQUAL,
    Bank,
    app,
    external,
    gathers_with_store,
    looked_up,
    loses,
    step_with_retry,
    transactional,
    turns_with_branches,
)

SECRETS = {"bank/token": "t0p-s3cret-c4nary"}
ON_POSTGRES = (looked_up, external, transactional, gathers_with_store, loses, turns_with_branches)


async def told(handle: Handle[object]) -> object:
    try:
        return await handle.result()
    except RunEnded as error:
        return type(error), str(error).partition(": ")[2]


async def each_point(agent: Agent[str, object], store: str) -> tuple[int, int]:
    """Fork at every entry; how many forks there were, and how many were refused."""
    bank = Bank(mark="?" if store == "sqlite" else "%s")
    forks = refused = 0
    async with lab(app, deps=bank, secrets=SECRETS, store=store) as t:
        world = world_of(t)
        parent = await t.start(agent, "inv", id="parent")
        row = await finish(world, parent.id)
        if row.status == "blocked":
            return 0, 0
        result, entries = await told(parent), await whole_log(world, RunId(parent.id))
        legal = 0
        for at in range(len(entries)):
            name = f"fork-{at}"
            try:
                await forked(world, parent, at, name)
            except NotForkable as error:
                refused += 1
                assert error.nearest == legal, str(error)
                assert await world.store.run(DEFAULT_TENANT, RunId(name)) is None
                continue
            legal, forks = at, forks + 1
            row = await finish(world, name)
            log = "\n".join(await world.lines(name))
            assert row.ended, f"{agent.name} at {at}: {row.status} {row.reason} {row.detail}\n{log}"
            assert await wrong_with(world, row) == [], f"{agent.name} at {at}\n{log}"
            handle = world.client.handle(agent, name)
            same: Callable[[object, object], bool] = EQUAL.get(agent.name) or eq
            assert same(await told(handle), result), f"{agent.name} at {at}\n{log}"
            assert max(bank.acted.values(), default=0) <= 1, f"{agent.name} at {at}: an effect happened twice\n{log}"
        assert [entry.kind for entry in entries][-1] == kinds.Ended.KIND
        assert (await parent.fork(who="ada", id="last")).id == "last"
        last = await world.row("last")
        assert last.fork_seq == legal, "without a point it is the last one"
    return forks, refused


async def test_a_fork_at_every_entry(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    # One agent has the id of its run among the arguments of a step: behind that step a fork of it diverges.
    found = [await each_point(agent, "sqlite") for agent in CORPUS if agent is not step_with_retry]
    assert sum(forks for forks, _ in found) > 150
    assert sum(refused for _, refused in found) > 50


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_a_fork_at_every_entry_on_postgres(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    found = [await each_point(agent, store) for agent in ON_POSTGRES]
    assert sum(forks for forks, _ in found) > 25
