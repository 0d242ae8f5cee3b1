"""Verbs on many runs: pages have every run once, also while it is acted on, and one failure stops no other."""

from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from outlive.app import bulk, stopping
from outlive.errors import StoreUnavailable, WrongState
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.run import RunFilter, RunRow
from outlive.store.port import Append, Change, Claim, Store
from outlive.testing import lab
from outlive.testing.store_scene import event, new_run
from tests.sweep.corpus import Bank, app

MANY = 25


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_pages_have_every_run_once(store: str) -> None:
    async with lab(app, deps=Bank(), store=store) as t:
        world = t._world
        for number in range(MANY):
            if number % 4 == 0:  # several runs are started in the same millisecond
                await t.advance(milliseconds=1)
            labels = {"half": str(number % 2)}
            await world.store.start(replace(new_run(f"r{number}"), labels=labels), now=world.clock.now())
        which = RunFilter(labels={"half": "1"})
        found = [row.id async for row in bulk.chosen(world.store, DEFAULT_TENANT, which, page=3)]
        assert sorted(found) == sorted(f"r{number}" for number in range(MANY) if number % 2)
        everything = [row async for row in bulk.chosen(world.store, DEFAULT_TENANT, RunFilter(), page=4)]
        assert len({row.id for row in everything}) == len(everything) == MANY
        assert [row.created_at for row in everything] == sorted((row.created_at for row in everything), reverse=True)
        middle = everything[10].created_at
        older = [row.id async for row in bulk.chosen(world.store, DEFAULT_TENANT, RunFilter(before=middle), page=3)]
        assert older == [row.id for row in everything if row.created_at < middle]


async def test_what_is_started_meanwhile_is_not_acted_on_and_a_failure_stops_no_other() -> None:
    async with lab(app, deps=Bank()) as t:
        world = t._world
        for number in range(7):
            await t.advance(milliseconds=1)
            await world.store.start(new_run(f"r{number}"), now=world.clock.now())
        met: list[str] = []

        async def verb(store: Store, row: RunRow) -> str:
            met.append(row.id)
            world.clock.advance(timedelta(milliseconds=1))
            await store.start(new_run(f"new-{row.id}"), now=world.clock.now())
            if row.id == "r3":
                raise WrongState(run=row.id, status="odd", wanted="even ones only")
            return "done"

        done = [one async for one in bulk.each(world.store, DEFAULT_TENANT, RunFilter(), verb, page=2)]
        assert met == [f"r{number}" for number in reversed(range(7))]
        assert [(one.run, one.failed) for one in done if one.failed] == [("r3", True)]
        assert {one.said for one in done if not one.failed} == {"done"}
        assert await bulk.would(world.store, await world.row("r0")) == "ready"


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_many_are_stopped_as_one_is(store: str) -> None:
    async with lab(app, deps=Bank(), store=store) as t:
        world = t._world
        for name, agent in (("a", "clerk"), ("b", "clerk"), ("driven", "pilot"), ("c", "clerk")):
            await world.store.start(new_run(name, agent=agent), now=world.clock.now())
            await t.advance(milliseconds=1)
        assert await world.store.claim(Claim(Owner("w-1"), {"pilot": "b1"}, 1, 600_000), now=world.clock.now())

        async def each(verb: bulk.Verb, which: RunFilter) -> dict[str, bulk.Done]:
            return {one.run: one async for one in bulk.each(world.store, DEFAULT_TENANT, which, verb, page=2)}

        def said(done: dict[str, bulk.Done]) -> dict[str, str]:
            return {run: "asked" if isinstance(one.said, bulk.NotYet) else one.said for run, one in done.items()}

        still = {"a": "paused", "b": "paused", "c": "paused"}
        at_once = timedelta(0)
        done = await each(stopping.pausing("ada", "the bank is down", wait=at_once), RunFilter())
        assert said(done) == still | {"driven": "asked"}
        assert not any(one.failed for one in done.values())
        going = await each(stopping.resuming("ada", "it is back"), RunFilter(paused=True))
        assert said(going) == dict.fromkeys(still, "goes on; it is ready")
        done = await each(stopping.cancelling("ada", "wrong month", grace=at_once, wait=at_once), RunFilter())
        assert said(done) == dict.fromkeys(still, "cancelled") | {"driven": "asked"}
        done = await each(stopping.terminating("ada", "it does not answer"), RunFilter())
        assert {run for run, one in done.items() if one.failed} == set(still)
        assert done["driven"].said == "terminated"
        assert {(await world.row(run)).status for run in done} == {"cancelled"}


async def test_what_came_too_late_is_a_failure() -> None:
    async with lab(app, deps=Bank()) as t:
        world = t._world
        for name in ("cancel", "pause"):
            row = await world.store.start(new_run(name), now=world.clock.now())
            hold = await world.store.seize(
                DEFAULT_TENANT, row.id, owner=Owner("w-1"), lease_ms=600_000, now=world.clock.now()
            )
            assert hold is not None
            ended = Append(hold.authority, hold.row.head, (event(),), Change("failed"))
            await world.store.append(ended, now=world.clock.now())
        cancelling = stopping.cancelling("ada", "", grace=timedelta(0), wait=timedelta(0))
        done = await bulk.one(world.store, await world.row("cancel"), cancelling)
        assert done == bulk.Done(RunId("cancel"), "run cancel has failed; it is too late to cancel it", failed=True)
        done = await bulk.one(world.store, await world.row("pause"), stopping.pausing("ada", "", wait=timedelta(0)))
        assert done.failed
        assert "only a run that has not ended can be paused" in done.said


async def test_a_store_that_is_gone_ends_it() -> None:
    async def verb(store: Store, row: RunRow) -> str:
        raise StoreUnavailable(store="it", why="it is gone")

    async with lab(app, deps=Bank()) as t:
        await t._world.store.start(new_run("r"), now=t.clock.now())
        row = await t._world.store.run(DEFAULT_TENANT, RunId("r"))
        with pytest.raises(StoreUnavailable):
            await bulk.one(t._world.store, cast(RunRow, row), verb)
