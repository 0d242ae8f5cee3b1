"""A worker that serves until it is replaced: what it leaves to newer ones, and when it stops by itself."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from outlive import Agent, Outlive, Run
from outlive.engine.definition import AgentSpec
from outlive.engine.replaced import Replaced
from outlive.engine.worker import Worker
from outlive.store.survey import Surveyed
from tests.engine.rig import LEASE, Rig
from tests.engine.subject import Body, add, base, does, double, subject

_MINUTE = timedelta(minutes=1)


async def body(run: Run[None]) -> object:
    return await run.step(add, 1)


async def waits_first(run: Run[None]) -> object:
    one = await run.step(add, 1)
    await run.sleep(_MINUTE)
    return one


async def bad(run: Run[None]) -> object:
    return await run.step(double, 1)


async def of(rig: Rig, build: str, *, version: str = "1", leaves: bool = False) -> Worker:
    """A worker of a build that begins now, a moment after whoever began before."""
    rig.clock.advance(timedelta(milliseconds=10))
    worker = rig.worker(rig.app(base), code=build)
    worker.agents = {"subject": AgentSpec("subject", version, subject.fn)}
    if leaves:
        worker.replaced = Replaced(cast(Surveyed, rig.store), rig.clock, worker.owner, LEASE.total_seconds())
    await worker._patiently_announce()
    return worker


def stopped(worker: Worker) -> bool:
    return worker._stopping


async def start(rig: Rig, *runs: str, pin: bool = False, code: Body = body) -> None:
    does.body = code
    app: Outlive[None] = Outlive()
    app.agent(name="subject", version="1", pin=pin)(subject.fn)
    here = rig.app(app)
    for run in runs:
        await here.start(cast("Agent[str, str]", app.registry.agents["subject"]), "task", id=run)


async def statuses(rig: Rig, *runs: str) -> list[str]:
    return [(await rig.row(run)).status for run in runs]


async def serve(rig: Rig, worker: Worker) -> None:
    """Let a third of a lease pass, so that it looks who is there, and drive what it takes."""
    rig.clock.advance(LEASE / 3)
    await rig.settle(worker)


async def test_it_leaves_what_a_newer_build_could_drive_and_stops_when_nothing_needs_it(either: Rig) -> None:
    rig = either
    old = await of(rig, "old", leaves=True)
    await start(rig, "before")
    await rig.settle(old)
    assert await statuses(rig, "before") == ["succeeded"], "nobody else is there"
    new = await of(rig, "new", version="2")
    await start(rig, "free")
    await start(rig, "pinned", pin=True)
    await serve(rig, old)
    assert await statuses(rig, "free", "pinned") == ["ready", "succeeded"]
    assert not stopped(old), "it looks again in a third of a lease"
    await serve(rig, old)
    assert stopped(old), "what is left the newer one can drive"
    await rig.settle(new)
    assert await statuses(rig, "free") == ["succeeded"]


async def test_what_the_newer_build_cannot_go_on_with_keeps_it(either: Rig) -> None:
    rig = either
    old = await of(rig, "old", leaves=True)
    await start(rig, *(f"r{n}" for n in range(30)), code=waits_first)
    while await old.claim():
        await old.idle()
    rig.clock.advance(_MINUTE)
    await rig.store.look(old._wish(), sign=True, now=rig.clock.now())
    new = await of(rig, "new")
    does.body = bad
    # The newer one tries a few, all of which it cannot go on with.
    new.pace = type(new.pace)(concurrency=3)
    await new.claim()
    await new.idle()
    does.body = waits_first
    await serve(rig, old)
    ended = [run for run in (f"r{n}" for n in range(30)) if (await rig.row(run)).ended]
    assert len(ended) == 3, "those that it has diverged on; the others are left to it"
    await serve(rig, old)
    assert stopped(old)


async def test_two_that_serve_until_they_are_replaced_do_not_leave_runs_to_each_other(either: Rig) -> None:
    rig = either
    first = await of(rig, "a", leaves=True)
    second = await of(rig, "b", leaves=True)
    await start(rig, "r")
    await serve(rig, first)
    assert stopped(first)
    assert await statuses(rig, "r") == ["ready"]
    await serve(rig, second)
    assert (await statuses(rig, "r"), stopped(second)) == (["succeeded"], False)
    await serve(rig, second)
    assert not stopped(second)


async def test_workers_of_the_same_build_and_dead_ones_replace_nobody(rig: Rig) -> None:
    old = await of(rig, "old", leaves=True)
    await of(rig, "old")
    await serve(rig, old)
    assert not stopped(old)
    await of(rig, "new")
    rig.clock.advance(LEASE * 2)
    await start(rig, "r")
    await serve(rig, old)
    assert (await statuses(rig, "r"), stopped(old)) == (["succeeded"], False)
