"""The crash sweep: an agent is run again and again, each time with a fault at another call to its store.

However its workers die, the run must end as the undisturbed one did, or be visibly in doubt; and what was executed must
be what the log allows. A failure names the call, the fault, what is wrong, and shows the log.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, TypeVar, cast, get_args

from typing_extensions import TypeVar as DefaultTypeVar

from outlive.engine.definition import Agent, AgentSpec, ToolSpec
from outlive.log import kinds
from outlive.model.errors import Refused, RunEnded, RunFailed
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import IN_DOUBT, DidNotHappen, Happened, OperationRow
from outlive.model.run import RunRow
from outlive.testing.audit import audit
from outlive.testing.faults import WRITES, Fault, FaultKind, Made
from outlive.testing.post import Mail, Post
from outlive.testing.world import World, resolve, why_blocked

D = DefaultTypeVar("D", default=None)
I = TypeVar("I")  # noqa: E741 - as the public surface names it
R = TypeVar("R")

# What a person knows of an operation in doubt; None: nothing.
Person = Callable[[OperationRow], "Happened[object] | DidNotHappen | None"]

# What a call to the store is about: a step, a tool by what it declares, or the run itself.
CLASSES = ("run", "step", "read", "idempotent", "external", "external, looked up", "transactional")

ALL: tuple[FaultKind, ...] = get_args(FaultKind)

# A second death is tried at one in so many calls of the recovering worker, each time others.
_STRIDE = 7
# In so many looks a worker has read what came after the end of a run.
_MOST_LOOKS = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is tried: each `every`-th call, the first of each kind; with two `deaths` the next worker dies too.

    `kinds` are the kinds of faults.
    """

    every: int = 1
    deaths: int = 1
    together: int = 1
    kinds: Sequence[FaultKind] = ALL

    def __post_init__(self) -> None:
        if not self.kinds or not set(self.kinds) <= set(ALL):
            raise Refused(what=f"kinds={self.kinds!r}", why=f"the kinds of faults are {', '.join(ALL)}")
        if self.every < 1 or self.together < 1 or self.deaths not in (1, 2):
            raise Refused(what=str(self), why="every and together are at least 1, and deaths are 1 or 2")


@dataclass(frozen=True, slots=True)
class Point:
    """One way to be disturbed: the faults of the first worker, and those of the one after it."""

    call: int
    made: Made
    first: tuple[Fault, ...]
    second: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        then = f", then {', then '.join(map(str, self.second))}" if self.second else ""
        return f"call {self.call} ({self.made.method}): {', then '.join(map(str, self.first))}{then}"


@dataclass(slots=True)
class SweepReport:
    """How many points were tried; each is a run of its own, with its fault at one call to the store.

    `methods` counts them by the method of that call, `ends` by the status in which the run came to rest. `points` has
    (method, what the call was about, status): a call can be about several things, and one that is about the run as a
    whole counts for everything that the agent uses, so these do not add up to `tried`.
    """

    points: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    methods: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    tried: int = 0

    def add(self, other: SweepReport) -> None:
        """Put another report into this one."""
        self.points += other.points
        self.methods += other.methods
        self.ends += other.ends
        self.tried += other.tried

    def point(self, method: str, about: set[str], end: str) -> None:
        """Count one point."""
        self.tried += 1
        self.methods[method] += 1
        self.ends[end] += 1
        for one in about:
            self.points[method, one, end] += 1

    def count(self, *, method: str = "", about: str = "", outcome: str = "") -> int:
        """How many of `points` match; empty matches everything."""
        asked = (method, about, outcome)
        return sum(
            count
            for key, count in self.points.items()
            if all(want in ("", has) for want, has in zip(asked, key, strict=True))
        )

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        lines = [f"{self.tried} points, each a run of its own with a fault at one store call", f"runs: {ends}"]
        if self.ends["blocked"]:
            lines[-1] += " (blocked: an operation in doubt that only a person can settle)"
        lines.append("points per store method, and how many of them concern the run, its steps and its tools by effect")
        lines.append("(one call can concern several; a claim concerns all)")
        used = [one for one in CLASSES if self.count(about=one)]
        lines.append(_row("", "points", *used, used=used))
        for method in sorted(self.methods):
            counts = [self.count(method=method, about=one) for one in used]
            lines.append(_row(method, self.methods[method], *counts, used=used))
        return "\n".join(lines)


def _row(name: str, *cells: object, used: list[str]) -> str:
    widths = [max(len(one), 6) + 2 for one in ("points", *used)]
    return f"{name:<20}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


@dataclass(frozen=True, slots=True)
class End:
    """How a run stopped: its row, what a waiting client is given, and how its workers' store was used."""

    row: RunRow
    result: object
    error: RunEnded | None
    made: list[Made]
    undone: tuple[str, ...] = ()
    """How its rollbacks have ended, and what became of its operations by that."""

    @property
    def said(self) -> str:
        """In words."""
        if self.error is not None:
            return str(self.error).removeprefix(f"run {self.row.id} ")
        if self.row.status == "blocked":
            return f"blocked: {self.row.reason}"
        return f"succeeded with {self.result!r}"


class SweepFailed(AssertionError):
    """A point at which something does not hold."""


class Sweep(Generic[I, R, D]):
    """One agent and one input, swept."""

    def __init__(
        self, world: Callable[[AgentSpec], World[D]], agent: Agent[I, R], input: I, *, person: Person | None,
        equal: Callable[[R, R], bool] | None, mail: Sequence[Mail] = (),
    ) -> None:  # fmt: skip
        self._mail = mail
        self._new, self._agent, self._input, self._person = world, agent, input, person
        self._equal = equal
        self._tools: dict[str, ToolSpec] = {}
        self._report = SweepReport()
        self._runs = 0

    async def run(self, plan: Plan) -> SweepReport:
        """Learn the calls of the undisturbed run, then try each point. Raises AssertionError."""
        undisturbed, _ = await self._once(None, None)
        used = {about for made in undisturbed.made for about in self._about(made)} | {"run"}
        self._report = SweepReport()
        waiting: list[Point] = []
        met: set[tuple[str, frozenset[str]]] = set()
        for call, made in enumerate(undisturbed.made, start=1):
            kind = made.method, frozenset(self._about(made))
            if kind not in met or call % plan.every == 0:
                waiting += [one for one in points(call, made) if one.first[0].kind in plan.kinds]
            met.add(kind)
        waiting.reverse()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(plan.together):
                    group.create_task(self._serve(waiting, plan, undisturbed, used))
        except* Exception as failed:  # noqa: BLE001 - whatever it is, it is passed on
            raise failed.exceptions[0] from None
        return self._report

    async def _serve(self, waiting: list[Point], plan: Plan, undisturbed: End, used: set[str]) -> None:
        """Try points until none is left."""
        while waiting:
            point = waiting.pop()
            end, recovery = await self._once(point, undisturbed)
            self._count(point, end, used)
            for further in _further(point, recovery) if plan.deaths > 1 else ():
                end, _ = await self._once(further, undisturbed)
                self._count(further, end, used)

    def _count(self, point: Point, end: End, used: set[str]) -> None:
        self._report.point(point.made.method, self._about(point.made) or used, end.row.status)

    def _about(self, made: Made) -> set[str]:
        """Which classes of calls an append is about; empty for what is about the run as a whole."""
        about: set[str] = set()
        if made.append is None:
            return about
        for row in made.append.operations:
            looked_up = row.effect == "external" and self._tools[row.tool].policy.reconcile is not None
            about.add("external, looked up" if looked_up else row.effect)
        for draft in made.append.drafts:
            if draft.kind in (kinds.StepDone.KIND, kinds.StepTried.KIND):
                body = json.loads(draft.body)
                about.add(self._tools[body["name"]].policy.effect if body.get("tool") else "step")
        return about or {"run"}

    async def _once(self, point: Point | None, undisturbed: End | None) -> tuple[End, list[Made]]:
        """One run in a world of its own. Returns how it ended, and the calls of the worker that recovered it."""
        world = self._new(self._agent)
        tools = world.registry.tools
        self._tools = {**tools, **{one.name: one for tool in tools.values() if (one := tool.compensation) is not None}}
        self._runs += 1
        name = f"{self._agent.name}-{self._runs}"
        await world.open(*(point.first if point else ()))
        try:
            world.next_faults = [point.second] if point and point.second else []
            first = world.process
            handle = await world.client.start(self._agent, self._input, id=name)
            world.post = Post(world.store, world.clock, RunId(handle.id), self._mail, world.registry)
            row = await self._finish(world, RunId(handle.id))
            if row.ended and await world.post.rest():
                row = await self._answered(world, row)
            undone, badly = await self._rolled_back(world, row)
            row = await world.row(row.id)
            late = await first.deliver()
            result, error = await self._result(world, row)
            end = End(row, result, error, first.made, undone)
            wrong = await audit(world, row) + badly + self._compare(world, end, undisturbed)
            wrong += [f"an append that was lost was stored after all: {one}" for one in late if one == "stored"]
            if point is not None and first.met != list(point.first):
                wrong.append(f"the fault was never met: the worker made {len(first.made)} calls")
            if row.status == "blocked":
                wrong += await self._blocked_for_good_reason(world, row)
            if wrong:
                raise SweepFailed(await self._tell(world, row, point, wrong))
            return end, world.process.made if world.deaths else []
        except SweepFailed:
            raise
        except Exception as error:
            log = "\n".join(await world.lines(name))
            raise SweepFailed(f"sweep of {self._agent.name}, at {point}: {error!r}\nlog:\n{log}") from error
        finally:
            await world.close()

    async def _finish(self, world: World[D], run: RunId) -> RunRow:
        row = await world.finish(run)
        while row.status == "blocked" and self._person is not None:
            if not await self._ask(world, row):
                break
            row = await world.finish(run)
        return row

    async def _rolled_back(self, world: World[D], row: RunRow) -> tuple[tuple[str, ...], list[str]]:
        """Drive the rollbacks of the run to their end: how they ended, and what is wrong with them."""
        said, wrong = list[str](), list[str]()
        for one in await world.store.rollbacks(DEFAULT_TENANT, row.id):
            back = await self._finish(world, one.id)
            said.append(f"{back.id.removeprefix(row.id)} {back.status}")
            wrong += [f"its rollback: {what}" for what in await audit(world, back)]
            if not back.ended:
                wrong.append(f"its rollback is {back.status}: {back.reason}: {back.detail}")
                wrong += await world.lines(back.id)
        operations = await world.store.operations(DEFAULT_TENANT, row.id) if said else []
        said += sorted(f"{one.tool} {one.status}" for one in operations)
        return tuple(said), wrong

    async def _answered(self, world: World[D], row: RunRow) -> RunRow:
        """What came after its end is read by whoever looks after ended runs, however often that fails."""
        for _ in range(_MOST_LOOKS):
            await world.work()
            if not await world.store.unread(DEFAULT_TENANT, row.id):
                break
            world.clock.advance(timedelta(seconds=5))
        return await world.row(row.id)

    async def _ask(self, world: World[D], row: RunRow) -> bool:
        """Let the person decide what is in doubt; whether anything was decided."""
        assert self._person is not None
        decided = False
        concerned = [row.id] if row.rolls_back is None else [row.id, row.rolls_back]
        for one in [one for run in concerned for one in await world.store.operations(DEFAULT_TENANT, run)]:
            answer = self._person(one) if one.status in IN_DOUBT else None
            match answer:
                case Happened():
                    await resolve(world, one, "happened", outcome=answer.outcome, why="it was looked up by hand")
                case DidNotHappen():
                    world.clock.advance(timedelta(milliseconds=max(0, one.not_before - world.clock.now())))
                    await resolve(world, one, "did-not-happen", outcome=None, why="it was looked up by hand")
                case None:
                    continue
            decided = True
        return decided

    async def _result(self, world: World[D], row: RunRow) -> tuple[object, RunEnded | None]:
        if not row.ended:
            return None, None
        try:
            return await world.client.handle(self._agent, row.id).result(), None
        except RunEnded as error:
            return None, error

    def _compare(self, world: World[D], end: End, undisturbed: End | None) -> list[str]:
        if undisturbed is None or end.row.status == "blocked":
            return []
        same = end.row.status == undisturbed.row.status
        if end.undone != undisturbed.undone:
            return [f"of its rollback: {end.undone}; undisturbed: {undisturbed.undone}"]
        if same and isinstance(end.error, RunFailed) and isinstance(undisturbed.error, RunFailed):
            same = (end.error.type, end.error.message) == (undisturbed.error.type, undisturbed.error.message)
        elif same and end.row.status == "succeeded":
            equal = self._equal or (lambda one, other: one == other)
            same = equal(cast(R, end.result), cast(R, undisturbed.result))
        return [] if same else [f"it {end.said}; undisturbed it {undisturbed.said}"]

    async def _blocked_for_good_reason(self, world: World[D], row: RunRow) -> list[str]:
        """Only what cannot be looked up may be left to a person, and only where nobody was asked in this sweep."""
        rows = [one for one in await world.store.operations(DEFAULT_TENANT, row.id) if one.status in IN_DOUBT]
        if row.reason != "operation in doubt" or not rows:
            return [f"it is blocked: {row.reason}: {row.detail}"]
        return [
            f"{one.tool} is left in doubt although it can be repeated or looked up"
            for one in rows
            if one.effect != "external" or self._tools[one.tool].policy.reconcile is not None
        ]

    async def _tell(self, world: World[D], row: RunRow, point: Point | None, wrong: list[str]) -> str:
        where = f"at {point}" if point else "undisturbed"
        blocked = [await why_blocked(world, row)] if row.status == "blocked" else []
        happened = [f"  {one.kind:<8} {one.tool} {one.id}" for one in world.witnessed]
        head = [f"sweep of {self._agent.name}, {where}: the run is {row.status}", *(f"- {one}" for one in wrong)]
        return "\n".join([*head, *blocked, "what happened:", *happened, "log:", *await world.lines(row.id)])


def points(call: int, made: Made) -> Iterator[Point]:
    """The ways in which one call can go wrong."""
    for kind in ("die", "after", "before"):
        yield Point(call, made, (Fault(kind, call),))
    if made.method in WRITES:
        yield Point(call, made, (Fault("lost", call, later=0),))
        yield Point(call, made, (Fault("lost", call, later=None),))
    if made.method == "append":
        # One call later is before the run is claimed again; two later is after it.
        yield Point(call, made, (Fault("lost", call, later=1),))
        yield Point(call, made, (Fault("lost", call, later=2),))


def _further(point: Point, recovery: list[Made]) -> Iterator[Point]:
    """A second fault for a point: the next worker dies as well, or this one does while it finds out what it wrote."""
    fault = point.first[0]
    if fault.kind == "lost":
        for after in (1, 2):
            for kind in ("die", "after"):
                yield Point(point.call, point.made, (fault, Fault(kind, point.call + after)))
    elif fault.kind in ("die", "after"):
        for again in range(1 + point.call % _STRIDE, len(recovery) + 1, _STRIDE):
            writes = recovery[again - 1].method in WRITES
            for second in (Fault("after", again), Fault("lost" if writes else "die", again)):
                yield Point(point.call, point.made, point.first, (second,))
