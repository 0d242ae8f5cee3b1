"""The database has less than it acknowledged, and other workers, or the same one again, are at the run meanwhile."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation, Run
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Store
from tests.engine.lagging import Database, retry, sends, start
from tests.engine.rig import Rig
from tests.engine.subject import RUN, act, add, base, begin, does


async def test_a_run_that_another_worker_has_gone_on_with_has_acted_twice_and_says_so(
    rig: Rig, database: Database
) -> None:
    async def body(run: Run[None]) -> object:
        database.fall_behind()
        done = await run.call(act, "it")
        if not database.failed_over:
            await database.fail_over()
            # Somebody who knows nothing of it goes on with the run, before the old worker has looked.
            rig.clock.advance(timedelta(seconds=31))
            other = rig.worker(rig.app(base))
            await rig.take_over(other)
            assert (await rig.row(RUN)).status == "succeeded"
            worker._keeper.renew_once()
        return [done, await run.step(add, 2)]

    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(worker)
    assert sends(rig) == ["it", "it"]
    row = await rig.row(RUN)
    assert row.status == "succeeded", "what has ended stays so"
    (operation,) = await rig.operations(RUN)
    assert (operation.status, operation.duplicates) == ("succeeded", 1)
    assert (await rig.kinds(RUN))[-2:] == ["entries lost", "evidence"]


async def test_a_run_that_another_worker_is_at_is_taken_from_it(rig: Rig, database: Database) -> None:
    async def tool(op: Operation[None]) -> str:
        if database.failed_over and op.arguments["what"] == "it":
            # The other worker's call: the old one looks at its log just now.
            await first._losses.compare()
        return f"did {op.arguments['what']}"

    async def body(run: Run[None]) -> object:
        database.fall_behind()
        done = await run.call(act, "it")
        if not database.failed_over:
            await database.fail_over()
            rig.clock.advance(timedelta(seconds=31))
            await rig.take_over(rig.worker(rig.app(base)))
        return [done, await run.call(act, "other")]

    does.tool = tool
    await begin(rig, body)
    first = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(first)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "duplicate effect"), "the other's answer has come since"
    assert "entries lost" in await rig.kinds(RUN)
    (operation,) = await rig.operations(RUN)
    assert operation.duplicates == 1
    assert sends(rig) == ["it", "it"], "the second one was on its way already; nothing came after it"


async def test_an_end_that_was_lost_is_noticed_by_the_worker_that_wrote_it(rig: Rig, database: Database) -> None:
    async def body(run: Run[None]) -> object:
        database.fall_behind()
        return await run.call(act, "it")

    worker = await start(rig, database, body)
    assert (await rig.row(RUN)).status == "succeeded"
    await database.fail_over()
    assert (await rig.row(RUN)).status == "running"
    await worker._losses.compare()
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost")
    await retry(rig)
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert sends(rig) == ["it"]


async def test_a_run_that_was_never_claimed_as_far_as_the_database_knows(rig: Rig, database: Database) -> None:
    """Its worker claims it a second time, and remembers."""

    async def body(run: Run[None]) -> object:
        return await run.call(act, "it")

    await begin(rig, body)
    database.fall_behind()
    worker = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    await database.fail_over()
    assert (await rig.row(RUN)).status == "ready"
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "entries lost")
    assert sends(rig) == ["it"]


async def test_a_claim_that_was_lost_and_nothing_else_costs_nothing(rig: Rig, database: Database) -> None:
    async def body(run: Run[None]) -> object:
        await database.fail_over()
        return await run.step(add, 1)

    await begin(rig, body)
    database.fall_behind()
    worker = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"


async def test_a_failover_that_lost_nothing_costs_nothing(rig: Rig, database: Database) -> None:
    async def body(run: Run[None]) -> object:
        first = await run.call(act, "it")
        if not database.failed_over:
            database.fall_behind()
            await database.fail_over()
            await worker._losses.compare()
        return [first, await run.call(act, "more")]

    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, database))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert sends(rig) == ["it", "more"]
    assert "claimed" not in await rig.kinds(RUN)


async def test_a_run_that_is_gone_altogether_is_told_of(
    rig: Rig, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(run: Run[None]) -> object:
        done = await run.call(act, "it")
        await database.fail_over()
        return [done, await run.step(add, 1)]

    database.fall_behind()
    await start(rig, database, body)
    assert await rig.store.run(DEFAULT_TENANT, RunId(RUN)) is None
    assert f"run {RUN} is not in the database any more" in caplog.text
    assert 'intent act(what="it")' in caplog.text
