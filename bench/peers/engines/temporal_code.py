"""The workflows of the Temporal program: what is here is run in its sandbox."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from bench.peers import speech


async def step(file: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = await workflow.execute_activity(
        "step", args=[file, number], start_to_close_timeout=timedelta(seconds=60)
    )
    return found


@workflow.defn(name="works")
class Works:
    """So many activities, one after the other."""

    @workflow.run
    async def run(self, steps: int, file: str) -> int:
        return len([await step(file, number) for number in range(steps)])


@workflow.defn(name="hears")
class Hears:
    """An activity, a signal, an activity."""

    def __init__(self) -> None:
        self._told = False

    @workflow.signal
    def go(self) -> None:
        self._told = True

    @workflow.run
    async def run(self, number: int, file: str) -> None:
        await step(file, number)
        await workflow.wait_condition(lambda: self._told)
        await step(file, number + speech.AFTER)
