"""A bad day: worker processes under load on a PostgreSQL server of the test's own, and the judgement at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from outlive import Handle
from outlive.model.errors import StoreError
from outlive.model.ids import RunId
from outlive.testing.audit import calls
from tests.kills.scene import TENANT, Scene, Worker, scene
from tests.kills.waiting import until

T = TypeVar("T")

# Long beside what a disaster lasts, so that a run that moves has moved for no reason.
LEASE_S = 15.0

# The bank does not dedupe, so whoever repeats any of these without having looked is seen in its books. A run that
# moves may repeat an idempotent one.
STAYING = ("patient", "deduped")
MOVING = ("looked_up", "looked_up")


@dataclass
class BadDay:
    """Runs that each pay some invoices, by `tools` that must not be repeated without need."""

    scene: Scene
    tools: tuple[str, str]
    runs: dict[str, list[str]] = field(default_factory=dict)
    handles: dict[str, Handle[list[str]]] = field(default_factory=dict)
    fleet: list[Worker] = field(default_factory=list)

    def workers(self, count: int = 2, **environment: str) -> list[Worker]:
        """Start some more."""
        environment["OUTLIVE_LOG_LEVEL"] = "WARNING"
        started = [self.scene.worker("--concurrency", "20", **environment) for _ in range(count)]
        self.fleet += started
        return started

    def crowd(self, count: int) -> None:
        """Start so many workers in one process."""
        self.fleet.append(self.scene.process("tests.baddays.crowd", str(count)))

    async def begun(self) -> None:
        """Return when all of them serve."""
        for worker in self.fleet:
            await self.scene.owner(worker)

    async def in_number(self, count: int) -> None:
        """Return when so many workers serve."""

        async def look() -> bool:
            try:
                return len(await self.scene.store.workers(within_ms=3_600_000)) == count
            except StoreError:
                return False

        await until(look, f"{count} workers are there", within=120)

    async def load(self, runs: int = 8, *, each: int = 8, begin: str = "a") -> None:
        """Start so many runs, half of them beginning with the one tool, half with the other."""
        for number in range(runs):
            invoices = [f"{begin}{number:02}-{place}" for place in range(each)]
            first, others = self.tools if number % 2 else self.tools[::-1]
            # A start that is repeated finds the run that there is.
            self.handles[invoices[0]] = await patiently(partial(self.scene.pay, first, *invoices, others=others))
            self.runs[invoices[0]] = invoices

    async def pass_through(self, disaster: Callable[[], None], *, at: int = 15) -> None:
        """Load, a disaster when the bank has seen so many effects, more load."""
        await self.load()
        await self.effects(at)
        # A claim whose answer is lost costs a lease; what becomes of it is seen where connections are cut.
        await self.claimed()
        await asyncio.to_thread(disaster)
        await self.load(2, begin="later")

    async def claimed(self) -> None:
        """Return when each run has a worker."""

        async def look() -> bool:
            return all([(await self.scene.row(run)).status != "ready" for run in self.runs])

        await until(look, "all runs are claimed", within=60)

    async def effects(self, least: int) -> None:
        """Return when the bank has seen so many: the runs are under way."""
        await asyncio.to_thread(self.scene.bank.wait, effects=least, timeout=60)

    async def judged(self) -> None:
        """Every run has ended well, no worker has left, and the bank counted what the logs say, each effect once.

        Unless runs may move, none did, and no attempt was counted.
        """
        for run, invoices in self.runs.items():
            assert len(await patiently(partial(self.scene.result, self.handles[run]))) == len(invoices)
        counted = await asyncio.to_thread(self.scene.counted)
        assert counted == {invoice: 1 for invoices in self.runs.values() for invoice in invoices}
        said: dict[str, tuple[str, str]] = {}
        for run in self.runs:
            said |= await self._said(run)
        ledger = await asyncio.to_thread(self.scene.bank.ledger)
        assert ledger["duplicates"] == []
        assert {one["key"]: ("succeeded", f'"{one["charge_id"]}"') for one in ledger["effects"]} == said
        assert [worker.poll() for worker in self.fleet] == [None] * len(self.fleet), self.written()[-4000:]
        print(f"longest gap in a log: {max([await self._gap(run) for run in self.runs]):.2f} s")

    async def _gap(self, run: str) -> float:
        times = [line.at for line in await self.scene.log(run)]
        return max(later - earlier for earlier, later in pairwise(times)) / 1000

    async def _said(self, run: str) -> dict[str, tuple[str, str]]:
        """What a log says of each operation, by key. Its chain holds and the operation records agree with it."""
        store = self.scene.store
        lines, row = await self.scene.log(run), await self.scene.row(run)
        entries = await store.entries(TENANT, RunId(run), limit=10_000)
        logged: dict[str, tuple[str, str]] = {
            call.sent.key: (call.sent.status, str(call.payload)) for call in calls(entries) if call.sent
        }
        rows = await store.operations(TENANT, RunId(run))
        assert {one.key: (one.status, str(one.outcome)) for one in rows} == logged
        assert row.status == "succeeded" and await store.unread(TENANT, row.id) == []
        if self.tools == STAYING:
            whys = {str(line.data["why"]) for line in lines if line.kind == "claimed"}
            assert whys <= {"start", "again"}, f"{run} has moved: {whys}"
            assert row.lapses == 0
            assert {(one.attempt, one.how) for one in rows} == {(1, "call")}
        return logged

    def written(self) -> str:
        """What the workers have logged."""
        return (self.scene.directory / "workers.log").read_text()

    async def written_is(self, words: str) -> None:
        """Return when a worker has logged this."""

        async def look() -> bool:
            return words in self.written()

        await until(look, f"a worker logs {words!r}", within=60)


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What it gives once the store answers."""

    async def look() -> tuple[T] | None:
        try:
            return (await ask(),)
        except StoreError:
            return None

    [found] = await until(look, "the store answers", within=60)
    return found


@asynccontextmanager
async def bad_day(
    directory: Path, url: str, *, lease_s: float = LEASE_S, moving: bool = False
) -> AsyncIterator[BadDay]:
    """Ends with every worker gone. The bank takes its time, so that a load lasts. `moving`: runs may move."""
    async with scene(directory, store=url, lease_s=lease_s, delay=1.0, delay_ms=40) as here:
        yield BadDay(here, MOVING if moving else STAYING)
