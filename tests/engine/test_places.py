"""What gets its place in the log at the same moment as a cancellation, or as another look into the inbox."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import cast

from outlive import Run
from outlive.model.run import Head
from outlive.store.port import Append, Store
from tests.engine.rig import Mortal, Rig
from tests.engine.subject import RUN, add, base, begin, does, subject
from tests.engine.test_cancel import handle, recorded, told

_here: list[asyncio.Event] = []


class Slow(Mortal):
    """A store in which the append that takes a message in is on its way for as long as a test wants."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.store, self.on_its_way, self.arrive = store, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return self._append if name == "append" else super().__getattr__(name)

    async def _append(self, append: Append, *, now: int | None = None) -> Head:
        if any(draft.kind == "arrived" for draft in append.drafts):
            self.on_its_way.set()
            await self.arrive.wait()
        return await self.store.append(append, now=now)


async def gated() -> int:
    """A step that a test ends."""
    _here[0].set()
    await _here[1].wait()
    return 1


async def some_turns(rig: Rig) -> None:
    for _ in range(20):
        await rig.row(RUN)


async def test_a_step_that_ends_as_the_cancellation_gets_its_place_is_not_recorded_after_it(rig: Rig) -> None:
    """Replay would take it for one of the clean-up."""
    _here[:] = [asyncio.Event(), asyncio.Event()]

    async def body(run: Run[None]) -> object:
        try:
            await run.step(gated)
        except asyncio.CancelledError:
            await run.step(add, 9)
            await run.sleep(timedelta(seconds=5))
            await run.step(add, 10)
            raise
        return None

    does.body = body
    await rig.app(base).start(subject, "task", id=RUN, deadline=timedelta(seconds=10))
    slow = Slow(rig.store)
    worker = rig.worker(rig.app(base), store=cast(Store, slow))
    worker.kit = replace(worker.kit, wake_in_place=True)
    await worker.claim()
    await _here[0].wait()
    await handle(rig).send("offers", "hello", key="one")
    await told(rig, worker)
    await slow.on_its_way.wait()
    rig.clock.advance(timedelta(seconds=10))  # the deadline waits for its place behind the message
    await some_turns(rig)
    _here[1].set()  # and the end of the step behind the deadline
    await some_turns(rig)
    slow.arrive.set()
    await recorded(rig)
    while "add 9" not in does.steps:
        await rig.row(RUN)
    for drive in worker._drives.values():
        drive.drain()
    await worker.idle()
    _here.clear()
    assert (await rig.until_ended(rig.worker(rig.app(base)), RUN)).status == "expired"
    assert does.steps == ["add 9", "add 10"]
    assert "Diverged" not in (await rig.entries(RUN))[-1].body


async def test_a_message_is_taken_in_once_although_two_look(rig: Rig) -> None:
    _here[:] = [asyncio.Event(), asyncio.Event()]
    await begin(rig, lambda run: run.step(gated))
    slow = Slow(rig.store)
    worker = rig.worker(rig.app(base), store=cast(Store, slow))
    await worker.claim()
    await _here[0].wait()
    await handle(rig).send("offers", "hello", key="one")
    await told(rig, worker)
    await slow.on_its_way.wait()
    await told(rig, worker)
    await some_turns(rig)
    slow.arrive.set()
    _here[1].set()
    await worker.idle()
    _here.clear()
    assert (await rig.kinds(RUN)).count("arrived") == 1
