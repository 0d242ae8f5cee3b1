"""What the tests of forks play: a run with all that it did, its forks, and a person who decides about what is held."""

from __future__ import annotations

from typing import cast

from outlive import Handle
from outlive.app import stop
from outlive.app.audit import Progress, verify_run
from outlive.app.decide import Word
from outlive.engine.control import Control
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.operation import OperationRow
from outlive.model.run import RunRow
from outlive.store.survey import Surveyed
from outlive.testing.audit import audit
from outlive.testing.lab import Lab
from outlive.testing.world import World, resolve
from tests.sweep.corpus import Bank


def world_of(t: Lab[Bank]) -> World[Bank]:
    """The world of a lab."""
    return t._world


async def finish(world: World[Bank], run: str, word: Word = "reuse") -> RunRow:
    """Drive a run to where it stops; a person says `word` about whatever is held."""
    while True:
        row = await world.finish(RunId(run))
        held = [one for one in await operations(world, run) if one.status == "held"]
        if row.status != "blocked" or row.reason != "done elsewhere":
            return row
        assert held, "it is blocked, and nothing is held"
        for one in held:
            await resolve(world, one, word, outcome=None, why="she has looked")


async def operations(world: World[Bank], run: str) -> list[OperationRow]:
    return await world.store.operations(DEFAULT_TENANT, RunId(run))


async def wrong_with(world: World[Bank], row: RunRow) -> list[str]:
    """What is wrong with a run: as the sweep sees it, and as `outlive audit verify` does."""
    found = await audit(world, row)
    async for misfit in verify_run(cast(Surveyed, world.store), DEFAULT_TENANT, row.id, Progress()):
        found.append(f"{misfit.what}: {misfit.why}")
    return found


async def forked(world: World[Bank], parent: Handle[object], at: int | None, name: str, *, repeat: bool = False) -> str:
    """A fork; what was witnessed so far is forgotten, because it is about other runs."""
    made = await parent.fork(who="ada", at=at, id=name, repeat_effects=repeat)
    world.witnessed.clear()
    return made.id


def person(world: World[Bank]) -> Control:
    """Somebody who decides, at another process."""
    return Control(world.store, world.clock, Owner("ada"))


async def pause(world: World[Bank], run: str) -> None:
    """Paused by an operator; nobody drives it."""
    assert await stop.pause(person(world), DEFAULT_TENANT, run, who="ada", why="a fork") == "paused"


async def resume(world: World[Bank], run: str) -> None:
    """Resumed."""
    await stop.resume(person(world), DEFAULT_TENANT, run, who="ada", why="the fork is there")
