"""Somebody attends to a run beside its worker, which is alive or was faster: nothing is taken away for it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from outlive import Operation, Run
from outlive.engine import inbox
from outlive.engine.control import Control
from outlive.engine.worker import owner_name
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.store.port import Message, Store
from tests.engine.rig import Rig
from tests.engine.scenes import acts, control, decision, lost
from tests.engine.subject import RUN, add, begin, does


async def test_a_decision_takes_no_run_from_a_live_worker(rig: Rig) -> None:
    in_flight, go_on = asyncio.Event(), asyncio.Event()

    async def tool(op: Operation[None]) -> str:
        in_flight.set()
        await go_on.wait()
        return "acted"

    does.tool = tool
    worker = await begin(rig, acts)
    await worker.claim()
    await in_flight.wait()
    before = (await rig.row(RUN)).epoch
    await rig.store.post(Message(DEFAULT_TENANT, RunId(RUN), inbox.EVIDENCE, "k", '{"operation":"op-none"}'))
    await control(rig).take_in(DEFAULT_TENANT, RunId(RUN))
    go_on.set()
    await worker.idle()
    row = await rig.row(RUN)
    assert (row.status, row.epoch) == ("succeeded", before)


async def test_an_ended_run_that_was_sent_nothing_is_not_claimed_again(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await run.step(add, 1)

    await rig.until_ended(await begin(rig, body), RUN)
    before = await rig.entries(RUN)
    await control(rig).take_in(DEFAULT_TENANT, RunId(RUN))
    assert await rig.entries(RUN) == before


@pytest.mark.parametrize("leaves", [0, 1], ids=["nothing unread", "a message unread"])
async def test_a_worker_that_ends_a_run_while_it_is_attended_to_is_not_followed_by_a_claim(
    rig: Rig, leaves: int
) -> None:
    does.tool = lost
    worker = await begin(rig, acts)
    await rig.settle(worker)
    await rig.store.post(decision((await rig.operations(RUN))[0].id, 1, "happened"))
    met: list[str] = []

    class Faster:
        """The store of somebody who is slower than the worker, which ends the run before they have seized it."""

        def __getattr__(self, name: str) -> object:
            return getattr(rig.store, name)

        async def seize(self, tenant: Tenant, run: RunId, **how: Any) -> object:
            if not met:
                await rig.settle(worker)
                met.append((await rig.row(RUN)).status)
                if leaves:
                    body = '{"operation":"op-none"}'
                    await rig.store.post(Message(tenant, run, inbox.EVIDENCE, "k", body))
            return await rig.store.seize(tenant, run, **how)

    slow = Control(cast("Store", Faster()), rig.clock, owner_name(rig.clock))
    await slow.take_in(DEFAULT_TENANT, RunId(RUN))
    assert met == ["succeeded"]
    kinds = [entry.kind for entry in await rig.entries(RUN)]
    assert kinds[kinds.index("ended") + 1 :].count("claimed") == leaves
    assert await rig.store.unread(DEFAULT_TENANT, RunId(RUN)) == []
