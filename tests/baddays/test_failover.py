"""A replica that lacks the last commits takes over: nothing that was sent is sent again before a person has decided.

The bank is the witness. Workers reach the database through a proxy, which leads to the replica from some moment on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from outlive.model.run import RunRow
from outlive.testing.postgres import own_folder
from tests.baddays.replica import Replica, dump, replica_of, restore
from tests.baddays.scene import BadDay, bad_day, patiently
from tests.baddays.server import Server, own_server
from tests.kills.scene import Worker
from tests.kills.waiting import until
from tests.store.pooler import NEEDED, pooled
from tests.store.proxy import Proxy, proxied

# A failover and its discovery fit into it; a worker waits so long before it acts on what it claims in a new database.
LEASE_S = 10.0


@dataclass
class Pair:
    """A primary and its replica, a proxy that leads to one of them, and a bad day behind it."""

    primary: Server
    replica: Replica
    proxy: Proxy
    day: BadDay

    async def fall_behind(self) -> None:
        await asyncio.to_thread(self.replica.fall_behind)

    async def fail_over(self) -> None:
        """The primary dies, and the replica is promoted with what it has."""

        def disaster() -> None:
            self.primary.kill()
            self.replica.promote()

        await asyncio.to_thread(disaster)
        self.proxy.lead_to(self.replica.server.url)

    async def held(self, number: int = 1) -> None:
        await asyncio.to_thread(self.day.scene.bank.wait_held, number, 60)

    async def blocked(self, run: str) -> RunRow:
        """The row, once the run is blocked."""

        async def look() -> RunRow | None:
            row = await patiently(lambda: self.day.scene.row(run))
            return row if row.status == "blocked" else None

        return await until(look, f"{run} is blocked; {self.day.written()}", within=60)

    async def settled(self, run: str, statuses: list[str]) -> None:
        """Once its operations have these statuses."""

        async def look() -> bool:
            return [one.status for one in await self.day.scene.operations(run)] == statuses

        await until(look, f"operations of {run} are {statuses}", within=60)

    async def seen(self, worker: Worker) -> None:
        """Once this worker has looked at the database after it announced itself."""
        name = await self.day.scene.owner(worker)
        seen: set[int] = set()

        async def look() -> bool:
            known = await self.day.scene.store.workers(within_ms=3_600_000)
            seen.update(one.seen_at for one in known if one.owner == name)
            return len(seen) > 1

        await until(look, "it gives a sign of life", within=60)

    async def ask(self, *arguments: str) -> str:
        """What a person is told by the command line."""
        done = await asyncio.to_thread(self.day.scene.outlive, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def counted(self) -> dict[str, int]:
        return self.day.scene.bank.ledger()["by_invoice"]


@asynccontextmanager
async def pair(
    folder: Path, *, lease_s: float = LEASE_S, synchronous: bool = False, pooling: bool = False
) -> AsyncIterator[Pair]:
    with own_server() as primary, replica_of(primary) as replica, own_folder() as (sockets, _), ExitStack() as stack:
        if synchronous:
            primary.ask("alter system set synchronous_standby_names = '*'")
            primary.ask("select pg_reload_conf()")
        async with proxied(primary.url, sockets) as (proxy, direct):
            url = stack.enter_context(pooled(direct, "outlive")) if pooling else direct
            async with bad_day(folder, url, lease_s=lease_s) as day:
                yield Pair(primary, replica, proxy, day)


@pytest.mark.parametrize("pooling", [False, pytest.param(True, marks=NEEDED)])
async def test_commits_that_were_lost_block_the_run_and_are_shown(tmp_path: Path, pooling: bool) -> None:
    """B's outcome is lost, and C is on its way, with its intent lost, while the primary dies: all three act once."""
    async with pair(tmp_path, pooling=pooling) as here:
        scene = here.day.scene
        scene.bank.rule("hold", when="before", invoice="B")
        scene.bank.rule("hold", when="after", invoice="C")
        run = await scene.pay("blind", "A", "B", "C", others="patient")
        here.day.workers(1)
        await here.held()
        # B's intent is there, and its outcome will be lost; C is lost altogether.
        await here.fall_behind()
        scene.bank.release()
        await here.held()
        await here.fail_over()
        row = await here.blocked("A")
        assert row.reason == "entries lost"
        assert 'patient(invoice="B"): it had succeeded' in row.detail
        assert 'patient(invoice="C"): it may have been sent' in row.detail
        await here.settled("A", ["succeeded", "succeeded", "unknown"])
        shown = await here.ask("show", "A")
        assert "entries lost" in shown
        assert 'patient(invoice="C")' in shown
        scene.bank.release()
        await here.settled("A", ["succeeded"] * 3)
        assert (await here.blocked("A")).reason == "entries lost", "an answer is no decision"
        assert here.counted() == {"A": 1, "B": 1, "C": 1}
        await here.ask("retry", "A", "--why", "the bank has each of them once")
        assert len(await scene.result(run)) == 3
        assert scene.counted() == {"A": 1, "B": 1, "C": 1}


@pytest.mark.long
async def test_a_lost_operation_that_nobody_saw_answered_waits_for_a_person(tmp_path: Path) -> None:
    async with pair(tmp_path) as here:
        scene = here.day.scene
        scene.bank.rule("hold", when="before", invoice="A")
        scene.bank.rule("hold", when="after", invoice="B")
        run = await scene.pay("patient", "A", "B", others="blind")
        [warning] = await scene.store.durability()
        assert "synchronous_standby_names is empty" in warning
        here.day.workers(1)
        await here.held()
        await here.fall_behind()
        scene.bank.release()
        await asyncio.to_thread(scene.bank.wait, effects=2, timeout=60)
        await here.fail_over()
        assert (await here.blocked("A")).reason == "entries lost"
        assert scene.counted_now() == {"A": 1, "B": 1}
        scene.bank.release(then="drop")
        shown = await here.ask("show", "A")
        assert 'blind(invoice="B")' in shown
        lost = (await scene.operation("A", 1)).id
        assert f"outlive resolve A {lost} happened" in shown.replace("python -m outlive", "outlive")
        await here.ask("retry", "A", "--why", "let us see")
        row = await here.blocked("A")

        async def in_doubt() -> bool:
            return (await scene.row("A")).reason == "operation in doubt"

        await until(in_doubt, "a retry decides nothing about an operation", within=60)
        assert here.counted() == {"A": 1, "B": 1}
        await here.ask("resolve", "A", lost, "happened", "--outcome", '"by hand"', "--why", "the bank has it")
        assert (await scene.result(run))[1] == "by hand"
        assert scene.counted() == {"A": 1, "B": 1}
        assert row.status == "blocked"


@pytest.mark.long
async def test_a_run_that_is_free_again_is_not_taken_up_before_its_worker_has_spoken(tmp_path: Path) -> None:
    """Its claim was lost too, so that another worker, which has its hands free, may have it at once."""
    async with pair(tmp_path) as here:
        scene = here.day.scene
        scene.bank.rule("hold", when="after", invoice="A")
        run = await scene.pay("patient", "A")
        await here.fall_behind()
        here.day.workers(1)
        await here.held()
        [other] = here.day.workers(1)
        await here.seen(other)
        await here.fail_over()
        assert (await here.blocked("A")).reason == "entries lost"
        scene.bank.release()
        await here.settled("A", ["succeeded"])
        assert here.counted() == {"A": 1}
        await here.ask("retry", "A", "--why", "the bank has it once")
        assert len(await scene.result(run)) == 1
        assert scene.counted() == {"A": 1}


async def test_a_synchronous_replica_loses_nothing_and_costs_latency(tmp_path: Path) -> None:
    async with pair(tmp_path, lease_s=15.0, synchronous=True) as here:
        assert await here.day.scene.store.durability() == []
        here.day.workers(2)
        await here.day.begun()
        await here.day.load(4, each=6)
        await here.day.effects(8)
        await here.fail_over()
        await here.day.judged()


@pytest.mark.long
async def test_a_backup_on_another_server_lacks_what_was_done_since(tmp_path: Path) -> None:
    """The run ended here, and on the other server it has not begun: its worker remembers that it has."""
    async with pair(tmp_path) as here:
        with own_server() as another:
            scene = here.day.scene
            run = await scene.pay("blind", "A")
            dumped = await asyncio.to_thread(dump, here.primary)
            here.day.workers(1)
            assert len(await scene.result(run)) == 1
            await asyncio.to_thread(restore, another, dumped)
            here.proxy.lead_to(another.url)
            assert (await here.blocked("A")).reason == "entries lost"
            assert [(one.status, one.how) for one in await scene.operations("A")] == [("succeeded", "evidence")]
            await here.ask("retry", "A", "--why", "the bank has it once")
            assert len(await scene.result(run)) == 1
            assert scene.counted() == {"A": 1}
