"""Scopes: branches with stable keys, what is told when one fails, and calls that no scope owns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import cast

import pytest

from outlive import Happened, Operation, Run
from outlive.engine.worker import Worker
from outlive.errors import StepFailed, UndecodableEntry
from outlive.log import kinds
from outlive.log.fold import Fold, step
from outlive.model.run import Head
from outlive.store.port import Append, Store
from tests.engine.rig import Mortal, Rig
from tests.engine.subject import RUN, Answer, Body, act, add, base, begin, carry_on, charge, does, double, fails


async def test_branches_are_keyed_by_what_they_call_and_by_their_items(rig: Rig) -> None:
    async def one(run: Run[None], item: str) -> int:
        return await run.step(add, len(item))

    async def body(run: Run[None]) -> object:
        pair = await run.gather(run.step(add, 1), run.step(double, 2))

        async def branch(item: str) -> int:
            return await one(run, item)

        many = await run.map(branch, ["a/b", "ccc"], key=str)
        return [pair, many]

    await rig.settle(await begin(rig, body))
    scopes = {entry.scope for entry in await rig.entries(RUN) if entry.kind == "step"}
    assert scopes == {"/gather/0:add.0", "/gather/0:double.0", "/map/0:a%2Fb", "/map/0:ccc"}


async def test_branches_that_record_nothing_leave_their_opening_to_what_comes_next(rig: Rig) -> None:
    async def nothing() -> int:
        return 1

    async def body(run: Run[None]) -> object:
        one, two = await run.gather(nothing(), nothing())
        await run.first(either=nothing())
        return one + two

    await rig.settle(await begin(rig, body))
    assert (await rig.row(RUN)).status == "succeeded"
    assert [one for one in await rig.kinds(RUN) if one in ("opened", "joined")] == ["opened", "opened", "joined"]


async def test_two_branches_of_one_key_are_refused(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        async def branch(item: int) -> int:
            return await run.step(add, item)

        return await run.map(branch, [1, 2], key=lambda _: "same")

    await rig.settle(await begin(rig, body))
    assert "each branch needs a key of its own" in (await rig.row(RUN)).detail


@pytest.mark.parametrize("evict", [False, True])
async def test_a_failing_branch_is_told_the_same_on_every_replay(rig: Rig, evict: bool) -> None:
    async def slow(run: Run[None]) -> int:
        total = 0
        for n in range(50):
            total += await run.step(add, n)
        return total

    async def body(run: Run[None]) -> object:
        try:
            await run.gather(slow(run), run.step(fails, "first"))
        except StepFailed as error:
            said = str(error)
        else:
            said = "no failure"
        return [said, await run.step(double, 4)]

    rig.evict = evict
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert row.status == "succeeded"
    kinds = [(entry.kind, entry.scope) for entry in await rig.entries(RUN)]
    assert ("joined", "") in kinds
    assert ("scope cancelled", "/gather/0:slow.0") in kinds
    executed = [name for name in does.steps if name.startswith("add")]
    assert len(executed) == len(set(executed)), "no recorded step of the cancelled branch is executed again"


async def test_an_external_call_is_never_cancelled_because_a_sibling_failed(rig: Rig) -> None:
    begun = asyncio.Event()

    async def tool(op: Operation[None]) -> str:
        begun.set()
        while "scope cancelled" not in await rig.kinds(RUN):
            pass
        for _ in range(5):
            await rig.kinds(RUN)  # long enough to be told of the cancellation
        return "acted"

    async def late_failure(run: Run[None]) -> int:
        await begun.wait()
        return await run.step(fails, "while the call is in flight")

    async def body(run: Run[None]) -> object:
        try:
            await run.gather(run.call(act, "slow"), late_failure(run))
        except StepFailed:
            return "failed"
        return "no failure"

    does.tool = tool
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert row.status == "succeeded"
    assert [operation.status for operation in await rig.operations(RUN)] == ["succeeded"]


@pytest.mark.parametrize("evict", [False, True])
async def test_first_tells_who_won_and_cancels_the_rest(rig: Rig, evict: bool) -> None:
    async def never(run: Run[None]) -> int:
        n = 0
        while True:
            n = await run.step(add, n)

    async def body(run: Run[None]) -> object:
        winner = await run.first(quick=run.step(double, 2), endless=never(run))
        return [winner, await run.step(double, 5)]

    rig.evict = evict
    row = await rig.until_ended(await begin(rig, body), RUN)
    assert row.status == "succeeded"
    (joined,) = [entry for entry in await rig.entries(RUN) if entry.kind == "joined"]
    assert '"branch":"quick"' in joined.body


async def test_a_second_call_in_flight_in_one_scope_is_refused(rig: Rig) -> None:
    seen: list[BaseException] = []

    async def body(run: Run[None]) -> object:
        async def beside() -> None:
            try:
                await run.step(add, 1)
            except BaseException as error:  # noqa: BLE001 - the test looks at whatever it is
                seen.append(error)

        task = asyncio.ensure_future(beside())
        await run.call(act, "in flight")
        await task
        return "done"

    async def tool(op: Operation[None]) -> str:
        while not seen:
            await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=0)
        return "done"

    does.tool = tool
    await rig.settle(await begin(rig, body))
    assert type(seen[0]).__name__ == "ConcurrentCalls"
    assert "use run.gather" in str(seen[0])


async def test_a_call_from_a_task_that_the_run_did_not_start_is_refused(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await asyncio.ensure_future(run.step(add, 1))

    await rig.settle(await begin(rig, body))
    row = await rig.row(RUN)
    assert row.status == "failed"
    assert "ScopeError" in row.detail
    assert "test_scopes.py" in row.detail


async def test_asyncio_gather_is_refused_by_name_of_the_remedy(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        return await asyncio.gather(run.step(add, 1), run.step(add, 2))

    await rig.settle(await begin(rig, body))
    assert "use run.gather" in (await rig.row(RUN)).detail


async def test_a_foreign_cancellation_fails_the_run_at_its_line(rig: Rig) -> None:
    async def tool(op: Operation[None]) -> str:
        await asyncio.Event().wait()
        return "never"

    async def endless(run: Run[None]) -> object:
        try:
            async with asyncio.timeout(0.01):
                await run.options(name="stuck").step(stuck)
        except TimeoutError:
            return "the fall-back branch: replay could not find it"
        return "never"

    await rig.settle(await begin(rig, endless))
    row = await rig.row(RUN)
    assert row.status == "failed"
    assert "ForeignCancellation" in row.detail
    assert "run.options(timeout=" in row.detail


async def stuck() -> int:
    await asyncio.Event().wait()
    return 0


async def test_a_time_out_of_our_own_is_an_outcome(rig: Rig) -> None:
    async def body(run: Run[None]) -> object:
        try:
            return await run.options(timeout=timedelta(milliseconds=10)).step(stuck)
        except StepFailed as error:
            return error.type

    await rig.settle(await begin(rig, body))
    ended = (await rig.entries(RUN))[-1]
    assert ended.payload == '"TimedOut"'


# ---- branches of branches that are cancelled


class Flight:
    """A charge in flight whose worker dies; the bank says that it happened."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.looked_up = 0
        does.tool, does.look_up = self.hangs, self.happened

    async def hangs(self, op: Operation[None]) -> str:
        self.begun.set()
        await asyncio.Event().wait()
        return "never"

    async def happened(self, op: Operation[None]) -> Answer:
        self.looked_up += 1
        return Happened("found")


async def some_turns_of_the_loop(rig: Rig) -> None:
    for _ in range(5):
        await rig.kinds(RUN)


async def die_when(rig: Rig, body: Body, until: Callable[[], Awaitable[bool]], store: Store | None = None) -> None:
    """Drive the body in a worker that dies once the condition holds."""
    await begin(rig, body)
    worker = rig.worker(rig.app(base), store=cast(Store, Mortal(store or rig.store)))
    await worker.claim()
    while not await until():
        await some_turns_of_the_loop(rig)
    await some_turns_of_the_loop(rig)
    dead = asyncio.Event()
    dead.set()
    await rig.crash(worker, dead)


async def recovered(rig: Rig, body: Body) -> Worker:
    worker = await carry_on(rig, body)
    await rig.take_over(worker)
    return worker


async def test_what_is_in_flight_in_a_branch_of_a_cancelled_branch_is_looked_up(rig: Rig) -> None:
    flight, told = Flight(), []

    async def deep(run: Run[None]) -> object:
        await run.step(add, 1)
        try:
            return await run.call(charge, "deep")
        except asyncio.CancelledError:
            told.append("deep")
            raise

    async def loser(run: Run[None]) -> object:
        try:
            return await run.gather(run.step(double, 1), run.gather(deep(run)))
        except asyncio.CancelledError:
            told.append("loser")
            raise

    async def winner(run: Run[None]) -> object:
        await flight.begun.wait()
        return await run.step(double, 3)

    async def body(run: Run[None]) -> object:
        name, _ = await run.first(winner=winner(run), loser=loser(run))
        return [name, await run.step(double, 5)]

    async def decided() -> bool:
        return "joined" in await rig.kinds(RUN)

    await die_when(rig, body, decided)
    entries = await rig.entries(RUN)
    joined = next(entry.seq for entry in entries if entry.kind == "joined")
    assert [entry.scope for entry in entries if entry.kind == "scope cancelled"] == [
        "/first/0:loser",
        "/first/0:loser/gather/0:gather.0",
        "/first/0:loser/gather/0:gather.0/gather/0:deep.0",
    ]
    assert {entry.at for entry in entries[joined:]} == {entries[joined].at}, "in one commit"

    told.clear()
    await recovered(rig, body)
    assert (await rig.row(RUN)).status == "succeeded"
    assert [operation.status for operation in await rig.operations(RUN)] == ["succeeded"]
    assert (flight.looked_up, len(rig.sent)) == (1, 1)
    assert told in (["loser"], ["deep", "loser"]), "children first"


async def test_a_cancellation_waits_until_replay_has_met_what_is_recorded(rig: Rig) -> None:
    """Live, but in a branch that has not come to its recorded call again: it is not cut short of it."""
    flight, slow = Flight(), asyncio.Event()

    async def loser(run: Run[None]) -> object:
        await slow.wait()
        return await run.gather(run.call(charge, "early"))

    async def winner(run: Run[None]) -> object:
        await flight.begun.wait()
        await winning.wait()
        return await run.step(double, 3)

    async def body(run: Run[None]) -> object:
        name, _ = await run.first(winner=winner(run), loser=loser(run))
        return name

    async def in_flight() -> bool:
        return flight.begun.is_set()

    winning = asyncio.Event()
    slow.set()
    await die_when(rig, body, in_flight)
    winning.set()
    slow.clear()
    worker = await carry_on(rig, body)

    async def release() -> None:
        while "joined" not in await rig.kinds(RUN):
            pass
        await some_turns_of_the_loop(rig)
        slow.set()

    releasing = asyncio.ensure_future(release())
    await rig.take_over(worker)
    await releasing
    assert (await rig.row(RUN)).status == "succeeded"
    assert flight.looked_up == 1


class SlowStore:
    """A store whose appends of some kinds are held up."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.held: dict[str, asyncio.Event] = {}

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        for draft in append.drafts:
            if draft.kind in self.held:
                await self.held[draft.kind].wait()
        return await self._store.append(append, now=now)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_what_a_branch_does_while_its_cancellation_is_being_written(rig: Rig) -> None:
    """Its branches have ended and others were opened: the log cancels those that ended, and not those that are open."""
    flight, store = Flight(), SlowStore(rig.store)
    store.held = {"step": asyncio.Event(), "joined": asyncio.Event()}
    losing, won = asyncio.Event(), asyncio.Event()

    async def loser(run: Run[None]) -> object:
        added = await run.gather(run.step(add, 1))
        losing.set()
        return [*added, *await run.gather(run.call(charge, "late"))]

    async def winner() -> object:
        while "add 1" not in does.steps:
            await some_turns_of_the_loop(rig)
        won.set()
        return "at once"

    async def body(run: Run[None]) -> object:
        name, _ = await run.first(winner=winner(), loser=loser(run))
        return [name, await run.step(double, 5)]

    async def release() -> None:
        await won.wait()
        await some_turns_of_the_loop(rig)
        store.held["step"].set()
        await losing.wait()
        await some_turns_of_the_loop(rig)
        store.held["joined"].set()

    async def in_flight() -> bool:
        return flight.begun.is_set()

    releasing = asyncio.ensure_future(release())
    await die_when(rig, body, in_flight, cast(Store, store))
    await releasing
    cancelled = [entry.scope for entry in await rig.entries(RUN) if entry.kind == "scope cancelled"]
    assert cancelled == ["/first/0:loser", "/first/0:loser/gather/0:add.0"]

    await recovered(rig, body)
    assert (await rig.row(RUN)).status == "succeeded"
    assert (flight.looked_up, len(rig.sent)) == (1, 1)
    assert does.steps == ["add 1", "double 5"]


async def test_a_branch_that_does_not_want_to_be_cancelled_decides_nothing(rig: Rig) -> None:
    """Live and on replay: what a branch of a cancelled branch returns is no end of a `first` and no result."""
    flight = Flight()

    async def stays(run: Run[None]) -> object:
        try:
            return await run.call(act, "waits for ever")
        except asyncio.CancelledError:
            return "stays"

    async def loser(run: Run[None]) -> object:
        told, _ = await run.first(stays=stays(run), deep=run.call(charge, "deep"))
        does.steps.append(f"told of {told}")
        return told

    async def winner(run: Run[None]) -> object:
        await flight.begun.wait()
        return await run.step(double, 3)

    async def body(run: Run[None]) -> object:
        name, _ = await run.first(winner=winner(run), loser=loser(run))
        return name

    async def decided() -> bool:
        return "joined" in await rig.kinds(RUN)

    await die_when(rig, body, decided)
    does.tool = _acted
    await recovered(rig, body)
    row = await rig.row(RUN)
    # `act` cannot be looked up: a person decides, and nothing else keeps the run.
    assert (row.status, row.reason) == ("blocked", "operation in doubt")
    assert flight.looked_up == 1
    assert "told of stays" not in does.steps
    assert (await rig.kinds(RUN)).count("joined") == 1


async def _acted(op: Operation[None]) -> str:
    return "acted"


# ---- what cannot be read or written


@pytest.mark.parametrize("how", ["map", "gather"])
async def test_a_key_that_no_text_can_hold_is_refused(rig: Rig, how: str) -> None:
    async def body(run: Run[None]) -> object:
        async def branch(item: str) -> int:
            return await run.step(add, 1)

        if how == "map":
            return await run.map(branch, ["\ud800"], key=str)
        return await run.gather(run.options(name="\ud800").step(add, 1))

    await rig.settle(await begin(rig, body))
    row = await rig.row(RUN)
    assert row.status == "failed"
    assert "Refused" in row.detail
    assert "\\ud800" in row.detail
    assert await rig.kinds(RUN) == ["started", "ended"]


def test_an_end_of_branches_that_were_not_opened_is_undecodable() -> None:
    state, told = Fold(), kinds.Joined(branch="a", how="failed")
    with pytest.raises(UndecodableEntry, match=r"(?s)entry 7 \(joined\).*not opened"):
        step(state, 7, told, "", "/gather/0", None)
    step(state, 8, kinds.Opened(name="gather", digest="", shown="", branches=["b"]), "", "/gather/0", None)
    with pytest.raises(UndecodableEntry, match=r"entry 9 \(joined\)"):
        step(state, 9, told, "", "/gather/0", None)
