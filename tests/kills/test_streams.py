"""A real worker is killed in the middle of what it streams: the followers see one attempt, the next, and the event."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

from outlive import Handle
from outlive.events import Event
from outlive.model.ids import RunId
from outlive.store.streaming import Streaming
from tests.kills import streamers
from tests.kills.scene import BOTH, PATIENCE, TENANT, Scene, kill, scene
from tests.kills.waiting import until

RUN = "tea"
WORKER = "tests.kills.streamers:app"


async def follow(handle: Handle[str], seen: list[Event]) -> None:
    async for event in handle.events(deltas=True):
        seen.append(event)


async def reconnect(handle: Handle[str], seen: list[Event]) -> None:
    """On a connection of its own for each event."""
    while not seen or seen[-1].name != "run.ended":
        async with aclosing(handle.events(after=seen[-1].cursor if seen else None, deltas=True)) as events:
            event = await anext(events)
        if not seen or event != seen[-1]:
            seen.append(event)


def told(seen: list[Event]) -> list[tuple[str, object, int]]:
    return [
        (one.name, one.data.get("text") or one.data.get("over"), one.attempt.epoch if one.attempt else 0)
        for one in seen
    ]


async def left(here: Scene) -> bool:
    assert isinstance(here.store, Streaming)
    return not await here.store.deltas(TENANT, RunId(RUN), after=0, limit=10)


@BOTH
async def test_a_worker_killed_while_it_streams(tmp_path: Path, store: str) -> None:
    async with scene(tmp_path, store=store) as here:
        streamers.app.use(here.store)
        handle = await streamers.app.start(streamers.writes, "tea", id=RUN)
        seen, dropped = list[Event](), list[Event]()
        late = handle.events(deltas=True)

        async def shown(text: str) -> bool:
            return all(any(one.data.get("text") == text for one in each) for each in (seen, dropped))

        async with asyncio.timeout(PATIENCE.total_seconds() * 2), asyncio.TaskGroup() as group, aclosing(late):
            first = here.process("outlive", "worker", WORKER)
            readers = [group.create_task(follow(handle, seen)), group.create_task(reconnect(handle, dropped))]
            # This one has begun to read, and then does not for long.
            assert (await anext(late)).data["text"] == "half a "
            await until(lambda: shown("half a "), "the first attempt is seen")
            kill(first)
            here.process("outlive", "worker", WORKER)
            await until(lambda: shown("a whole "), "the second attempt is seen")
            (here.directory / "go on").touch()
            assert await handle.result(timeout=PATIENCE) == "a section on tea"
            rest = [event async for event in late]
            await asyncio.wait(readers)
        assert told(seen) == [
            ("write", "half a ", 1), ("write", True, 1), ("write", "a whole ", 2), ("write", True, 2),
            ("section", "a section on tea", 0), ("run.ended", None, 0),
        ]  # fmt: skip
        committed = [event async for event in handle.events()]
        for each in (seen, dropped, rest):
            assert [event for event in each if event.attempt is None] == committed
        assert told(dropped)[:2] == [("write", "half a ", 1), ("write", "a whole ", 2)]
        assert told(rest)[0] == ("write", True, 1)
        await until(lambda: left(here), "nothing is left of what was streamed")
