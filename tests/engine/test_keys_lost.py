"""A failover that lost who had a business key: it is taken again with the entry that tells of the loss."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation, Run
from outlive.store.port import Store
from tests.engine import keyed
from tests.engine.keyed import bank, begin, decide, key, operation
from tests.engine.lagging import Database
from tests.engine.rig import Rig

DONE = '"receipt of INV-7"'


@pytest.fixture(autouse=True)
def fresh() -> None:
    keyed.reset()


@pytest.mark.parametrize("answered", [True, False])
async def test_a_key_that_was_lost_is_taken_again_with_the_loss(
    rig: Rig, database: Database, answered: bool
) -> None:  # fmt: skip
    async def body(run: Run[None], name: str) -> object:
        database.fall_behind()
        got = await run.call(keyed.charge, "INV-7", 4200)
        await database.fail_over()
        await run.sleep(timedelta(seconds=1))
        return got

    async def unanswered(op: Operation[None]) -> object:
        bank.charged.append("INV-7")
        await database.fail_over()
        raise TimeoutError("no answer")

    bank.hook = None if answered else unanswered
    await begin(rig, "a", body=body)
    worker = rig.worker(rig.app(keyed.app), store=cast(Store, database))
    await rig.settle(worker)
    assert (await rig.row("a")).reason == "entries lost"
    row = await key(rig)
    assert (row.mark.status, row.mark.run) == ("succeeded" if answered else "unknown", "a")
    assert row.mark.shown == "charge/INV-7" and row.mark.operation == (await operation(rig, "a")).id
    bank.hook = None
    await begin(rig, "b")
    await rig.settle(worker)
    if not answered:
        assert (await rig.row("b")).reason == "in doubt elsewhere"
        rig.clock.advance(timedelta(minutes=30))
        await decide(rig, "a", "happened", DONE)
        await rig.settle(worker)
    assert (await rig.row("b")).status == "succeeded" and (await rig.entries("b"))[-1].payload == DONE
    assert bank.charged == ["INV-7"]
