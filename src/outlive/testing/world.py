"""A store of its own, a clock that only we move, and the worker processes that use them one after another.

Nothing waits in real time: a worker works until there is nothing to claim, then the clock jumps to the next thing that
becomes due. What a worker really executed, and what was really stored, is written down here as it happens, so that it
can be held against the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Literal

from typing_extensions import TypeVar

from outlive.app import decide
from outlive.app.approvals import Approvals
from outlive.app.compose import secrets_of, worker_of
from outlive.app.inspect import lines
from outlive.app.outlive import Outlive
from outlive.app.registry import Registry
from outlive.app.settings import Settings
from outlive.engine.approval import Roles
from outlive.engine.control import Control
from outlive.engine.definition import ToolSpec
from outlive.engine.worker import Worker
from outlive.log import kinds
from outlive.model.approval import ApprovalRow
from outlive.model.clock import Clock
from outlive.model.errors import StoreError
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.model.operation import IN_DOUBT, OperationRow
from outlive.model.run import RunFilter, RunRow
from outlive.secret.port import Secrets
from outlive.store.port import Append, Store, WorkerRow
from outlive.testing.clock import ManualClock
from outlive.testing.faults import Died, Fault, FaultyStore
from outlive.testing.ground import Ground
from outlive.testing.post import Post

D = TypeVar("D", default=None)

_LEASE = timedelta(seconds=30)
_GRACE_MS = int(Settings().grace.total_seconds() * 1000)
# A run that does not end in so many jumps of the clock goes round in circles.
_MOST_JUMPS = 10_000


class Stuck(AssertionError):
    """A run cannot go on by itself: it is blocked, or nothing that it waits for will ever come."""


class JumpingClock(ManualClock):
    """A clock on which a sleep takes no time: it jumps to its end."""

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once, and other tasks have their turn."""
        self.advance(timedelta(seconds=max(0.0, seconds)))
        await super().sleep(0)


class KeptSecrets:
    """The application's secrets, and first of all those of the test. Remembers what was handed out."""

    def __init__(self, planted: dict[str, str], others: Secrets) -> None:
        self._planted, self._others = planted, others
        self.handed_out: set[str] = set(planted.values())

    def get(self, name: str) -> str | None:
        """See the port."""
        value = self._planted.get(name) or self._others.get(name)
        if value:
            self.handed_out.add(value)
        return value

    def names(self) -> list[str]:
        return []

    def describe(self, name: str) -> str:
        """See the port."""
        return f"secrets={{…}} of the lab, {self._others.describe(name)}"


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What really happened, in order: a tool's body began (*sent*), or an entry of this kind was stored."""

    kind: Literal["sent", "intent", "outcome", "read", "done", "turn"]
    id: str = ""
    tool: str = ""
    effect: str = ""
    arguments: dict[str, object] = field(default_factory=dict)


# What those who can approve something say to it; None: nothing.
Approver = Callable[[ApprovalRow], Literal["approve", "reject"] | None]


class World(Generic[D]):
    """One store and everybody who uses it. `client` is the application as the world outside would open it."""

    def __init__(
        self, registry: Registry, deps: D, ground: Ground, *, secrets: KeptSecrets, evict: bool = False,
        now: int | None = None,
    ) -> None:  # fmt: skip
        self.registry, self.deps, self.ground = registry, deps, ground
        self.clock = JumpingClock() if now is None else JumpingClock(now=now)
        self.secrets = secrets
        self.settings = Settings(lease=_LEASE, tenant=DEFAULT_TENANT)
        self.witnessed: list[Witnessed] = []
        self.deaths = 0
        self.next_faults: list[tuple[Fault, ...]] = []
        self._complaints = Complaints()
        self._evict = evict
        self.post: Post | None = None
        self.roles: Roles | None = None
        self.approver: Approver | None = None
        self.announced = False
        """Whether its workers make themselves known: who asks for a run's end takes them to be there then."""
        self._known: Worker | None = None
        self._client: Outlive[D] | None = None
        self._process: tuple[FaultyStore, Worker] | None = None

    # ---- opening and closing

    async def open(self, *faults: Fault, answering: Clock | None = None) -> None:
        """Open the store; `faults` are those of the first worker, `answering` is the clock of whoever waits outside."""
        client: Outlive[D] = Outlive(clock=answering or self.clock)
        client.registry = self.registry
        client.use(await self.ground.open(self.clock))
        self._client = client
        logging.getLogger("outlive.worker").addHandler(self._complaints)
        self.serve(*faults)

    async def close(self) -> None:
        """Close the store."""
        logging.getLogger("outlive.worker").removeHandler(self._complaints)
        self._process = None
        await self.ground.close()

    @property
    def client(self) -> Outlive[D]:
        """For `start` and `handle`."""
        assert self._client is not None, "the lab is closed"
        return self._client

    @property
    def store(self) -> Store:
        """The store without faults."""
        return self.client.opened

    @property
    def process(self) -> FaultyStore:
        """The store as the worker of now sees it."""
        assert self._process is not None, "the lab is closed"
        return self._process[0]

    def serve(self, *faults: Fault) -> None:
        """Begin a new worker process. The one before is gone: it did not take leave."""
        store = FaultyStore(self.store, faults, on_commit=self._committed)

        def on_send(tool: ToolSpec, id: str, arguments: dict[str, object]) -> None:
            if store.died:
                raise Died(store.died)
            self.witnessed.append(Witnessed("sent", id, tool.name, tool.policy.effect, dict(arguments)))

        worker = worker_of(
            self.registry, store, self.settings, self.clock, self.deps, secrets=self.secrets, on_send=on_send,
            wake_in_place=False, evict=self._evict, roles=self.roles,
        )  # fmt: skip
        self._process = store, worker

        async def before_call() -> None:
            if self.post is not None:
                await self.post.by_call(worker)

        store.before_call = before_call

    async def appear(self) -> None:
        """Make the worker of now known, if that is wanted and it is not."""
        worker = self._process[1] if self._process is not None else None
        if not self.announced or worker is None or worker is self._known:
            return
        self._known, serves = worker, {name: worker.kit.code for name in worker.agents}
        versions = {name: agent.version for name, agent in worker.agents.items()}
        now = self.clock.now()
        await self.store.announce(WorkerRow(worker.owner, 0, serves, now, now, versions), now=now)

    # ---- working

    async def work(self) -> None:
        """Let the worker claim and drive until nothing can be claimed. One that dies is followed by another."""
        while True:
            store, worker = self._process or (None, None)
            assert store is not None and worker is not None, "the lab is closed"
            found = 0
            await self.appear()
            if self.post is not None:
                await self.post.by_time()
            try:
                found = await worker.claim()
            except Died:
                pass
            except StoreError:
                await self.clock.sleep(0.5)
                continue
            await worker.idle()
            if self._complaints.said:
                raise AssertionError("a worker could not drive a run: " + "\n".join(self._complaints.said))
            if store.died:
                self.deaths += 1
                self.serve(*(self.next_faults.pop(0) if self.next_faults else ()))
            elif not found:
                return

    async def finish(self, run: RunId, *, until_death: bool = False) -> RunRow:
        """Work and let time pass until the run has ended or is blocked, or a worker died. Raises Stuck."""
        for _ in range(_MOST_JUMPS):
            await self.work()
            row = await self.row(run)
            if row.ended or row.status == "blocked" or (until_death and self.deaths):
                return row
            if await self._decide():
                continue
            step = await self.next_due()
            if step is None and self.post is not None and await self.post.rest():
                continue
            if step is None:
                raise Stuck(f"run {standing(row)} and nothing will become due")
            self.clock.advance(timedelta(milliseconds=step))
        raise Stuck(f"run {run} has not ended after {_MOST_JUMPS} jumps of the clock")

    async def _decide(self) -> bool:
        """Let the approver decide what waits; whether anything was decided."""
        decided = False
        desk = Approvals(lambda: self.store, self.clock, self.registry, self.roles)
        for row in await desk.list() if self.approver is not None else ():
            word = self.approver(row) if self.approver is not None and self.clock.now() < row.expires_at else None
            for number in range(row.quorum if word == "approve" else word == "reject"):
                decide = desk.approve if word == "approve" else desk.reject
                await decide(row.id, who=f"approver {number + 1}", role=row.role, why="the test says so")
                decided = True
        return decided

    async def next_due(self) -> int | None:
        """Milliseconds until something becomes due by itself, None if nothing will."""
        now = self.clock.now()
        which = RunFilter(statuses=("ready", "running", "waiting", "blocked"), limit=10_000)
        due: list[int] = []
        for row in await self.store.runs(DEFAULT_TENANT, which):
            due += [at for at in (row.deadline_at, row.wake_at if row.status == "waiting" else None) if at is not None]
            due += [] if row.deadline_at is None else [row.deadline_at + _GRACE_MS]
            if row.status == "running":
                # Its worker has died: the next one watches the lease once in each renewal interval.
                due.append(now + int(_LEASE.total_seconds() * 1000) // 3)
        if self.post is not None and (said_at := self.post.next_due()) is not None:
            due.append(said_at)
        later = [at - now for at in due if at > now]
        return min(later, default=None)

    async def row(self, run: str) -> RunRow:
        """The row of a run that exists."""
        row = await self.store.run(DEFAULT_TENANT, RunId(run))
        assert row is not None, f"no run is called {run!r} in this lab"
        return row

    async def lines(self, run: str) -> list[str]:
        """The log as people read it."""
        return [
            f"{one.seq:>4} e{one.epoch} {one.kind:<15} {one.scope + ' ' if one.scope else ''}{one.text}"
            async for one in lines(self.store, DEFAULT_TENANT, run)
        ]

    # ---- what is witnessed

    def _committed(self, append: Append) -> None:
        for draft in append.drafts:
            body = json.loads(draft.body)
            match draft.kind:
                case kinds.Intent.KIND:
                    self.witnessed.append(Witnessed("intent", body["operation"], body["name"], body["effect"]))
                case kinds.Outcome.KIND:
                    self.witnessed.append(Witnessed("outcome", body["operation"]))
                case kinds.Done.KIND:
                    self.witnessed.append(Witnessed("done", body["operation"], body["name"]))
                case kinds.StepDone.KIND if body.get("tool"):
                    self.witnessed.append(Witnessed("read", draft.key, body["name"]))
                case kinds.Turn.KIND:
                    self.witnessed.append(Witnessed("turn"))
                case _:
                    pass


def standing(row: RunRow) -> str:
    """How a run is that goes on by nothing that is known."""
    paused = "paused, and " if row.paused_at is not None else ""
    return f"{row.id} is {paused}{row.status} ({row.reason or 'no reason'})"


async def why_blocked(world: World[D], row: RunRow) -> str:
    """What a person has to do so that a blocked run goes on."""
    said = f"run {row.id} is blocked: {row.reason}: {row.detail}"
    for one in await world.store.operations(DEFAULT_TENANT, row.id):
        if one.status in IN_DOUBT:
            said += (
                f"\n  {one.tool}({one.arguments}) is {one.status}; say what became of it with "
                f"`await t.resolve({row.id!r}, {one.tool!r}, 'happened', outcome=…)`, or 'did-not-happen', or 'abandon'"
            )
    return said


async def resolve(
    world: World[D], operation: OperationRow, decision: decide.Word, *, outcome: object, why: str
) -> None:
    """Decide about an operation in doubt, as `outlive resolve` does."""
    registry, text = world.registry, None
    if decision == "happened":
        tool = registry.tool(operation.tool)
        assert tool is not None, f"no tool {operation.tool}"
        text = tool.signature.result.encode(outcome, where=f"the outcome of {tool.name}")
    control = Control(world.store, world.clock, Owner("lab"))
    await decide.resolve(
        control, registry, DEFAULT_TENANT, operation.run, operation.id, decision, who="lab", why=why, outcome=text
    )


class Complaints(logging.Handler):
    """Collects what a worker failed at, which it logs and survives: in a test that is a failure, not a line."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, with its traceback."""
        if record.exc_info:
            self.said.append(logging.Formatter().format(record))


def quiet_about_the_dead(loop: asyncio.AbstractEventLoop) -> None:
    """The tasks of a process that has died are nobody's to await: their `Died` is not worth a word."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        if not isinstance(context.get("exception"), Died):
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def kept_secrets(app: Outlive[D], planted: dict[str, str]) -> KeptSecrets:
    """The secrets of the test before those of the application."""
    return KeptSecrets(planted, app.secrets or secrets_of(Settings()))
