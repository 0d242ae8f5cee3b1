"""The lab: an application's agents run for real, on a store of their own, in no time, and die wherever a test says.

Real are the store (a SQLite file, or a schema of a PostgreSQL database), the engine, the worker and the tools' bodies;
only the clock is not: it stands still and jumps to what becomes due. Nothing in it sleeps.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Generic, TypeVar, get_args

from typing_extensions import TypeVar as DefaultTypeVar

from outlive.app import decide, stop
from outlive.app import mail as mails
from outlive.app.approvals import Approvals
from outlive.app.client import Handle
from outlive.app.outlive import Outlive
from outlive.app.registry import Registry
from outlive.engine.control import Control
from outlive.engine.definition import Agent, AgentSpec
from outlive.model.approval import ApprovalRow
from outlive.model.errors import Refused
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.operation import OPEN, OperationRow
from outlive.model.run import RunFilter
from outlive.testing.clock import ManualClock
from outlive.testing.faults import Fault, FaultKind, FaultyStore
from outlive.testing.ground import File, Ground
from outlive.testing.post import Mail
from outlive.testing.replaying import replay_elsewhere
from outlive.testing.sweep import ALL, Person, Plan, Sweep, SweepReport
from outlive.testing.world import (
    Approver,
    KeptSecrets,
    Stuck,
    World,
    kept_secrets,
    quiet_about_the_dead,
    resolve,
    standing,
    why_blocked,
)

D = DefaultTypeVar("D", default=None)
I = TypeVar("I")  # noqa: E741 - as the public surface names it
R = TypeVar("R")

# As many runs as a lab can be thought to have.
_MOST = 10_000
_SAID = "the test says so"


class Lab(Generic[D]):
    """What a test holds. Times are the lab's own; `clock` may be handed to fakes."""

    def __init__(
        self, app: Outlive[D], deps: D, directory: Path, ground: Callable[[], Ground], *, secrets: KeptSecrets,
        evict: bool,
    ) -> None:  # fmt: skip
        self._app, self._deps, self._directory, self._secrets, self._evict = app, deps, directory, secrets, evict
        self._ground = ground
        self._world: World[D] = World(app.registry, deps, ground(), secrets=secrets, evict=evict)
        self._world.roles = app.roles
        self.approver: Approver | None = None
        """In sweeps: says *approve* or *reject* to what waits, once for each of its quorum; None lets it expire."""
        self._waiting = _Waiting(self._world)
        self._disturbed: list[FaultyStore] = []

    @property
    def clock(self) -> ManualClock:
        """The lab's clock. A `sleep` on it jumps."""
        return self._world.clock

    # ---- running

    async def start(self, agent: Agent[I, R], input: I, /, *, id: str | None = None) -> Handle[R]:
        """Start a run, as `app.start` does. Nothing works on it before `advance`, `run` or a `result()`."""
        handle = await self._world.client.start(agent, input, id=id)
        self._waiting.runs.add(handle.id)
        return handle

    async def run(self, agent: Agent[I, R], input: I, /, *, id: str | None = None) -> R:
        """Start a run and let time pass until it has ended; what the agent returned.

        Raises RunFailed or RunExpired for another end, and Stuck for a run that cannot go on by itself:
        the message names the operation in doubt.
        """
        handle = await self.start(agent, input, id=id)
        row = await self._world.finish(RunId(handle.id))
        if row.status == "blocked":
            raise Stuck(await why_blocked(self._world, row))
        return await handle.result()

    async def advance(self, by: timedelta | None = None, /, **duration: float) -> None:
        """Let time pass, `advance(days=3)` or by a timedelta. What becomes due meanwhile is done in order of time."""
        left = _span(by, duration)
        world, until = self._world, self.clock.now() + round(left / timedelta(milliseconds=1))
        await world.work()
        while (step := await world.next_due()) is not None and self.clock.now() + step <= until:
            self.clock.advance(timedelta(milliseconds=step))
            await world.work()
        self.clock.advance(timedelta(milliseconds=max(0, until - self.clock.now())))
        await world.work()

    def crash(self, fault: Fault) -> None:
        """From now on the worker meets this fault: `Fault("after", 3, "append")` dies after the third append.

        A worker that has died is followed by another, which takes the run over once its lease is over. A fault that has
        not happened when the lab ends is an AssertionError: the test would have shown nothing.
        """
        if not isinstance(fault, Fault):
            raise Refused(what=f"crash({fault!r})", why='say a Fault, such as Fault("after", 3, "append")')
        process = self._world.process
        process.inject(fault)
        if process not in self._disturbed:
            self._disturbed.append(process)

    # ---- looking and deciding

    def sent(self, tool: str) -> list[dict[str, object]]:
        """The arguments of each time that the tool's body was executed in this lab, in order; not those of sweeps."""
        self._known(tool)
        return [dict(one.arguments) for one in self._world.witnessed if one.kind == "sent" and one.tool == tool]

    async def status(self, run: Handle[R] | str) -> str:
        """The status of a run, as `Handle.status`."""
        return (await self._world.row(_id(run))).status

    async def log(self, run: Handle[R] | str) -> list[str]:
        """The log of a run, one line for each entry."""
        return await self._world.lines(_id(run))

    async def operations(self, run: Handle[R] | str) -> list[OperationRow]:
        """The operation records of a run, in the order of their first intent."""
        return await self._world.store.operations(DEFAULT_TENANT, RunId(_id(run)))

    async def send(self, run: Handle[R] | str, topic: str, message: object, *, key: str = "") -> None:
        """Send a message to a run, as `Handle.send`; without a `key` it is another message each time."""
        body = mails.written(message, f"the message on {topic}")
        store, now = self._world.store, self.clock.now()
        await mails.send(store, DEFAULT_TENANT, RunId(_id(run)), topic, body, key or self.clock.token(), now)

    async def questions(self, run: Handle[R] | str) -> list[str]:
        """The questions that a run waits with, in the order in which it asked."""
        found = await mails.questions(self._world.store, DEFAULT_TENANT, RunId(_id(run)))
        return [one.text for one in found if not one.answered_by]

    async def answer(self, run: Handle[R] | str, answer: object, *, question: str = "", who: str = "lab") -> None:
        """Answer a question of a run, by its text; it need not be said where only one is open.

        Raises UnknownQuestion.
        """
        store, now = self._world.store, self.clock.now()
        asked = await mails.asked(store, DEFAULT_TENANT, RunId(_id(run)), question)
        body = mails.written(answer, "the answer")
        await mails.answer(store, DEFAULT_TENANT, asked.run, asked.id, body, who, now)

    async def resolve(
        self, run: Handle[R] | str, tool_or_operation: str, decision: decide.Word, *, outcome: object = None,
        why: str = _SAID,
    ) -> None:  # fmt: skip
        """Say, as a person would, what became of an operation in doubt: by its tool's name, or its id.

        *happened* takes the outcome as the tool would have returned it. Raises NotInDoubt, UnknownOperation, Refused
        for a tool with no or with several operations in doubt, and TooEarly for a *did-not-happen* before it can be
        known: `advance` first.
        """
        if decision not in get_args(decide.Word):
            raise Refused(what=f"resolve(…, {decision!r})", why=f"say one of {', '.join(get_args(decide.Word))}")
        operation = await self._operation(_id(run), tool_or_operation)
        await resolve(self._world, operation, decision, outcome=outcome, why=why)

    # ---- stopping

    async def cancel(
        self, run: Handle[R] | str, *, who: str = "lab", why: str = _SAID, grace: timedelta = stop.GRACE
    ) -> stop.Cancelled:
        """Ask that a run ends, as `Handle.cancel`, after what the worker can do now, and let it tell the code.

        No time passes: *asked* is a clean-up that waits for something, and that `advance` lets go on or run out of its
        grace. *cancelled* if the run has ended by it, *too late* if otherwise.
        """
        await self._world.work()
        came = await stop.cancel(self._control(), DEFAULT_TENANT, _id(run), who=who, why=why, grace=grace)
        await self._world.work()
        row = await self._world.row(_id(run))
        if came != "asked" or not row.ended:
            return came
        return "cancelled" if row.status == "cancelled" else "too late"

    async def pause(self, run: Handle[R] | str, *, who: str = "lab", why: str = _SAID) -> stop.Paused:
        """Let a run stand still, as `Handle.pause`, after what the worker can do now; time passes it by."""
        await self._world.work()
        return await stop.pause(self._control(), DEFAULT_TENANT, _id(run), who=who, why=why)

    async def resume(self, run: Handle[R] | str, *, who: str = "lab", why: str = _SAID) -> None:
        """Let a paused run go on, as `Handle.resume`: it does with the next `advance` or `result()`."""
        await stop.resume(self._control(), DEFAULT_TENANT, _id(run), who=who, why=why)

    def _control(self) -> Control:
        return Control(self._world.store, self.clock, Owner("lab"))

    # ---- approving

    async def approve(
        self, tool: str, /, *, run: Handle[R] | str | None = None, who: str = "approver",
        arguments: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """Let somebody approve what a tool waits for, with other `arguments` (by name) if some are given.

        Where a quorum has to agree, call it once for each of them. Raises Refused where the tool waits for no approval,
        or for several in different runs and `run` does not say which; and as `app.approvals.approve`.
        """
        row = await self._waits_for(tool, run)
        await self._desk().approve(row.id, who=who, role=row.role, arguments=arguments, why=_SAID)

    async def reject(
        self, tool: str, /, *, run: Handle[R] | str | None = None, who: str = "approver", why: str = _SAID
    ) -> None:
        """Let somebody reject what a tool waits for: the agent is told. Raises as `approve`."""
        row = await self._waits_for(tool, run)
        await self._desk().reject(row.id, who=who, role=row.role, why=why)

    async def expire(self, tool: str, /, *, run: Handle[R] | str | None = None) -> None:
        """Let time pass until what a tool waits for has expired. Raises Refused as `approve`."""
        row = await self._waits_for(tool, run)
        await self.advance(timedelta(milliseconds=max(0, row.expires_at - self.clock.now())))

    def _desk(self) -> Approvals:
        app = self._app
        return Approvals(lambda: self._world.store, self.clock, app.registry, app.roles)

    async def _waits_for(self, tool: str, run: Handle[R] | str | None) -> ApprovalRow:
        self._known(tool)
        await self._world.work()
        found = await self._desk().list(run="" if run is None else _id(run))
        rows = [row for row in found if row.tool == tool]
        if len(rows) != 1:
            listed = "; ".join(f"{row.shown} in run {row.run}" for row in found) or "nothing at all"
            why = f"it waits for {len(rows)} approvals; what waits is: {listed}"
            raise Refused(what=f"an approval of {tool!r}", why=why)
        return rows[0]

    async def _operation(self, run: str, named: str) -> OperationRow:
        rows = await self._world.store.operations(DEFAULT_TENANT, RunId(run))
        if named not in self._app.registry.tools:
            found = [row for row in rows if row.id.startswith(named)]
        else:
            found = [row for row in rows if row.tool == named and row.status in {*OPEN, "held"}]
        if len(found) != 1:
            listed = "; ".join(f"{row.id} {row.tool} is {row.status}" for row in rows) or "none at all"
            raise Refused(what=f"resolve({named!r})", why=f"it names {len(found)} operations; run {run} has: {listed}")
        return found[0]

    def _known(self, tool: str) -> None:
        if tool not in self._app.registry.tools:
            known = ", ".join(sorted(self._app.registry.tools)) or "none"
            raise Refused(what=f"sent({tool!r})", why=f"no tool is called that; registered: {known}")

    # ---- sweeping

    async def sweep(  # noqa: PLR0913 - each is said by name
        self, agent: Agent[I, R], input: I, /, *, person: Person | None = None,
        equal: Callable[[R, R], bool] | None = None, every: int = 1, deaths: int = 1,
        together: int = 1, kinds: Sequence[FaultKind] = ALL, mail: Sequence[Mail] = (),
    ) -> SweepReport:  # fmt: skip
        """Run the agent again and again, each time with a fault at another store call, and check how it recovers.

        At each call: the worker dies before it, dies after it, is refused, and for what writes loses the answer, with
        the call done, done later, or never. Every run has a store of its own; `deps` are the same ones throughout, so
        fakes of outside services must keep operations apart by `op.key` and be able to answer `reconcile`.

        `person` answers for what cannot be looked up; without it a run that is blocked by such an operation is as it
        should be, and the report counts it as *blocked*. `equal` compares results with that of the undisturbed run
        (default `==`). `every` takes only each so-manieth call, and the first of each kind; with `deaths=2` the next
        worker dies as well; `together` points are tried at a time; `kinds` are the kinds of faults that are tried.
        `mail` is what the world outside says to each run, and when.
        Raises AssertionError that names call and fault and shows the log.
        """
        sweep = Sweep(self._elsewhere, agent, input, person=person, equal=equal, mail=mail)
        return await sweep.run(Plan(every, deaths, together, kinds))

    async def replay(
        self, agent: Agent[I, R], input: I, /, *, hash_seeds: tuple[int, ...] = (1, 2), deps: str = ""
    ) -> None:
        """Record a run up to its end, then let other processes with these hash seeds repeat it from the log.

        Each must ask for exactly what is recorded, execute nothing, and end as the first one did. The log is in a file,
        whatever the lab's store is. `deps` names a function `module:name` that gives the other process its deps
        (default: None). Raises AssertionError.
        """
        await replay_elsewhere(self._elsewhere, self._directory, agent, input, hash_seeds, deps)

    def _elsewhere(self, agent: AgentSpec, ground: Ground | None = None) -> World[D]:
        """A world of its own, in which this agent is the only one."""
        registry = Registry()
        registry.agents, registry.tools = {agent.name: agent}, self._app.registry.tools
        world = World(registry, self._deps, ground or self._ground(), secrets=self._secrets, evict=self._evict)
        world.roles, world.approver = self._app.roles, self.approver
        return world

    def _met(self) -> None:
        """Raise AssertionError for a fault of `crash` that has not happened."""
        never = [
            f"{fault}: not met; its worker {process.died or 'lives'}; calls since then: {_counted(process.counts)}"
            for process in self._disturbed
            for fault in process.unmet
        ]
        if never:
            raise AssertionError("what the test planned never happened\n" + "\n".join(never))

    async def _open(self) -> None:
        self._world.announced = True
        await self._world.open(answering=self._waiting)
        await self._world.appear()

    async def _close(self) -> None:
        await self._world.close()


@asynccontextmanager
async def lab(
    app: Outlive[D],
    *,
    deps: D,
    evict: bool = False,
    secrets: Mapping[str, str] | None = None,
    threads: bool = False,
    store: str = "sqlite",
) -> AsyncIterator[Lab[D]]:
    """A lab for an application: its agents and tools, with these `deps` in the place of what `app.deps` opens.

    With `evict` a run is unloaded from memory after every single record, as if each call took days. `secrets` come
    before those of the application. `threads` gives the store the threads that it has in production: slower, and the
    order of calls is not the same in every run. `store` is *sqlite*, or `postgresql://…` of a database in which the lab
    may make schemas: it drops them at its end.
    """
    app.registry.load()
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    quiet_about_the_dead(loop)
    with tempfile.TemporaryDirectory(prefix="outlive-lab-", ignore_cleanup_errors=True) as directory:
        here = Path(directory)
        async with _grounds(store, here, threads=threads) as ground:
            one = Lab(app, deps, here, ground, secrets=kept_secrets(app, dict(secrets or {})), evict=evict)
            try:
                await one._open()
                yield one
                one._met()
            finally:
                await one._close()
                loop.set_exception_handler(before)


@asynccontextmanager
async def _grounds(store: str, directory: Path, *, threads: bool) -> AsyncIterator[Callable[[], Ground]]:
    """What gives each world of a lab its ground. Raises Refused, SettingInvalid, StoreUnavailable."""
    if store == "sqlite":
        numbers = itertools.count()
        yield lambda: File(directory / f"{next(numbers)}.db", threads=threads)
        return
    if not store.startswith(("postgresql://", "postgres://")):
        raise Refused(what=f"lab(store={store!r})", why='say "sqlite", or postgresql://user@host/database')
    # The driver takes a while to load, and a lab on files does not need it.
    from outlive.testing.schemas import Schemas

    schemas = Schemas(store)
    try:
        yield schemas.take
    finally:
        await schemas.drop()


class _Waiting(ManualClock):
    """The clock of whoever waits for a result: waiting is what makes the worker work, and time pass."""

    def __init__(self, world: World[D]) -> None:
        super().__init__(seed="outside")
        self._world = world
        self.runs: set[str] = set()

    def boottime(self) -> float:
        return self._world.clock.boottime()

    def now(self) -> int:
        return self._world.clock.now()

    async def sleep(self, seconds: float) -> None:
        world = self._world
        known = await world.store.runs(DEFAULT_TENANT, RunFilter(limit=_MOST))
        self.runs |= {row.id for row in known if (row.fork_of or row.rolls_back) is not None and not row.ended}
        await world.work()
        rows = [await world.row(run) for run in sorted(self.runs)]
        self.runs -= {row.id for row in rows if row.ended}
        if len(rows) > len(self.runs):
            return
        if all(row.status == "blocked" for row in rows):
            raise Stuck("\n".join([await why_blocked(world, row) for row in rows]))
        step = await world.next_due()
        if step is None:
            named = ", ".join(standing(row) for row in rows)
            raise Stuck(f"nothing will become due by itself: {named}")
        world.clock.advance(timedelta(milliseconds=step))
        await world.work()


def _span(by: object, duration: Mapping[str, float]) -> timedelta:
    """How long `advance` is asked to let pass. Raises Refused."""
    if (by is not None and not isinstance(by, timedelta)) or (by is not None and duration):
        said = ", ".join([repr(by), *(f"{unit}={number}" for unit, number in duration.items())])
        raise Refused(what=f"advance({said})", why="say the unit, advance(days=3), or a timedelta alone")
    try:
        span = by if isinstance(by, timedelta) else timedelta(**duration)
    except TypeError as error:
        known = "weeks, days, hours, minutes, seconds, milliseconds"
        raise Refused(what=f"advance({', '.join(duration)}=…)", why=f"{error}; units are {known}") from None
    if span < timedelta(0):
        raise Refused(what=f"advance by {span}", why="time does not run backwards")
    return span


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {method}" for method, count in sorted(counts.items())) or "none"


def _id(run: Handle[R] | str) -> str:
    return run if isinstance(run, str) else run.id
