"""What the cases of the store suite stand on: a database of their own, a manual clock, short ways to act on a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from outlive.log.entry import Draft, Entry, verify
from outlive.log.kinds import Emitted, draft
from outlive.model.ids import DEFAULT_TENANT, OperationId, Owner, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import Authority, Head, NewRun, RunRow, Status
from outlive.store.port import Append, Change, Claim, Claimed, Look, Message, Store
from outlive.testing.clock import ManualClock

LEASE = 30_000
ANNA, BORIS = Owner("anna"), Owner("boris")

# Opens the same database each time, as another process of the same fleet would.
OpenStore = Callable[[ManualClock], Awaitable[Store]]


@dataclass
class Hold:
    """A claimed run as its owner sees it: authority, and where its log ends."""

    authority: Authority
    head: Head

    @property
    def run(self) -> RunId:
        """The run's id."""
        return self.authority.run


class Scene:
    """One case's world. `store` is open; `other()` opens the same database again."""

    def __init__(self, open_store: OpenStore, store: Store, clock: ManualClock) -> None:
        self._open_store, self.store, self.clock = open_store, store, clock
        self._stores = [store]

    @classmethod
    async def set(cls, open_store: OpenStore) -> Scene:
        """Open the database, which must be empty."""
        clock = ManualClock()
        return cls(open_store, await open_store(clock), clock)

    async def close(self) -> None:
        """Close every store of the scene."""
        for store in self._stores:
            await store.close()

    async def other(self) -> Store:
        """A second store on the same database and clock, with its own threads and connections."""
        self._stores.append(await self._open_store(ManualClock(now=self.clock.now(), seed="other")))
        return self._stores[-1]

    @property
    def now(self) -> int:
        """Milliseconds of the manual clock."""
        return self.clock.now()

    def advance(self, **by: float) -> None:
        """Let time pass for the database (`seconds=`, `hours=` …)."""
        self.clock.advance(timedelta(**by))

    async def start(
        self,
        run: str = "r",
        *,
        agent: str = "clerk",
        tenant: Tenant = DEFAULT_TENANT,
        priority: int = 0,
        deadline_ms: int | None = None,
        store: Store | None = None,
    ) -> RunRow:
        """Start a run with a small input."""
        new = replace(new_run(run, agent=agent, tenant=tenant), priority=priority, deadline_ms=deadline_ms)
        return await (store or self.store).start(new, now=self.now)

    async def claims(
        self, owner: Owner = ANNA, *, store: Store | None = None, claim: Claim | None = None
    ) -> list[Claimed]:
        """Claim all that can be had, of agent *clerk* in build *b1* unless `claim` says otherwise."""
        return await (store or self.store).claim(claim or wish(owner), now=self.now)

    async def look(
        self, owner: Owner = ANNA, *, claim: Claim | None = None, most: int = 100, sign: bool = False
    ) -> Look:
        """What a worker sees that would send this claim; without one, of agent *clerk* in build *b1*."""
        return await self.store.look(claim or wish(owner), most=most, sign=sign, now=self.now)

    async def hold(
        self, run: str = "r", *, owner: Owner = ANNA, priority: int = 0, deadline_ms: int | None = None
    ) -> Hold:
        """Start a run and claim it; no other run may be claimable."""
        await self.start(run, priority=priority, deadline_ms=deadline_ms)
        [claimed] = await self.claims(owner)
        return held(claimed)

    async def append(
        self, hold: Hold, *drafts: Draft, change: Change | None = None, store: Store | None = None
    ) -> None:
        """Append as the owner, and follow the head."""
        hold.head = await (store or self.store).append(Append(hold.authority, hold.head, drafts, change), now=self.now)

    async def act(self, hold: Hold, append: Append) -> None:
        """Store any append and follow the head."""
        hold.head = await self.store.append(append, now=self.now)

    async def become(self, hold: Hold, status: Status, *, reason: str = "", wake_at: int | None = None) -> None:
        """Change the run's status with an entry, which ends the authority."""
        await self.append(hold, event(), change=Change(status, reason=reason, wake_at=wake_at))

    async def post(self, run: str = "r", *, key: str = "k1", store: Store | None = None) -> bool:
        """Send a message to a run."""
        return await (store or self.store).post(
            Message(DEFAULT_TENANT, RunId(run), "news", key, '{"n":1}'), now=self.now
        )

    async def row(self, run: str = "r", tenant: Tenant = DEFAULT_TENANT) -> RunRow:
        """The row of a run that exists."""
        row = await self.store.run(tenant, RunId(run))
        assert row is not None, f"run {run} has gone"
        return row

    async def log(self, run: str = "r", tenant: Tenant = DEFAULT_TENANT) -> list[Entry]:
        """The whole log, with its chain verified against the head of the row."""
        entries = await self.store.entries(tenant, RunId(run))
        head = verify(await self.store.key(tenant), run, entries)
        row = await self.row(run, tenant)
        assert head == row.head, f"run {run}: the log ends at {head.seq}, its row says {row.head.seq}"
        return entries


def new_run(run: str = "r", *, agent: str = "clerk", tenant: Tenant = DEFAULT_TENANT) -> NewRun:
    """A run with a small input."""
    return NewRun(tenant, RunId(run), agent, "1", '{"invoice":1}', f"digest of {run}")


def held(claimed: Claimed) -> Hold:
    """What the owner of a claim needs."""
    return Hold(claimed.authority, claimed.row.head)


def event(name: str = "said", *, payload: str | None = None, key: str = "") -> Draft:
    """A small entry."""
    return draft(Emitted(name=name), at=0, key=key, payload=payload)


def wish(owner: Owner = ANNA, *, limit: int = 100, code: str = "b1") -> Claim:
    """A claim for agent *clerk*."""
    return Claim(owner, {"clerk": code}, limit, LEASE)


def operation(hold: Hold, number: int = 1) -> OperationRow:
    """A record of an operation that may have been sent."""
    return OperationRow(
        tenant=hold.authority.tenant,
        run=hold.run,
        id=OperationId(f"{hold.run}/op{number}"),
        call=f"root/charge/{number}",
        tool="charge",
        effect="external",
        key=f"key{number}",
        digest="d",
        arguments='{"cents":4200}',
        status="pending",
        attempt=1,
        epoch=hold.authority.epoch,
        first_sent_at=7,
        updated_at=7,
    )


async def together(*calls: Awaitable[object]) -> list[object]:
    """Run calls at the same time; returns for each its result or its error."""

    async def guarded(call: Awaitable[object]) -> object:
        try:
            return await call
        except Exception as error:  # noqa: BLE001 - the case looks at every error
            return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(guarded(call)) for call in calls]
    return [task.result() for task in tasks]


class Raises:
    """`async with Raises(LeaseLost):` fails unless that error is raised; it is kept in `error`."""

    def __init__(self, kind: type[Exception]) -> None:
        self._kind = kind
        self.error: BaseException | None = None

    async def __aenter__(self) -> Raises:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        assert kind is not None, f"{self._kind.__name__} was expected, nothing was raised"
        self.error = error
        return issubclass(kind, self._kind)
