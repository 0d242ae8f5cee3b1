"""Agents for the sweep: each effect class, each way to wait, fail and branch, and code that swallows too much.

The outside world is `Bank`: it keeps effects apart by the operation's key and counts each one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from pydantic import BaseModel

from outlive import Agent, DidNotHappen, Happened, NotSent, Operation, Outlive, Retry, Run, Unclear
from outlive.errors import StepFailed, TimedOut, ToolFailed
from outlive.model.operation import OperationRow


@dataclass
class Bank:
    """What happened outside, by operation key; and how often a request came that it had to refuse first.

    `mark` is where a parameter stands in SQL of the store's database.
    """

    mark: str = "?"
    booked: dict[str, str] = field(default_factory=dict)
    acted: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)

    def book(self, key: str, what: str) -> str:
        """An effect: booking twice under one key is two effects, for which `acted` is the witness."""
        self.acted[key] += 1
        self.booked[key] = f"{what}#{len(what)}"
        return self.booked[key]

    def times(self, key: str) -> int:
        """Which request about this key it is, from 1."""
        self.asked[key] += 1
        return self.asked[key]

    def know(self, row: OperationRow) -> Happened[object] | DidNotHappen:
        """What a person finds in the bank's books."""
        return Happened(self.booked[row.key]) if row.key in self.booked else DidNotHappen()


class Declined(Exception):
    """The bank said no, for good."""


class State(BaseModel):
    """What a loop carries from turn to turn."""

    left: list[str]
    paid: list[str] = []


class Progress(BaseModel):
    """An event."""

    paid: int


app: Outlive[Bank] = Outlive()

SOON = Retry(attempts=3, first=timedelta(seconds=5))


async def find(op: Operation[Bank]) -> Happened[str] | DidNotHappen | Unclear:
    """What the bank knows."""
    return Happened(op.deps.booked[op.key]) if op.key in op.deps.booked else DidNotHappen()


async def find_later(op: Operation[Bank]) -> Happened[str] | DidNotHappen | Unclear:
    """A bank whose look-up is down at first."""
    if op.deps.times("look-up " + op.key) < 3:
        return Unclear("it is being maintained")
    return await find(op)


@app.tool(effect="read", retry=SOON)
async def look(op: Operation[Bank], what: str) -> str:
    return f"saw {what}"


@app.tool(effect="read", retry=SOON)
async def look_twice(op: Operation[Bank], what: str) -> str:
    if op.attempt < 2:
        raise ConnectionError("the line was busy")
    return f"saw {what} at {op.attempt}"


@app.tool(effect="idempotent", retry=SOON)
async def put(op: Operation[Bank], what: str) -> str:
    return op.deps.booked.setdefault(op.key, f"{what}#{len(what)}")


@app.tool(effect="idempotent", retry=SOON)
async def put_shakily(op: Operation[Bank], what: str) -> str:
    if op.deps.times(op.key) == 1:
        op.deps.booked.setdefault(op.key, f"{what}#{len(what)}")
        raise ConnectionError("the answer was lost")
    return op.deps.booked.setdefault(op.key, f"{what}#{len(what)}")


@app.tool(reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON)
async def charge(op: Operation[Bank], what: str) -> str:
    return op.deps.book(op.key, what)


@app.tool(reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON)
def charge_on_thread(op: Operation[Bank], what: str) -> str:
    return op.deps.book(op.key, what)


@app.tool(reconcile=find_later, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON)
async def charge_shakily(op: Operation[Bank], what: str) -> str:
    answer = op.deps.book(op.key, what)
    if op.deps.times(op.key) == 1:
        raise ConnectionError("the answer was lost")
    return answer


@app.tool(reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON)
async def charge_second_time(op: Operation[Bank], what: str) -> str:
    if op.deps.times(op.key) == 1:
        raise NotSent("no connection")
    return op.deps.book(op.key, what)


@app.tool(
    reconcile=find, raises=(Declined,), settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON
)  # fmt: skip
async def charge_declined(op: Operation[Bank], what: str) -> str:
    """What is declined has not happened: a look-up says so, and it is asked for again."""
    raise Declined(what)


@app.tool(settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON)
async def wire(op: Operation[Bank], what: str) -> str:
    return op.deps.book(op.key, what)


@app.tool(settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30), retry=SOON)
async def wire_with_note(op: Operation[Bank], what: str) -> str:
    if "form" not in op.notes:
        await op.note(form=f"f-{what}")
    return op.deps.book(op.key, f"{what}/{op.notes['form']}")


@app.tool(
    reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30),
    retry=Retry(attempts=2, first=timedelta(days=30), most=timedelta(days=30)),
)  # fmt: skip
async def charge_next_month(op: Operation[Bank], what: str) -> str:
    if op.attempt == 1:
        raise NotSent("not yet")
    return op.deps.book(op.key, what)


@app.tool(retry=Retry(attempts=2, first=timedelta(seconds=1)))
async def never_sent(op: Operation[Bank], what: str) -> str:
    raise NotSent("the line is cut")


async def count_rows(op: Operation[Bank], what: str) -> int:
    query = f"select count(*) from paid where what = {op.deps.mark}"
    return int(str((await op.connection.execute(query, (what,)))[0][0]))


@app.tool(effect="transactional", retry=SOON)
async def store_row(op: Operation[Bank], what: str) -> int:
    await op.connection.execute("create table if not exists paid (what text)")
    await op.connection.execute(f"insert into paid values ({op.deps.mark})", (what,))
    return await count_rows(op, what)


@app.tool(effect="transactional", retry=SOON)
async def store_row_second_time(op: Operation[Bank], what: str) -> int:
    await op.connection.execute("create table if not exists paid (what text)")
    await op.connection.execute(f"insert into paid values ({op.deps.mark})", (what,))
    if op.attempt == 1:
        raise ConnectionError("something else failed")
    return await count_rows(op, what)


async def find_with_secret(op: Operation[Bank]) -> Happened[str] | DidNotHappen | Unclear:
    """The bank is asked with the same token."""
    await op.secret("bank/token")
    return await find(op)


@app.tool(reconcile=find_with_secret, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30))
async def charge_with_secret(op: Operation[Bank], what: str) -> str:
    token = await op.secret("bank/token")
    return op.deps.book(op.key, f"{what} with {token}")


def double(number: int) -> int:
    return number * 2


async def triple(number: int) -> int:
    return number * 3


async def fails(number: int) -> int:
    raise ValueError(f"bad {number}")


async def fails_once(run: str) -> str:
    if run not in _FAILED:
        _FAILED.add(run)
        raise ConnectionError("try again")
    return "done"


_FAILED: set[str] = set()


@app.agent()
async def steps(run: Run[Bank], input: str) -> list[int]:
    first = await run.step(double, 1)
    second = await run.step(triple, first)
    try:
        await run.step(fails, second)
    except StepFailed as error:
        return [first, second, len(error.message)]
    return []


@app.agent()
async def step_with_retry(run: Run[Bank], input: str) -> str:
    return await run.options(retry=SOON).step(fails_once, run.id)


@app.agent()
async def read_tools(run: Run[Bank], input: str) -> list[str]:
    return [await run.call(look, input), await run.call(look_twice, input), await run.call(look, input)]


@app.agent()
async def idempotent_tools(run: Run[Bank], input: str) -> list[str]:
    return [await run.call(put, input), await run.call(put_shakily, input)]


@app.agent()
async def looked_up(run: Run[Bank], input: str) -> list[str]:
    return [await run.call(charge, input), await run.call(charge_on_thread, input)]


@app.agent()
async def looked_up_late(run: Run[Bank], input: str) -> str:
    return await run.call(charge_shakily, input)


@app.agent()
async def sent_second_time(run: Run[Bank], input: str) -> str:
    return await run.call(charge_second_time, input)


@app.agent()
async def declined(run: Run[Bank], input: str) -> str:
    try:
        return await run.call(charge_declined, input)
    except Declined as error:
        return f"declined {error.args}"


@app.agent()
async def external(run: Run[Bank], input: str) -> list[str]:
    return [await run.call(wire, input), await run.call(wire_with_note, input)]


@app.agent()
async def gives_up(run: Run[Bank], input: str) -> str:
    try:
        return await run.call(never_sent, input)
    except ToolFailed as error:
        return await run.call(look, error.type)


@app.agent()
async def transactional(run: Run[Bank], input: str) -> list[int]:
    return [await run.call(store_row, input), await run.call(store_row_second_time, input)]


@app.agent()
async def gathers(run: Run[Bank], input: str) -> list[object]:
    found = await run.gather(run.call(charge, input), run.call(put, input))
    more = await run.gather(run.call(wire, input), run.step(double, 4))
    return [*found, *more]


@app.agent()
async def gathers_with_store(run: Run[Bank], input: str) -> list[object]:
    return list(await run.gather(run.call(store_row, input), run.call(look, input)))


@app.agent()
async def branch_fails(run: Run[Bank], input: str) -> str:
    """The branch that fails does so while the other one has sent something."""
    try:
        await run.gather(run.call(charge, input), run.call(charge_declined, input))
    except Declined:
        return await run.call(look, "the other one")
    return "?"


async def one(run: Run[Bank], what: str) -> str:
    return await run.call(look, what) + await run.call(charge, what)


@app.agent()
async def maps(run: Run[Bank], input: str) -> list[str]:
    async def branch(what: str) -> str:
        return await one(run, what)

    return await run.map(branch, [f"{input}/{n}" for n in range(3)], key=str, limit=2)


@app.agent()
async def loses(run: Run[Bank], input: str) -> list[str]:
    """The losing branch has an external call that waits to be sent again."""
    name, value = await run.first(slow=run.call(charge_next_month, input), fast=run.call(look_twice, input))
    return [name, str(value), await run.call(put, input)]


@app.agent()
async def turns(run: Run[Bank], input: str) -> list[str]:
    rate = await run.call(put, "rate")
    async for state in run.turns(State(left=[f"{input}/{n}" for n in range(2)])):
        if not state.left:
            break
        what = state.left.pop()
        state.paid.append(await run.call(charge, what))
        await run.emit("progress", Progress(paid=len(state.paid)))
    return [rate, *state.paid, await run.call(look, "the end")]


@app.agent()
async def turns_with_branches(run: Run[Bank], input: str) -> list[str]:
    async for state in run.turns(State(left=["a", "b"])):
        if not state.left:
            break
        what = state.left.pop()
        found = await run.gather(run.call(wire, what), run.call(put, what))
        state.paid += found
    return state.paid


@app.agent()
async def values(run: Run[Bank], input: str) -> list[str]:
    at, number, id = run.now(), run.random(), run.uuid()
    await run.call(charge, f"{number}")
    return [str(at), str(number), str(id), str(run.now())]


@app.agent()
async def has_secret(run: Run[Bank], input: str) -> str:
    return await run.call(charge_with_secret, input)


@app.agent()
async def ends_badly(run: Run[Bank], input: str) -> str:
    await run.call(charge, input)
    raise ValueError("enough")


@app.agent()
async def has_finally(run: Run[Bank], input: str) -> str:
    """What `finally` does, it does at each unloading; a call in it is refused then, and done once at the end."""
    try:
        await run.call(look_twice, input)
        return await run.call(charge, input)
    finally:
        await run.call(put, "last")


@asynccontextmanager
async def held(run: Run[Bank], what: str) -> AsyncIterator[str]:
    got = await run.call(put, what)
    try:
        yield got
    finally:
        await run.call(charge, f"give back {what}")


@app.agent()
async def has_context(run: Run[Bank], input: str) -> str:
    async with held(run, input) as got:
        return got + await run.call(look_twice, input)


@app.agent()
async def swallows_all(run: Run[Bank], input: str) -> str:
    """It goes on after what it should have let through: nothing that it does then may count."""
    try:
        await run.call(look_twice, input)
        await run.call(charge, input)
    except BaseException:  # noqa: BLE001 - the point of it
        with contextlib.suppress(BaseException):
            await run.call(wire, "this must not happen")
        return "swallowed"
    return "done"


@app.agent()
async def suppresses(run: Run[Bank], input: str) -> str:
    with contextlib.suppress(BaseException):
        await run.call(look_twice, input)
    with contextlib.suppress(BaseException):
        await run.call(charge, input)
    return await run.call(put, input)


@app.agent()
async def task_group(run: Run[Bank], input: str) -> str:
    """A task group wraps what passes through it; the agent catches the group."""
    caught = ""
    try:
        async with asyncio.TaskGroup():
            await run.call(look_twice, input)
            await run.call(charge, input)
    except* Exception:  # noqa: BLE001 - the point of it
        caught = "caught"
    return caught + await run.call(put, input)


@app.agent()
async def catches_cancellation(run: Run[Bank], input: str) -> list[str]:
    """The losing branch does not want to lose."""

    async def stubborn() -> str:
        try:
            return await run.call(charge_next_month, input)
        except asyncio.CancelledError:
            return "stays"

    name, value = await run.first(fast=run.call(look_twice, input), stubborn=stubborn())
    return [name, str(value), await run.call(wire, input)]


@app.agent()
async def loses_with_branches(run: Run[Bank], input: str) -> list[str]:
    """What the losing branch has opened is cancelled with it, wherever it is."""

    async def deep(what: str) -> str:
        return await one(run, what) + await run.call(charge_next_month, what)

    async def loser() -> list[str]:
        await run.gather(run.map(deep, [f"{input}/1", f"{input}/2"], key=str), run.call(charge_next_month, input))
        return []

    name, value = await run.first(fast=run.call(look_twice, input), loser=loser())
    return [name, str(value), await run.call(put, input)]


@app.agent()
async def fails_in_several_branches(run: Run[Bank], input: str) -> str:
    """One failure is caught in its branch, which then loses to another failure, and so does what has not failed."""

    async def recovers() -> str:
        try:
            await run.gather(run.step(fails, 1), run.call(charge_next_month, f"{input}/1"))
        except StepFailed:
            return await run.call(charge, f"{input}/2") + await run.call(charge_next_month, f"{input}/3")
        return "?"

    async def late_failure() -> int:
        await run.call(look_twice, input)
        return await run.step(fails, 2)

    try:
        await run.gather(recovers(), run.gather(run.call(charge_next_month, f"{input}/4")), late_failure())
    except StepFailed as error:
        return await run.call(charge, error.message)
    return "?"


class Offer(BaseModel):
    """What nobody sends."""

    cents: int


@app.agent()
async def waits(run: Run[Bank], input: str) -> list[str]:
    """Time, and messages that do not come, between effects."""
    told = [await run.call(charge, f"{input}-before")]
    await run.sleep(timedelta(days=3))
    try:
        await run.receive("offers", Offer, timeout=timedelta(hours=1))
    except TimedOut:
        told.append(await run.call(put, f"{input}-in vain"))
    won, _ = await run.first(reply=run.receive("offers", Offer), late=run.sleep(timedelta(minutes=5)))
    return [*told, won, await run.call(charge, f"{input}-after")]


@app.agent()
async def asks_for_its_rollback(run: Run[Bank], input: str) -> str:
    """Nothing of it can be undone: what can is swept by itself."""
    await run.call(put, f"{input}-put")
    await run.rollback("it was in vain")


CORPUS: tuple[Agent[str, object], ...] = (
    steps, step_with_retry, read_tools, idempotent_tools, looked_up, looked_up_late, sent_second_time, declined,
    external, gives_up, transactional, gathers, gathers_with_store, branch_fails, maps, loses, turns,
    turns_with_branches, values, has_secret, ends_badly, has_finally, has_context, swallows_all, suppresses,
    task_group, catches_cancellation, loses_with_branches, fails_in_several_branches, waits, asks_for_its_rollback,
)  # fmt: skip

EQUAL: dict[str, Callable[[object, object], bool]] = {
    "values": lambda one, other: isinstance(one, list) and isinstance(other, list) and len(one) == len(other),
}


# Not part of the corpus: what the sweep and the replay must find.


async def deny(op: Operation[Bank]) -> Happened[int] | DidNotHappen | Unclear:
    """A look-up that lies."""
    return DidNotHappen()


@app.tool(reconcile=deny, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=30))
async def count_up(op: Operation[Bank], what: str) -> int:
    return op.deps.times(op.key)


@app.agent()
async def lied_to(run: Run[Bank], input: str) -> int:
    return await run.call(count_up, input)


@app.agent()
async def depends_on_hashes(run: Run[Bank], input: str) -> list[str]:
    return [await run.call(look, what) for what in set("abcdefg")]
