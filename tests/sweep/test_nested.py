"""Branches of branches that fail, win and are cancelled, in random shapes, while workers die at random store calls.

Where every leaf acts at a time of its own, far enough from the others that a death does not change which branch ends
first, result, effects and what each scope was told must be what they are undisturbed. Where all act at once, calls are
in flight when their branch is cancelled: then nothing may be left in doubt, and no replay may be told anything else.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeVar

import pytest
from pydantic import BaseModel

from outlive import DidNotHappen, Happened, NotSent, Operation, Outlive, Retry, Run, Unclear
from outlive.errors import RunFailed, StepFailed
from outlive.model.ids import RunId
from outlive.testing import ManualClock, lab
from outlive.testing.audit import Story, audit, story, whole_log
from outlive.testing.faults import Fault

# A death costs the run a lease and a look-up or two: far less than this.
APART = timedelta(minutes=20)
DEATHS = 3

T = TypeVar("T")


@dataclass
class Bank:
    """What was booked, by key; and until when the bank lets each request wait."""

    clock: ManualClock = field(default_factory=ManualClock)
    booked: dict[str, str] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)
    told: dict[str, object] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)
    slow: bool = False

    async def book(self, op: Operation["Bank"]) -> str:
        """An effect, which booking twice would repeat."""
        what = str(op.arguments["what"])
        await self.take_time(what)
        self.effects.append(what)
        self.booked[op.key] = what
        await self.take_time(what + " afterwards")
        return what

    async def take_time(self, what: str) -> None:
        """Where the bank is slow, other tasks have some turns meanwhile."""
        for _ in range(sum(what.encode()) % 20 if self.slow else 0):
            await self.clock.sleep(0)

    def tell(self, path: str, told: object) -> None:
        """What the agent was told there, which must be the same on every replay."""
        before = self.told.setdefault(path, told)
        if before != told:
            self.contradictions.append(f"{path} was told {before!r}, then {told!r}")


class Node(BaseModel):
    """A leaf waits `after` minutes, then acts; any other node has branches, and acts when they have ended."""

    after: int = 0
    how: Literal["gather", "map", "first"] = "gather"
    of: list["Node"] = []
    acts: list[Literal["pay", "pay_shakily", "put", "look", "step"]] = []
    fails: bool = False
    catches: bool = False


app: Outlive[Bank] = Outlive()

SOON = Retry(attempts=50, first=timedelta(seconds=1))


async def find(op: Operation[Bank]) -> Happened[str] | DidNotHappen | Unclear:
    return Happened(op.deps.booked[op.key]) if op.key in op.deps.booked else DidNotHappen()


class Later(NotSent):
    """Come again."""

    retry_after = 0.0


@app.tool(reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=20), retry=SOON)
async def linger(op: Operation[Bank], what: str, minutes: int) -> str:
    due = op.deps.due.setdefault(op.key, op.deps.clock.now() + minutes * 60_000)
    left = due - op.deps.clock.now()
    if left > 0:
        later = Later(what)
        later.retry_after = left / 1000
        raise later
    return await op.deps.book(op)


@app.tool(reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=20), retry=SOON)
async def pay(op: Operation[Bank], what: str) -> str:
    return await op.deps.book(op)


@app.tool(reconcile=find, settle_after=timedelta(seconds=5), timeout=timedelta(seconds=20), retry=SOON)
async def pay_shakily(op: Operation[Bank], what: str) -> str:
    await op.deps.book(op)
    raise ConnectionError("the answer was lost")


@app.tool(effect="idempotent", retry=SOON)
async def put(op: Operation[Bank], what: str) -> str:
    known = op.key in op.deps.booked
    answer = op.deps.booked[op.key] if known else await op.deps.book(op)
    if not known:
        raise ConnectionError("the answer was lost")
    return answer


@app.tool(effect="read", retry=SOON)
async def look(op: Operation[Bank], what: str) -> str:
    await op.deps.take_time(what)
    return f"saw {what}"


def noted(what: str) -> str:
    return what.upper()


def broken(what: str) -> str:
    raise ValueError(what)


@app.agent()
async def plays(run: Run[Bank], root: Node) -> object:
    return await play(run, root, "r")


async def play(run: Run[Bank], node: Node, path: str) -> object:
    told: list[object] = []
    try:
        told.append(await branch(run, node, path) if node.of else await run.call(linger, path, node.after))
    except StepFailed as error:
        if not node.catches:
            raise
        told.append(error.message)
    run.deps.tell(path, told[0])
    for number, act in enumerate(node.acts):
        what = f"{path}/{act}{number}"
        if act == "step":
            told.append(await run.step(noted, what))
        else:
            told.append(await run.call({"pay": pay, "pay_shakily": pay_shakily, "put": put, "look": look}[act], what))
    if node.fails:
        await run.step(broken, path)
    return told


async def branch(run: Run[Bank], node: Node, path: str) -> object:
    paths = [f"{path}.{number}" for number in range(len(node.of))]
    if node.how == "map":

        async def one(at: str) -> object:
            return await play(run, node.of[paths.index(at)], at)

        return await run.map(one, paths, key=str)
    each = [play(run, child, at) for child, at in zip(node.of, paths, strict=True)]
    if node.how == "first":
        named: dict[str, Awaitable[object]] = {f"b{number}": one for number, one in enumerate(each)}
        return list(await run.first(**named))
    return list(await run.gather(*each))


class Dice:
    """Seeded chance."""

    def __init__(self, seed: int) -> None:
        self._clock = ManualClock(seed=f"nested {seed}")

    def chance(self, of: float) -> bool:
        return self._clock.random() < of

    def upto(self, most: int) -> int:
        """From 1 to `most`."""
        return 1 + int(self._clock.random() * most)

    def pick(self, *each: T) -> T:
        return each[self.upto(len(each)) - 1]

    def shuffled(self, each: Sequence[T]) -> list[T]:
        return [one for _, _, one in sorted((self._clock.random(), place, one) for place, one in enumerate(each))]


def tree(dice: Dice, depth: int) -> Node:
    node = Node(fails=dice.chance(0.3), catches=dice.chance(0.5))
    node.acts = [dice.pick("pay", "pay_shakily", "put", "look", "step") for _ in range(dice.upto(3) - 1)]
    if depth > 0 and dice.chance(0.75):
        node.how = dice.pick("gather", "map", "first")
        node.of = [tree(dice, depth - 1) for _ in range(dice.upto(3))]
    return node


def program(dice: Dice, *, apart: bool) -> Node:
    """A random program, whose leaves all act at once, or no two of them within a time."""
    root = Node(how=dice.pick("first", "gather"), catches=True, acts=["pay"])
    root.of = [tree(dice, 2) for _ in range(1 + dice.upto(2))]
    times = dice.shuffled(range(1, 72))
    for leaf, time in zip(_leaves(root), times, strict=False):
        leaf.after = time * int(APART.total_seconds() // 60) if apart else 0
    return root


def _leaves(node: Node) -> list[Node]:
    return [leaf for child in node.of for leaf in _leaves(child)] if node.of else [node]


@dataclass(frozen=True, slots=True)
class End:
    """What a run came to."""

    result: object
    effects: list[str]
    told: Story
    last: tuple[str, str | None]


async def played(
    root: Node, faults: list[Fault], *, slow: bool = False, evict: bool = False, store: str = "sqlite"
) -> tuple[End, int]:
    """How the program ends with these faults, each in a worker of its own; and the store calls of the first worker."""
    bank = Bank(slow=slow)
    async with lab(app, deps=bank, evict=evict, store=store) as t:
        bank.clock = t.clock
        world = t._world
        first = world.process
        first.inject(*faults[:1])
        world.next_faults = [(fault,) for fault in faults[1:]]
        try:
            run = await t.start(plays, root, id="one")
            result = await run.result()
            row, entries = await world.row(run.id), await whole_log(world, RunId(run.id))
            assert await audit(world, row) == []
            assert bank.contradictions == []
            assert len(set(bank.effects)) == len(bank.effects), "an effect happened twice"
        except (AssertionError, RunFailed) as error:
            log = "\n".join(await t.log("one"))
            raise AssertionError(f"{', '.join(map(str, faults))}:\n{root.model_dump_json()}\n{error}\n{log}") from error
        last = entries[-1].kind, entries[-1].payload
        return End(result, sorted(bank.effects), story(entries), last), len(first.made)


async def differ(seed: int, times: int, store: str = "sqlite") -> None:
    """One random program, disturbed in several ways, ends as it does undisturbed."""
    dice = Dice(seed)
    root = program(dice, apart=True)
    undisturbed, calls = await played(root, [], store=store)
    for _ in range(times):
        faults = some_faults(dice, calls)
        end, _ = await played(root, faults, store=store)
        assert end == undisturbed, f"{', '.join(map(str, faults))}: {root.model_dump_json()}"


async def crowd(seed: int, times: int, store: str = "sqlite") -> None:
    """One random program whose calls are in flight when their branches are cancelled."""
    dice = Dice(seed)
    root = program(dice, apart=False)
    evict = dice.chance(0.3)
    _, calls = await played(root, [], slow=True, evict=evict, store=store)
    for _ in range(times):
        await played(root, some_faults(dice, calls), slow=True, evict=evict, store=store)


def some_faults(dice: Dice, calls: int) -> list[Fault]:
    return [a_fault(dice, calls) for _ in range(dice.upto(DEATHS))]


def a_fault(dice: Dice, calls: int) -> Fault:
    if dice.chance(0.2):
        return Fault("lost", dice.upto(calls // 3), "append", dice.pick(0, None, 1))
    return Fault(dice.pick("die", "after", "after", "before"), dice.upto(calls))


@pytest.mark.parametrize("seed", range(4))
async def test_what_branches_end_with_does_not_depend_on_deaths(seed: int) -> None:
    await differ(seed, times=3)


@pytest.mark.parametrize("seed", range(10))
async def test_what_is_in_flight_in_cancelled_branches_is_settled(seed: int) -> None:
    await crowd(seed, times=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1100))
async def test_many_programs_do_not_depend_on_deaths(seed: int) -> None:
    await differ(seed, times=8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2000, 2200))
async def test_many_programs_with_calls_in_flight_are_settled(seed: int) -> None:
    await crowd(seed, times=12)


@pytest.mark.long
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
@pytest.mark.parametrize("seed", range(3000, 3020))
async def test_programs_on_postgres_do_not_depend_on_deaths(seed: int, store: str) -> None:
    await differ(seed, times=4, store=store)


@pytest.mark.long
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
@pytest.mark.parametrize("seed", range(4000, 4020))
async def test_programs_on_postgres_with_calls_in_flight_are_settled(seed: int, store: str) -> None:
    await crowd(seed, times=4, store=store)
