"""What several tests of operations play: bodies, a crash in flight, a person who decides."""

from __future__ import annotations

import asyncio

from outlive import Operation, Run
from outlive.app.decide import Word, resolve
from outlive.engine import inbox
from outlive.engine.control import Control
from outlive.engine.worker import owner_name
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Message
from tests.engine.rig import Rig
from tests.engine.subject import RUN, Body, act, base, begin, charge, does


async def pays(run: Run[None]) -> object:
    return await run.call(charge, "inv-7")


async def acts(run: Run[None]) -> object:
    return await run.call(act, "it")


async def lost(op: Operation[None]) -> str:
    raise ConnectionResetError("the answer was lost")


def control(rig: Rig) -> Control:
    return Control(rig.store, rig.clock, owner_name(rig.clock))


async def decide(rig: Rig, word: Word, outcome: str | None = None) -> None:
    (operation,) = await rig.operations(RUN)
    await resolve(
        control(rig), base.registry, DEFAULT_TENANT, RUN, operation.id[:8], word, who="ada",
        why="she looked", outcome=outcome,
    )  # fmt: skip


async def crash_in_flight(rig: Rig, body: Body) -> None:
    """A worker that dies while its call is in flight."""
    in_flight = asyncio.Event()

    async def hangs(op: Operation[None]) -> str:
        in_flight.set()
        await asyncio.Event().wait()
        return "never"

    await begin(rig, body)
    does.tool = hangs
    await rig.crash(rig.mortal(rig.app(base)), in_flight)
    assert (await rig.row(RUN)).status == "running"


def decision(operation: str, attempt: int, word: str) -> Message:
    said = inbox.Decision(operation, attempt, word, "ada", "she looked", '"x"')  # type: ignore[arg-type]  # a word of three
    return Message(DEFAULT_TENANT, RunId(RUN), inbox.RESOLUTION, f"{operation}-{word}", inbox.resolution(said))
