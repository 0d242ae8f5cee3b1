"""The writer of a log: the outcome of every commit is learned, never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import cast

import pytest

from outlive import Operation, Run
from outlive.errors import CommitUnknown, LeaseLost, StoreBusy, StoreFull
from outlive.log.verdict import verdict
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.operation import OperationStatus
from outlive.model.run import Head
from outlive.store.port import Append, Store
from tests.engine.rig import Rig
from tests.engine.subject import RUN, act, add, base, begin, carry_on, does

Deliver = Callable[[], Awaitable[Head]]


class Lossy:
    """A store whose nth append with a call in it goes as `fault` says."""

    def __init__(self, store: Store, nth: int, fault: Callable[[Deliver], Awaitable[Head]]) -> None:
        self._store, self._left, self._fault = store, nth, fault

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        self._left -= 1
        if self._left == 0:
            return await self._fault(lambda: self._store.append(append, now=now))
        return await self._store.append(append, now=now)


async def committed_but_lost(deliver: Deliver) -> Head:
    await deliver()
    raise CommitUnknown(store="lossy")


async def vanished(deliver: Deliver) -> Head:
    raise CommitUnknown(store="lossy")


async def body(run: Run[None]) -> object:
    return [await run.step(add, 1), await run.call(act, "it"), await run.step(add, 2)]


@pytest.mark.parametrize("fault", [committed_but_lost, vanished])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_an_unknown_commit_is_settled_by_claiming_again_and_reading_the_tail(
    rig: Rig, nth: int, fault: Callable[[Deliver], Awaitable[Head]]
) -> None:
    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, Lossy(rig.store, nth, fault)))
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "succeeded"
    assert await rig.kinds(RUN) == ["started", "step", "intent", "outcome", "step", "ended"]
    assert len(rig.sent) == 1
    claims = [line.text for line in await rig.lines(RUN) if line.kind == "claimed"]
    assert [text.split()[0] for text in claims] == ["start", "again"]


async def test_an_append_that_was_lost_and_arrives_late_is_refused(rig: Rig) -> None:
    """The new epoch orders the claim before the lost append, wherever that one still is."""
    late: list[Deliver] = []

    async def delayed(deliver: Deliver) -> Head:
        late.append(deliver)
        raise CommitUnknown(store="lossy")

    async def tool(op: Operation[None]) -> str:
        with pytest.raises(LeaseLost):
            await late[0]()
        return "done"

    does.tool = tool
    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, Lossy(rig.store, 1, delayed)))
    await rig.settle(worker)
    assert await rig.kinds(RUN) == ["started", "step", "intent", "outcome", "step", "ended"]


async def test_an_unknown_end_is_not_written_twice(rig: Rig) -> None:
    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, Lossy(rig.store, 5, committed_but_lost)))
    await rig.settle(worker)
    assert (await rig.kinds(RUN)).count("ended") == 1
    assert (await rig.row(RUN)).status == "succeeded"


@pytest.mark.parametrize("error", [StoreBusy(store="s", why="w"), StoreFull(store="s")])
async def test_nothing_written_is_tried_again_while_the_run_is_ours(rig: Rig, error: Exception) -> None:
    async def refused(deliver: Deliver) -> Head:
        raise error

    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, Lossy(rig.store, 2, refused)))
    await worker.claim()
    idle = asyncio.ensure_future(worker.idle())
    for _ in range(20):
        await asyncio.wait([idle], timeout=0.05)
        waits = rig.clock.next_sleeper()
        if waits is not None:
            rig.clock.advance(waits)
    assert idle.done()
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(rig.sent) == 1


async def test_a_worker_that_notices_that_it_sent_late_leaves_that_as_evidence(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        rig.clock.advance(timedelta(seconds=29))  # stopped between the guard and the write
        op.sent()
        await rig.store.seize(DEFAULT_TENANT, RunId(RUN), owner=Owner("thief"), lease_ms=1, now=rig.clock.now())
        worker._keeper.renew_once()
        raise TimeoutError("no answer")

    does.tool = tool
    worker = await begin(rig, body)
    await worker.claim()
    await worker.idle()
    (message,) = await rig.store.unread(DEFAULT_TENANT, RunId(RUN))
    assert '"answer": "sent late"' in message.body


@pytest.mark.parametrize(
    ("status", "attempt", "verdict_is"),
    [("unknown", 1, "no news"), ("absent", 1, "duplicate"), ("succeeded", 1, "no news"), ("pending", 2, "duplicate")],
)
def test_a_late_send_is_news_where_it_was_judged_absent(status: OperationStatus, attempt: int, verdict_is: str) -> None:
    """`attempt` is the operation's last; the evidence is about the first."""
    said = verdict("external", status, attempt, '"x"', attempt=1, answer="sent late", payload=None)
    assert said == verdict_is
    assert verdict("idempotent", "pending", attempt, None, attempt=1, answer="sent late", payload=None) == "no news"


async def test_a_stolen_run_loses_its_writer_at_the_next_append(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        stolen = await rig.store.seize(
            DEFAULT_TENANT, RunId(RUN), owner=Owner("thief"), lease_ms=30_000, now=rig.clock.now()
        )
        assert stolen is not None
        return "acted"

    does.tool = tool
    worker = await begin(rig, body)
    await worker.claim()
    await worker.idle()
    assert (await rig.kinds(RUN))[-1] == "intent", "the outcome was refused"
    (message,) = await rig.store.unread(DEFAULT_TENANT, RunId(RUN))
    assert message.topic == "evidence"
    assert '"payload": "\\"acted\\""' in message.body

    # The next owner takes the evidence in: nothing is in doubt and nothing is sent twice.
    await rig.take_over(await carry_on(rig, body, code="first"))
    assert (await rig.row(RUN)).status == "succeeded"
    assert len(rig.sent) == 1
