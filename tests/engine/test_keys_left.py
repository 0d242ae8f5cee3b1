"""No business key stays taken by what is over, and nobody waits for one that has changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel

from outlive import DidNotHappen, Operation, Run
from outlive.engine import inbox
from outlive.engine.control import Control
from outlive.engine.worker import owner_name
from outlive.errors import Abandoned, ToolFailed
from outlive.model.business import KeyFilter
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Append, Message, Store
from outlive.store.sqlite import SQLiteStore
from tests.engine import keyed, test_keys_approved
from tests.engine.keyed import (
    app,
    asked,
    bank,
    begin,
    calls,
    charge,
    clerk,
    crash_in_flight,
    key,
    later,
    lost,
    not_sent,
    operation,
    refuses,
)
from tests.engine.rig import Rig
from tests.engine.test_keys import tell


@pytest.fixture(autouse=True)
def fresh() -> None:
    keyed.reset()


async def turn() -> None:
    """Let others on the event loop, and on threads, come forward."""
    await asyncio.to_thread(int)


async def taken(rig: Rig) -> dict[str, tuple[str, str]]:
    """Of each key by its text: its status, and whose it is."""
    found = await rig.store.business_keys(DEFAULT_TENANT, KeyFilter())
    return {row.mark.shown: (row.mark.status, row.mark.run) for row in found}


class Amid:
    """A store on which something happens right before the intent of a keyed call is written."""

    def __init__(self, store: Store, before: Callable[[Append], Awaitable[object]]) -> None:
        self._store, self._before = store, before

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, append: Append, *, now: int | None = None) -> object:
        if append.take is not None:
            return await self._before(append)
        return await self._store.append(append, now=now)


async def test_an_intent_that_is_refused_in_a_commit_of_several_takes_no_key(rig: Rig, tmp_path: Path) -> None:
    """A run is terminated by another process when its worker is about to write the intent; others write as well."""
    other = SQLiteStore(
        tmp_path / "runs.db", name="runs", clock=rig.clock, unsafe_durability=True, synchronous="off"
    )  # fmt: skip
    await other.open()

    async def terminated(append: Append) -> object:
        row = await other.run(DEFAULT_TENANT, RunId("a"))
        assert row is not None
        await Control(other, rig.clock, owner_name(rig.clock)).terminate(row, who="ada", why="enough")
        await rig.app(app).start(clerk, "beside", id="beside")
        mail = [Message(DEFAULT_TENANT, RunId("beside"), "mail:go", f"k{n}", "1") for n in range(2)]
        async with other.transaction():  # all that follows waits for the write lock, and is one commit then
            ours = asyncio.ensure_future(rig.store.append(append, now=rig.clock.now()))
            posts = [asyncio.ensure_future(rig.store.post(one, now=rig.clock.now())) for one in mail]
            for _ in range(50):
                await turn()
        await asyncio.gather(*posts)
        return await ours

    await begin(rig, "a")
    worker = rig.worker(rig.app(app), store=cast("Any", Amid(rig.store, terminated)))
    await worker.claim()
    await worker.idle()
    assert (await rig.row("a")).status == "cancelled"
    assert await taken(rig) == {} and bank.charged == []
    await other.close()
    worker = await begin(rig, "b")
    assert (await rig.until_ended(worker, "b")).status == "succeeded"


async def test_branches_that_want_the_same_miss_no_outcome_of_each_other(either: Rig) -> None:
    async def slow(op: Operation[None]) -> None:
        for _ in range(int(either.clock.random() * 30)):
            await turn()

    bank.hook = slow

    async def body(run: Run[None], name: str) -> object:
        async def one(number: int) -> str:
            return await run.call(asked, f"{name}-{number // 2}")

        return len(await run.map(one, range(16), key=str, limit=16))

    for number in range(12):
        worker = await begin(either, f"r{number}", body=body)
        assert (await either.until_ended(worker, f"r{number}")).status == "succeeded"
    assert len(bank.charged) == len(set(bank.charged)) == 12 * 8


async def test_what_turns_out_to_have_acted_after_all_is_done_by_nobody_else(either: Rig) -> None:
    """Its last attempt failed, known not to have acted; then the first one answers."""
    rig = either

    async def body(run: Run[None], name: str) -> object:
        try:
            return await run.call(asked, "INV-7")
        except (ToolFailed, Abandoned) as failed:
            return type(failed).__name__

    await begin(rig, "a", body=body)
    await crash_in_flight(rig)
    bank.answer, bank.hook = DidNotHappen(), not_sent
    worker = rig.worker(rig.app(app))
    await rig.take_over(worker)
    await rig.until_ended(worker, "a")
    assert (await key(rig)).mark.status == "free"
    row = await operation(rig, "a")
    said = {
        "operation": row.id, "attempt": 1, "epoch": 1, "answer": "succeeded", "payload": '"r"', "error": None,
    }  # fmt: skip
    await rig.store.post(Message(DEFAULT_TENANT, RunId("a"), inbox.EVIDENCE, "e", json.dumps(said)))
    await Control(rig.store, rig.clock, owner_name(rig.clock)).take_in(DEFAULT_TENANT, RunId("a"))
    assert (await operation(rig, "a")).duplicates == 1
    bank.hook = None
    await begin(rig, "b", body=body)
    await rig.until_ended(worker, "b")
    assert bank.charged == ["INV-7"]
    assert (await rig.app(app).handle(clerk, "b").result()) == "Abandoned"


async def test_a_key_of_arguments_that_were_edited_away_is_given_back(either: Rig) -> None:
    rig = either
    bank.hook = refuses(1)
    await test_keys_approved.start(rig, "a")
    await test_keys_approved.approve(rig, "a")
    await test_keys_approved.start(rig, "b", cents=4000)
    await test_keys_approved.approve(rig, "b")
    rig.clock.advance(timedelta(days=2))  # the approval is over before it is tried again
    await rig.settle(rig.worker(rig.app(test_keys_approved.app)))
    await test_keys_approved.approve(rig, "a", to="acme", cents=4000)
    assert (await rig.row("a")).status == "succeeded" and (await operation(rig, "a")).how == "shared"
    assert (await taken(rig))["pay/acme/4200"][0] == "free"


class Count(BaseModel):
    """How often the loop has turned."""

    n: int = 0


async def test_what_is_said_of_an_operation_of_an_earlier_turn_takes_no_free_key(either: Rig) -> None:
    rig = either
    bank.hook = not_sent

    async def body(run: Run[None], name: str) -> object:
        async for state in run.turns(Count()):
            state.n += 1
            if state.n == 1:
                await run.first(one=run.call(asked, "INV-7"), two=run.sleep(timedelta(seconds=1)))
            elif state.n == 2:
                await run.sleep(timedelta(days=1))
            else:
                break
        return "end"

    worker = await begin(rig, "a", body=body)
    await rig.settle(worker)
    await rig.pass_time(worker, timedelta(seconds=2))
    await rig.app(app).complete((await operation(rig, "a")).id, DidNotHappen(), key="evt_1")
    await rig.settle(worker)
    assert (await key(rig)).mark.status == "free"
    bank.hook = None
    await begin(rig, "b", body=calls(asked))
    assert (await rig.until_ended(worker, "b")).status == "succeeded"


async def test_a_key_that_was_forgotten_and_taken_anew_wakes_who_was_woken_before(either: Rig) -> None:
    rig = either
    bank.hook = later

    async def twice(run: Run[None], name: str) -> object:
        await run.call(asked, "INV-7")
        await run.sleep(timedelta(minutes=2))
        return await run.call(asked, "INV-7")

    worker = await begin(rig, "a", body=calls(asked))
    await rig.settle(worker)
    await begin(rig, "b", body=twice)
    await rig.settle(worker)
    await tell(rig, "a")
    await rig.settle(worker)
    rig.clock.advance(timedelta(minutes=1, seconds=30))
    assert await cast("Any", rig.store).forget_keys(older_ms=60_000, most=10, now=rig.clock.now())
    await begin(rig, "c", body=calls(asked))
    await rig.settle(worker)
    await rig.pass_time(worker, timedelta(minutes=1))
    assert "business key" in (await rig.row("b")).reason
    await tell(rig, "c")
    await rig.settle(worker)
    assert (await rig.row("b")).status == "succeeded"


async def test_what_cleans_up_is_not_kept_waiting_by_what_it_cleans_up_after(rig: Rig) -> None:
    at, go = asyncio.Event(), asyncio.Event()

    async def hook(op: Operation[None]) -> object:
        if at.is_set():
            return None
        at.set()
        await go.wait()
        return await not_sent(op)

    bank.hook = hook

    async def body(run: Run[None], name: str) -> object:
        try:
            return await run.call(asked, "INV-7")
        except asyncio.CancelledError:
            bank.undone.append(str(await run.call(asked, "INV-7")))
            raise

    worker = await begin(rig, "a", body=body)
    await worker.claim()
    await at.wait()
    await rig.app(app).handle(clerk, "a").cancel(who="ada", why="enough")
    await asyncio.to_thread(worker._keeper.renew_once)
    for _ in range(50):
        await turn()
    go.set()
    await worker.idle()
    await rig.settle(worker)
    assert (await rig.row("a")).status == "cancelled"
    assert bank.undone == ["receipt of INV-7"]


async def test_a_doubt_beside_a_timer_is_a_doubt_for_who_wants_the_same(either: Rig) -> None:
    rig = either
    bank.hook = lost

    async def beside(run: Run[None], name: str) -> object:
        return await run.gather(run.call(charge, "INV-7", 1), run.sleep(timedelta(days=1)))

    async def alone(run: Run[None], name: str) -> object:
        return await run.call(charge, "INV-7", 1)

    worker = await begin(rig, "a", body=beside)
    await rig.settle(worker)
    assert ((await rig.row("a")).status, (await rig.row("a")).reason) == ("waiting", "operation in doubt")
    await begin(rig, "b", body=alone)
    await rig.settle(worker)
    assert ((await rig.row("b")).status, (await rig.row("b")).reason) == ("blocked", "in doubt elsewhere")


async def test_a_run_that_is_terminated_while_it_waits_to_retry_gives_its_key_back(rig: Rig) -> None:
    bank.hook = not_sent
    await rig.settle(await begin(rig, "a", body=calls(asked)))
    assert (await key(rig)).mark.status == "open"
    row = await rig.row("a")
    await Control(rig.store, rig.clock, owner_name(rig.clock)).terminate(row, who="ada", why="enough")
    assert (await key(rig)).mark.status == "free"
