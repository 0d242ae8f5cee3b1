"""What a run comes to do, and another one of its origin has done, is held back and decided by a person."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import cast

import pytest
from pydantic import BaseModel

from outlive import Agent, Handle, NotSent, Operation, Outlive, Retry, Run
from outlive.app import decide
from outlive.errors import BadArguments, NotForkable, NotInDoubt, Refused, RunExists, WrongState
from outlive.log import kinds
from outlive.model.errors import Abandoned
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.run import RunRow
from outlive.testing import Lab, lab
from outlive.testing.audit import whole_log
from outlive.testing.faults import Fault
from outlive.testing.world import World, resolve
from tests.forks.scene import finish, operations, pause, person, resume, wrong_with
from tests.sweep.corpus import Bank

app: Outlive[Bank] = Outlive()
BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


class Change:
    """What the agents here do, as a new release would change it."""

    cents = 4200
    refuse = False
    times = 1


@pytest.fixture(autouse=True)
def unchanged() -> None:
    Change.cents, Change.refuse, Change.times = 4200, False, 1


class State(BaseModel):
    done: list[str] = []


@app.tool(effect="idempotent")
async def put(op: Operation[Bank], what: str) -> str:
    return op.deps.booked.setdefault(op.key, f"{what} as {len(op.deps.booked)}")


@app.tool(settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30))
async def charge(op: Operation[Bank], what: str, cents: int) -> str:
    op.deps.book(op.key, what)
    return f"ch_{len(op.deps.booked)}"


@app.tool(retry=Retry(attempts=3, first=timedelta(hours=1)))
async def wire(op: Operation[Bank], what: str) -> str:
    if Change.refuse:
        raise NotSent("the line is cut")
    return op.deps.book(op.key, what)


@app.tool(effect="transactional")
async def note(op: Operation[Bank], what: str) -> int:
    await op.connection.execute("create table if not exists notes (what text)")
    await op.connection.execute(f"insert into notes values ({op.deps.mark})", (what,))
    return len(await op.connection.execute("select what from notes"))


def step(what: str) -> str:
    return what


@app.agent()
async def pays(run: Run[Bank], what: str) -> str:
    return await run.call(charge, what, Change.cents)


@app.agent()
async def puts(run: Run[Bank], what: str) -> str:
    return await run.call(put, what)


@app.agent()
async def notes(run: Run[Bank], what: str) -> int:
    return await run.call(note, what)


@app.agent()
async def pays_for_itself(run: Run[Bank], what: str) -> str:
    return await run.call(charge, run.id, Change.cents)


@app.agent()
async def pays_twice(run: Run[Bank], what: str) -> list[str]:
    return [await run.call(charge, what, 1), await run.call(charge, what, 1)]


@app.agent()
async def pays_as_often(run: Run[Bank], what: str) -> list[str]:
    return [await run.call(charge, what, 1) for _ in range(Change.times)]


@app.agent()
async def listens(run: Run[Bank], what: str) -> list[str]:
    first = await run.receive("news", str)
    await run.sleep(timedelta(days=1))
    return [first, await run.receive("news", str)]


@app.agent()
async def pays_at_once(run: Run[Bank], what: str) -> list[str]:
    return list(await run.gather(run.call(charge, what, 1), run.call(charge, what, 1)))


@app.agent()
async def pays_later(run: Run[Bank], what: str) -> str:
    await run.sleep(timedelta(days=1))
    return await run.call(wire, what)


@app.agent()
async def catches(run: Run[Bank], what: str) -> str:
    try:
        return await run.call(charge, what, Change.cents)
    except Abandoned as error:
        return f"without it: {error.reason}"


@app.agent()
async def loops(run: Run[Bank], what: str) -> list[str]:
    async for state in run.turns(State()):
        if len(state.done) == 3:
            return state.done
        state.done.append(await run.call(charge, what, len(state.done)))
    return []


@asynccontextmanager
async def opened(store: str) -> AsyncIterator[tuple[Lab[Bank], World[Bank], Bank]]:
    bank = Bank(mark="?" if store == "sqlite" else "%s")
    async with lab(app, deps=bank, store=store) as t:
        yield t, t._world, bank


async def parent_of(t: Lab[Bank], agent: Agent[str, object], id: str = "parent") -> Handle[object]:
    handle = await t.start(agent, "inv", id=id)
    await handle.result()
    return handle


async def blocked(world: World[Bank], run: str) -> RunRow:
    row = await world.finish((await world.row(run)).id)
    assert (row.status, row.reason) == ("blocked", "done elsewhere"), f"{row.status} {row.reason}: {row.detail}"
    return row


@BOTH
@pytest.mark.parametrize("agent", [pays, puts, notes], ids=lambda agent: agent.name)
async def test_a_restart_does_nothing_again_and_reuses_what_there_is(agent: Agent[str, object], store: str) -> None:
    async with opened(store) as (t, world, bank):
        parent = await parent_of(t, agent)
        (theirs,) = await operations(world, "parent")
        fork = await parent.fork(who="ada", at=0, id="fork")
        row = await blocked(world, "fork")
        assert f"run parent has done {theirs.tool}(" in row.detail
        assert theirs.id in row.detail
        (held,) = await operations(world, "fork")
        assert (held.status, held.attempt, held.key) == ("held", 0, theirs.key)
        assert held.id != theirs.id
        before = dict(bank.booked), dict(bank.acted)
        assert (await finish(world, "fork")).status == "succeeded"
        assert await fork.result() == await parent.result()
        assert (dict(bank.booked), dict(bank.acted)) == before
        (reused,) = await operations(world, "fork")
        assert (reused.status, reused.how, reused.outcome) == ("succeeded", "reuse", theirs.outcome)
        for run in ("parent", "fork"):
            assert await wrong_with(world, await world.row(run)) == []


@BOTH
@pytest.mark.parametrize("agent", [pays, puts, notes], ids=lambda agent: agent.name)
async def test_what_is_repeated_on_purpose_has_a_key_of_its_own(agent: Agent[str, object], store: str) -> None:
    async with opened(store) as (t, world, bank):
        parent = await parent_of(t, agent)
        fork = await parent.fork(who="ada", at=0, id="fork")
        await blocked(world, "fork")
        assert (await finish(world, "fork", "repeat")).status == "succeeded"
        (theirs,), (ours,) = await operations(world, "parent"), await operations(world, "fork")
        assert (ours.status, ours.how, ours.attempt) == ("succeeded", "call", 1)
        assert theirs.key != ours.key
        assert await fork.result() != await parent.result(), "the other side must not take it for the first one"
        assert await wrong_with(world, await world.row("fork")) == []
        bold = await parent.fork(who="ada", at=0, id="bold", repeat_effects=True)
        assert await bold.result() != await parent.result()
        (its,) = await operations(world, "bold")
        assert len({theirs.key, ours.key, its.key}) == 3
        facts = [kinds.read(entry) for entry in await whole_log(world, (await world.row("bold")).id)]
        assert [fact.repeat_effects for fact in facts if isinstance(fact, kinds.Forked)] == [True]
        assert await wrong_with(world, await world.row("bold")) == []


async def test_what_is_given_up_is_told_to_the_agent() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await parent_of(t, catches)
        fork = await parent.fork(who="ada", at=0, id="fork")
        await blocked(world, "fork")
        assert (await finish(world, "fork", "abandon")).status == "succeeded"
        assert await fork.result() == "without it: she has looked"
        assert sum(bank.acted.values()) == 1


async def test_a_fork_behind_the_operation_has_it_in_its_history() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await parent_of(t, pays)
        fork = await parent.fork(who="ada", id="fork")
        assert await fork.result() == "ch_1"
        assert await operations(world, "fork") == []
        assert sum(bank.acted.values()) == 1
        again = await fork.fork(who="ada", id="again")
        assert await again.result() == "ch_1"
        assert (await world.row("again")).origin == "parent"
        assert await wrong_with(world, await world.row("again")) == []


async def test_each_call_with_the_same_arguments_meets_one_of_the_others() -> None:
    for agent in (pays_twice, pays_at_once):
        async with opened("sqlite") as (t, world, bank):
            parent = await parent_of(t, agent)
            fork = await parent.fork(who="ada", at=0, id="fork")
            await blocked(world, "fork")
            assert (await finish(world, "fork")).status == "succeeded"
            assert await fork.result() == await parent.result(), "the first is the first, and the second the second"
            assert sum(bank.acted.values()) == 2


async def test_what_is_in_doubt_holds_a_fork_back_until_it_is_known() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await t.start(pays, "inv", id="parent")
        t.crash(Fault("after", 1, "append"))  # the intent
        await world.finish((await world.row("parent")).id)
        (theirs,) = await operations(world, "parent")
        assert theirs.status == "unknown"
        with pytest.raises(WrongState, match="blocked"):
            await parent.fork(who="ada", at=0)
        await pause(world, "parent")
        fork = await parent.fork(who="ada", at=0, id="fork")
        row = await blocked(world, "fork")
        assert "run parent may have done charge" in row.detail
        (held,) = await operations(world, "fork")
        with pytest.raises(Refused, match="unknown, so it has no outcome"):
            await resolve(world, held, "reuse", outcome=None, why="no")
        with pytest.raises(NotInDoubt):
            await resolve(world, held, "did-not-happen", outcome=None, why="no")
        world.clock.advance(timedelta(minutes=10))
        await resolve(world, theirs, "did-not-happen", outcome=None, why="it is not in the books")
        await decide.retry(person(world), DEFAULT_TENANT, "fork", who="ada", why="it did not happen")
        assert await fork.result() == "ch_1"
        (ours,) = await operations(world, "fork")
        assert ours.key == theirs.key, "the same call, which is sent for the first time"
        assert await wrong_with(world, await world.row("fork")) == []


async def test_a_parent_that_is_resumed_finds_what_its_fork_has_done() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await t.start(pays_later, "inv", id="parent")
        await world.work()
        await pause(world, "parent")
        fork = await parent.fork(who="ada", id="fork")
        assert await fork.result()
        await resume(world, "parent")
        await blocked(world, "parent")
        assert (await finish(world, "parent")).status == "succeeded"
        assert await parent.result() == await fork.result()
        assert sum(bank.acted.values()) == 1
        assert await wrong_with(world, await world.row("parent")) == []


async def test_a_parent_that_waits_to_try_again_finds_what_its_fork_has_done() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await t.start(pays_later, "inv", id="parent")
        Change.refuse = True
        await t.advance(days=1, minutes=1)
        (row,) = await operations(world, "parent")
        assert row.status == "retrying"
        await pause(world, "parent")
        with pytest.raises(NotForkable, match="it is retrying"):
            await parent.fork(who="ada", at=(await world.row("parent")).head.seq - 1)
        Change.refuse = False
        fork = await parent.fork(who="ada", id="fork")
        assert await fork.result()
        await resume(world, "parent")
        await blocked(world, "parent")
        assert (await finish(world, "parent", "repeat")).status == "succeeded"
        (theirs,), (ours,) = await operations(world, "fork"), await operations(world, "parent")
        assert (ours.attempt, ours.key == theirs.key) == (2, False)
        assert sum(bank.acted.values()) == 2
        assert await wrong_with(world, await world.row("parent")) == []


async def test_two_forks_that_meet_at_an_operation_both_wait() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await t.start(pays_later, "inv", id="parent")
        await world.work()
        await pause(world, "parent")
        one = await parent.fork(who="ada", id="one")
        await parent.fork(who="ada", id="other", at=0)
        await t.advance(days=1)
        rows = [(await operations(world, run))[0] for run in ("one", "other")]
        assert {row.status for row in rows} <= {"held", "succeeded"}
        assert sum(bank.acted.values()) == [row.status for row in rows].count("succeeded") <= 1
        for run in ("one", "other"):
            if not (await world.row(run)).ended:
                await decide.retry(person(world), DEFAULT_TENANT, run, who="ada", why="go on")
                await world.work()
        assert sum(bank.acted.values()) == 1, "one of them goes on, and the other finds what it has done"
        await finish(world, "one")
        await finish(world, "other")
        grandchild = await one.fork(who="ada", id="grandchild", at=0)
        await blocked(world, grandchild.id)
        assert sum(bank.acted.values()) == 1


async def test_what_is_history_does_not_hold_a_second_one_back() -> None:
    async with opened("sqlite") as (t, world, _):
        parent = await parent_of(t, pays_as_often)
        Change.times = 2
        fork = await parent.fork(who="ada", id="fork")
        assert await fork.result() == ["ch_1", "ch_2"]
        assert len(await operations(world, "fork")) == 1


async def test_a_message_that_nobody_has_received_stays_with_the_parent() -> None:
    async with opened("sqlite") as (t, world, _):
        parent = await t.start(listens, "inv", id="parent")
        for word in ("one", "two"):
            await parent.send("news", word, key=word)
        await world.work()
        await pause(world, "parent")
        fork = await parent.fork(who="ada", id="fork")
        await t.advance(days=2)
        assert (await world.row("fork")).status == "waiting"
        assert await wrong_with(world, await world.row("fork")) == [], "the pause of its parent is history"
        await fork.send("news", "three", key="two")
        assert await fork.result() == ["one", "three"]
        await resume(world, "parent")
        assert await parent.result() == ["one", "two"]
        assert await wrong_with(world, await world.row("fork")) == []


@pytest.mark.parametrize("append", [1, 2])
async def test_a_message_keeps_its_place_when_its_append_is_written_again(append: int) -> None:
    async with opened("sqlite") as (t, _, _bank):
        handle = await t.start(listens, "inv")
        for word in ("one", "two"):
            await handle.send("news", word, key=word)
        t.crash(Fault("lost", append, "append", later=None))
        assert await handle.result() == ["one", "two"]


async def test_the_same_place_with_other_arguments_has_another_key() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await parent_of(t, pays)
        Change.cents = 4300
        fork = await parent.fork(who="ada", at=0, id="fork")
        assert await fork.result() == "ch_2"
        (theirs,), (ours,) = await operations(world, "parent"), await operations(world, "fork")
        assert theirs.key != ours.key, "the other side would answer with the first charge"


async def test_the_id_of_the_run_among_the_arguments_is_no_difference() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await parent_of(t, pays_for_itself)
        await parent.fork(who="ada", at=0, id="fork")
        await blocked(world, "fork")
        assert sum(bank.acted.values()) == 1


async def test_effects_are_repeated_in_later_turns_too() -> None:
    async with opened("sqlite") as (t, world, bank):
        parent = await parent_of(t, loops)
        fork = await parent.fork(who="ada", at=2, id="fork", repeat_effects=True)
        t.crash(Fault("after", 3, "append"))  # the second turn: the next worker does not read that it is a fork
        assert len(cast("list[str]", await fork.result())) == 3
        assert [row.seq for row in await operations(world, "fork")] != []
        assert sum(bank.acted.values()) == 6
        assert await wrong_with(world, await world.row("fork")) == []


async def test_what_is_asked_for_must_make_sense() -> None:
    async with opened("sqlite") as (t, world, _):
        parent = await parent_of(t, pays)
        for at in (-1, 99):
            with pytest.raises(NotForkable, match="its log has the entries 0 to"):
                await parent.fork(who="ada", at=at)
        with pytest.raises(NotForkable, match="the run has ended there") as refused:
            await parent.fork(who="ada", at=(await world.row("parent")).head.seq - 1)
        assert refused.value.nearest == (await world.row("parent")).head.seq - 2
        for who, id in ((" ", "x"), ("ada", "x\n"), ("ada", "x" * 201)):
            with pytest.raises(BadArguments):
                await parent.fork(who=who, id=id)
        await parent.fork(who="ada", at=0, id="f")
        assert (await parent.fork(who="bob", at=0, id="f")).id == "f"
        for at, id, repeats in ((1, "f", False), (0, "f", True), (0, "parent", False)):
            with pytest.raises(RunExists):
                await parent.fork(who="ada", at=at, id=id, repeat_effects=repeats)
        row = await world.row("f")
        assert (row.principal, row.deadline_at, row.status) == ("ada", None, "ready")
        assert json.loads((await whole_log(world, row.id))[0].body)["agent"] == "pays"
        assert await world.store.unread(DEFAULT_TENANT, row.id) == []
