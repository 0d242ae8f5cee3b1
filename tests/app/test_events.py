"""Events: what is committed, in order; whoever reconnects, wherever it was, misses nothing and sees nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from datetime import timedelta
from typing import cast

import pytest
from pydantic import BaseModel

from outlive import Handle, Operation, Run
from outlive.engine.definition import AgentSpec
from outlive.errors import Refused, UnknownRun
from outlive.events import Event
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Store
from outlive.testing.faults import Died, Fault, FaultyStore
from tests.engine.rig import Rig
from tests.engine.scenes import decide
from tests.engine.subject import RUN, State, act, add, base, begin, does, look, subject


class Progress(BaseModel):
    """What the agent tells."""

    done: int
    note: str = ""


def handle(rig: Rig, run: str = RUN) -> Handle[object]:
    agent = base.registry.agents["subject"]
    assert isinstance(agent, AgentSpec)
    return Handle(lambda: rig.store, rig.clock, agent, DEFAULT_TENANT, RunId(run))


async def followed(handle: Handle[object], after: str | None = None) -> list[Event]:
    """All events until the end, on one connection."""
    return [event async for event in handle.events(after=after)]


async def dropped_at_each(handle: Handle[object]) -> list[Event]:
    """All events until the end, each on a connection of its own that is dropped after it."""
    seen: list[Event] = []
    while not seen or seen[-1].name != "run.ended":
        async with aclosing(handle.events(after=seen[-1].cursor if seen else None)) as events:
            seen.append(await anext(events))
    return seen


async def busy(run: Run[None]) -> object:
    """Something of everything: events, calls that are none, a question, branches, turns, an operation in doubt."""
    await run.emit("progress", Progress(done=0))
    await run.step(add, 1)

    async def branch(number: int) -> str:
        await run.emit("branch", Progress(done=number, note="é" * 20_000))
        return await run.call(look, str(number))

    await run.gather(branch(1), branch(2))
    answer = await run.ask("Go on?", bool, role="ops")
    await run.sleep(timedelta(hours=1))
    async for state in run.turns(State()):
        await run.emit("turn", Progress(done=state.n))
        state.n += 1
        if state.n == 3:
            break
    return [answer, await run.call(act, "it")]


async def lost_answer(op: Operation[None]) -> str:
    if op.arguments["what"] == "it":
        raise ConnectionResetError("the answer was lost")
    return "seen"


async def drive(rig: Rig) -> None:
    """To the end, with a person who answers what is asked and decides what nobody else can know."""
    worker = await begin(rig, busy)
    does.tool = lost_answer
    await rig.settle(worker)
    [asked] = [entry for entry in await rig.entries(RUN) if entry.kind == "wait"]
    await handle(rig).answer(f"answer:{asked.key}", True, who="ada")
    assert (await rig.until_ended(worker, RUN)).status == "blocked"
    await decide(rig, "happened", '"done"')
    assert (await rig.until_ended(worker, RUN)).status == "succeeded"


Follow = Callable[[Handle[object]], Coroutine[object, object, list[Event]]]
NAMES = ["progress", "branch", "branch", "run.asked", "turn", "turn", "turn", "run.blocked", "run.ended"]


async def test_who_reconnects_at_any_entry_misses_nothing_and_sees_nothing_twice(rig: Rig) -> None:
    await drive(rig)
    events = await followed(handle(rig))
    assert [event.name for event in events] == NAMES
    assert await dropped_at_each(handle(rig)) == events
    for entry in await rig.entries(RUN):
        rest = [event for event in events if int(event.cursor) > entry.seq]
        assert await followed(handle(rig), after=str(entry.seq)) == rest, f"after entry {entry.seq}, {entry.kind}"


@pytest.mark.parametrize("follow", [followed, dropped_at_each])
async def test_who_follows_while_it_happens_sees_the_same(rig: Rig, follow: Follow) -> None:
    async with asyncio.TaskGroup() as group:
        does.body = busy
        await rig.app(base).start(subject, "task", id=RUN)
        follower = group.create_task(follow(handle(rig)))
        await drive(rig)
        while not follower.done():
            rig.clock.advance(timedelta(seconds=1))
            await asyncio.wait([follower], timeout=0.001)
    assert follower.result() == await followed(handle(rig))


async def test_what_an_event_says(rig: Rig) -> None:
    await drive(rig)
    events = {event.name: event.data for event in await followed(handle(rig))}
    assert events["turn"] == {"done": 2, "note": ""}
    assert events["branch"]["note"] == "é" * 20_000, "a payload that is kept apart from its entry"
    assert (events["run.asked"]["question"], events["run.asked"]["role"]) == ("Go on?", "ops")
    assert events["run.blocked"]["reason"] == "operation in doubt"
    assert events["run.ended"] == {"status": "succeeded", "reason": ""}


@pytest.mark.parametrize("later", [0, None])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_an_event_whose_commit_was_in_doubt_is_seen_once(rig: Rig, at: int, later: int | None) -> None:
    async def body(run: Run[None]) -> object:
        for number in range(2):
            await run.emit("progress", Progress(done=number))
        return None

    await begin(rig, body)
    faulty = FaultyStore(rig.store, [Fault("lost", at, "append", later)])
    await rig.settle(rig.worker(rig.app(base), store=cast(Store, faulty)))
    assert faulty.unmet == []
    events = await dropped_at_each(handle(rig))
    assert [event.name for event in events] == ["progress", "progress", "run.ended"]
    assert [event.data["done"] for event in events[:2]] == [0, 1]


async def test_nothing_is_seen_of_an_event_that_could_not_be_stored(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        await run.emit("progress", Progress(done=1))
        return None

    await begin(rig, body)
    faulty = FaultyStore(rig.store, [Fault("die", 1, "append")])
    dying = rig.worker(rig.app(base), store=cast(Store, faulty))
    await dying.claim()
    [driving] = dying._drives
    async with aclosing(handle(rig).events()) as events, asyncio.TaskGroup() as group:
        first = group.create_task(_next(events))
        while not faulty.died or rig.clock.next_sleeper() is None:
            await asyncio.wait([first], timeout=0.001)
        assert not first.done()
        with pytest.raises(Died):
            await driving
        await rig.take_over(rig.worker(rig.app(base)))
        while not first.done():
            rig.clock.advance(timedelta(seconds=1))
            await asyncio.wait([first], timeout=0.001)
    assert first.result().data == {"done": 1, "note": ""}


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "²", "٣", "9" * 19, "9" * 5000, "4"])
async def test_what_is_no_cursor_of_the_run_is_refused(rig: Rig, cursor: str) -> None:
    await rig.settle(await begin(rig, _nothing))
    assert (await rig.row(RUN)).head.seq == 3
    with pytest.raises(Refused, match="the cursor"):
        await followed(handle(rig), after=cursor)


async def test_who_has_seen_the_end_is_told_nothing_more(rig: Rig) -> None:
    await rig.settle(await begin(rig, _nothing))
    [end] = await followed(handle(rig))
    assert await followed(handle(rig), after=end.cursor) == []


async def test_a_run_that_nobody_started_has_no_events(rig: Rig) -> None:
    with pytest.raises(UnknownRun):
        await followed(handle(rig, "nobody"))


async def test_an_answer_to_what_is_no_question_is_refused(rig: Rig) -> None:
    await rig.settle(await begin(rig, _nothing))
    with pytest.raises(Refused, match="not the id of a question"):
        await handle(rig).answer("offers", True, who="ada")


async def _nothing(run: Run[None]) -> object:
    return None


async def _next(events: AsyncGenerator[Event]) -> Event:
    return await anext(events)
