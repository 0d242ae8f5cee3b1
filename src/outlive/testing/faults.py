"""A store that fails on demand, at an exact call: what a crash, a refusal or a lost connection does to its caller.

It wraps any store and delegates every method of the port. A worker on it whose process has *died* gets `Died` from
every call from then on, so that nothing it does later can be recorded.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from outlive.log.entry import Draft, Entry
from outlive.model.approval import ApprovalFilter, ApprovalRow, ApprovalStatus, Reading, Vote
from outlive.model.business import KeyFilter, KeyMark, KeyRow
from outlive.model.errors import CommitUnknown, Refused, StoreError, StoreUnavailable
from outlive.model.ids import ApprovalId, OperationId, Owner, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import Authority, Head, History, NewRun, RunFilter, RunRow, Status
from outlive.store.port import (
    Append,
    Claim,
    Claimed,
    Divergence,
    Look,
    Message,
    Renewed,
    Stalled,
    Store,
    WorkerRow,
)
from outlive.store.within import Transaction

T = TypeVar("T")

FaultKind = Literal["before", "die", "after", "lost"]

# What writes, and so may have an unknown outcome.
WRITES = frozenset(
    (
        "append",
        "transaction.append",
        "claim",
        "again",
        "seize",
        "post",
        "start",
        "fork",
        "announce",
        "leave",
        "renew",
        "vote",
        "end_approval",
        "await_key",
    )  # fmt: skip
)


# What a call can be of: the methods of the port, and those of a transaction.
METHODS = frozenset(("transaction.execute", "transaction.alike", "transaction.take_key", "transaction.append")) | {
    name
    for part in Store.__mro__
    for name, found in vars(part).items()
    if not name.startswith("_") and inspect.isfunction(found)
}


class Died(BaseException):
    """The process is gone: no code of it may do anything any more."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at call number `at` (from 1) of `method`, or of all methods together where it is empty.

    *before*: StoreUnavailable, nothing is written, the process lives on. *die*: the process dies before the call.
    *after*: the call is done, then the process dies. *lost*: CommitUnknown; the call is done after `later` more calls
    (0: at once), or never for None. Raises Refused for what can never happen.
    """

    kind: FaultKind
    at: int
    method: str = ""
    later: int | None = 0

    def __post_init__(self) -> None:
        if why := self._impossible():
            asked = f"Fault({self.kind!r}, {self.at!r}, {self.method!r}, later={self.later!r})"
            raise Refused(what=asked, why=why)

    def _impossible(self) -> str:
        """Why this can never happen; empty if it can."""
        if self.kind not in get_args(FaultKind):
            return f"the kinds are {', '.join(get_args(FaultKind))}"
        if self.method and self.method not in METHODS:
            return f"the store has no method of that name; it has {', '.join(sorted(METHODS))}"
        if self.at < 1:
            return "calls are counted from 1"
        if self.kind == "lost" and self.method and self.method not in WRITES:
            return f"only the answer to a write can be lost: {', '.join(sorted(WRITES))}"
        if self.kind != "lost" and self.later != 0:
            return "`later` is for a lost answer"
        return "`later` counts calls from then on: 0 or more" if (self.later or 0) < 0 else ""

    def __str__(self) -> str:
        where = f"call {self.at}" + (f" of {self.method}" if self.method else "")
        match self.kind:
            case "before":
                return f"refused at {where}, nothing written"
            case "die":
                return f"died before {where}"
            case "after":
                return f"died after {where}"
            case _:
                done = "not done" if self.later is None else f"done {self.later} calls later" if self.later else "done"
                return f"answer lost at {where}, which was {done}"


@dataclass(frozen=True, slots=True)
class Made:
    """One call that was made: its method and, for an append, what was to be written."""

    method: str
    append: Append | None = None


class FaultyStore:
    """Any store, with faults. Calls are counted in `made` in the order in which they were made.

    `on_commit` is told of each append that was really stored, also of those whose caller never learns of it. `met` are
    the faults that have happened, `unmet` those that have not.
    """

    def __init__(
        self, store: Store, faults: Sequence[Fault] = (), *, on_commit: Callable[[Append], None] | None = None
    ) -> None:
        self.name = store.name
        self.made: list[Made] = []
        self.counts: Counter[str] = Counter()
        self.died = ""
        self.met: list[Fault] = []
        self.unmet = list(faults)
        self._store = store
        self._on_commit = on_commit or (lambda _: None)
        self.before_call: Callable[[], Awaitable[None]] | None = None
        """What happens elsewhere before each call."""
        self._late: list[tuple[int, Callable[[], Awaitable[object]]]] = []

    def inject(self, *faults: Fault) -> None:
        """More faults; calls are counted from now on."""
        self.made.clear()
        self.counts.clear()
        self.unmet += faults

    async def deliver(self, *, everything: bool = True) -> list[str]:
        """Do what was lost and is due now, or all of it. Returns the answers: `stored`, or the name of an error."""
        due = [one for one in self._late if everything or one[0] <= len(self.made)]
        self._late = [one for one in self._late if one not in due]
        answers = []
        for _, do in due:
            try:
                await do()
                answers.append("stored")
            except StoreError as error:
                answers.append(type(error).__name__)
        return answers

    # ---- how a call fails

    def _enter(self, method: str, append: Append | None = None) -> Fault | None:
        if self.died:
            raise Died(self.died)
        self.made.append(Made(method, append))
        self.counts[method] += 1
        for fault in self.unmet:
            count = self.counts[method] if fault.method == method else len(self.made)
            if fault.method in ("", method) and fault.at == count:
                self.unmet.remove(fault)
                self.met.append(fault)
                self._fail_early(fault)
                return fault
        return None

    def _fail_early(self, fault: Fault) -> None:
        if fault.kind == "before":
            raise StoreUnavailable(store=self.name, why="a fault of the test")
        if fault.kind == "die":
            self._die(fault)

    def _leave(self, fault: Fault | None) -> None:
        if fault is not None and fault.kind == "after" and not self.died:
            self._die(fault)
        if self.died:
            raise Died(self.died)
        if fault is not None and fault.kind == "lost":
            raise CommitUnknown(store=self.name)

    def _die(self, fault: Fault) -> None:
        self.died = str(fault)
        raise Died(self.died)

    async def _call(self, method: str, do: Callable[[], Awaitable[T]], append: Append | None = None) -> T:
        if self.before_call is not None and not self.died:
            await self.before_call()
        fault = self._enter(method, append)
        if self._late:
            await self.deliver(everything=False)
        if fault is not None and fault.kind == "lost" and fault.later != 0:
            if fault.later is not None:
                self._late.append((len(self.made) + fault.later, do))
            raise CommitUnknown(store=self.name)
        result = await do()
        self._leave(fault)
        return result

    async def _stored(self, append: Append, do: Callable[[], Awaitable[Head]]) -> Head:
        head = await do()
        self._on_commit(append)
        return head

    # ---- the log

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        """See the port."""
        return await self._call(
            "append", lambda: self._stored(append, lambda: self._store.append(append, now=now)), append
        )

    async def window(self, tenant: Tenant, run: RunId) -> list[Entry]:
        """See the port."""
        return await self._call("window", lambda: self._store.window(tenant, run))

    async def entries(self, tenant: Tenant, run: RunId, *, after: int = -1, limit: int = 1000) -> list[Entry]:
        """See the port."""
        return await self._call("entries", lambda: self._store.entries(tenant, run, after=after, limit=limit))

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """See the port."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Transaction]:
        fault = self._enter("transaction")
        async with self._store.transaction() as inner:
            self._leave(fault)
            yield _FaultyTransaction(self, inner)

    # ---- the queue, leases and workers

    async def start(self, run: NewRun, *, now: int | None = None, within: object = None) -> RunRow:
        """See the port."""
        return await self._call("start", lambda: self._store.start(run, now=now, within=within))

    async def fork(self, run: NewRun, history: History, first: Draft, *, now: int | None = None) -> RunRow:
        """See the port."""
        return await self._call("fork", lambda: self._store.fork(run, history, first, now=now))

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[Claimed]:
        """See the port."""
        return await self._call("claim", lambda: self._store.claim(claim, now=now))

    async def again(
        self, authority: Authority, *, owner: Owner, lease_ms: int, token: str | None = None, now: int | None = None
    ) -> Claimed | None:
        """See the port."""
        return await self._call(
            "again", lambda: self._store.again(authority, owner=owner, lease_ms=lease_ms, token=token, now=now)
        )

    async def seize(
        self,
        tenant: Tenant,
        run: RunId,
        *,
        owner: Owner,
        lease_ms: int,
        only: frozenset[Status] | None = None,
        unless_live: bool = False,
        now: int | None = None,
    ) -> Claimed | None:
        """See the port."""
        return await self._call(
            "seize",
            lambda: self._store.seize(
                tenant, run, owner=owner, lease_ms=lease_ms, only=only, unless_live=unless_live, now=now
            ),
        )

    def renew(
        self, owner: Owner, held: Sequence[Authority], lease_ms: int, *, stalled: Stalled | None = None,
        now: int | None = None,
    ) -> Renewed:  # fmt: skip
        """See the port. A late delivery is not to be had here: there is nothing that a later renewal would not do."""
        fault = self._enter("renew")
        if fault is not None and fault.kind == "lost" and fault.later != 0:
            raise CommitUnknown(store=self.name)
        renewed = self._store.renew(owner, held, lease_ms, stalled=stalled, now=now)
        self._leave(fault)
        return renewed

    async def look(self, claim: Claim, *, sign: bool = False, most: int = 100, now: int | None = None) -> Look:
        """See the port."""
        return await self._call("look", lambda: self._store.look(claim, sign=sign, most=most, now=now))

    def hints(self) -> AsyncGenerator[bool]:
        """See the port. A worker that has died hears nothing more."""
        fault = self._enter("hints")
        hints = self._store.hints()
        self._leave(fault)
        return hints

    async def announce(self, worker: WorkerRow, *, now: int | None = None) -> None:
        """See the port."""
        return await self._call("announce", lambda: self._store.announce(worker, now=now))

    async def leave(self, owner: Owner) -> None:
        """See the port."""
        return await self._call("leave", lambda: self._store.leave(owner))

    async def workers(self, *, within_ms: int, now: int | None = None) -> list[WorkerRow]:
        """See the port."""
        return await self._call("workers", lambda: self._store.workers(within_ms=within_ms, now=now))

    # ---- records

    async def now(self) -> int:
        """See the port."""
        return await self._call("now", self._store.now)

    async def key(self, tenant: Tenant, *, within: object = None) -> bytes:
        """See the port."""
        return await self._call("key", lambda: self._store.key(tenant, within=within))

    async def run(self, tenant: Tenant, run: RunId) -> RunRow | None:
        """See the port."""
        return await self._call("run", lambda: self._store.run(tenant, run))

    async def runs(self, tenant: Tenant, which: RunFilter) -> list[RunRow]:
        """See the port."""
        return await self._call("runs", lambda: self._store.runs(tenant, which))

    async def operations(self, tenant: Tenant, run: RunId) -> list[OperationRow]:
        """See the port."""
        return await self._call("operations", lambda: self._store.operations(tenant, run))

    async def operation(self, tenant: Tenant, operation: OperationId) -> OperationRow | None:
        """See the port."""
        return await self._call("operation", lambda: self._store.operation(tenant, operation))

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        """See the port."""
        return await self._call("alike", lambda: self._store.alike(tenant, origin, tool=tool, digest=digest, key=key))

    async def rollbacks(self, tenant: Tenant, run: RunId) -> list[RunRow]:
        """See the port."""
        return await self._call("rollbacks", lambda: self._store.rollbacks(tenant, run))

    async def post(self, message: Message, *, now: int | None = None) -> bool:
        """See the port."""
        return await self._call("post", lambda: self._store.post(message, now=now))

    async def unread(self, tenant: Tenant, run: RunId) -> list[Message]:
        """See the port."""
        return await self._call("unread", lambda: self._store.unread(tenant, run))

    async def divergences(self, tenant: Tenant, run: RunId) -> list[Divergence]:
        """See the port."""
        return await self._call("divergences", lambda: self._store.divergences(tenant, run))

    async def durability(self) -> list[str]:
        """See the port."""
        return await self._call("durability", self._store.durability)

    # ---- approvals

    async def approval(self, tenant: Tenant, id: ApprovalId) -> Reading | None:
        """See the port."""
        return await self._call("approval", lambda: self._store.approval(tenant, id))

    async def approvals(self, tenant: Tenant, which: ApprovalFilter) -> list[ApprovalRow]:
        """See the port."""
        return await self._call("approvals", lambda: self._store.approvals(tenant, which))

    async def vote(self, tenant: Tenant, id: ApprovalId, vote: Vote, *, now: int | None = None) -> ApprovalRow:
        """See the port."""
        return await self._call("vote", lambda: self._store.vote(tenant, id, vote, now=now))

    async def end_approval(
        self, tenant: Tenant, id: ApprovalId, status: ApprovalStatus, why: str, *, now: int | None = None
    ) -> ApprovalRow | None:
        """See the port."""
        return await self._call("end_approval", lambda: self._store.end_approval(tenant, id, status, why, now=now))

    # ---- business keys

    async def business_key(self, tenant: Tenant, key: str) -> KeyRow | None:
        """See the port."""
        return await self._call("business_key", lambda: self._store.business_key(tenant, key))

    async def business_keys(self, tenant: Tenant, which: KeyFilter) -> list[KeyRow]:
        """See the port."""
        return await self._call("business_keys", lambda: self._store.business_keys(tenant, which))

    async def await_key(self, tenant: Tenant, key: str, run: RunId, *, changes: int, now: int | None = None) -> bool:
        """See the port."""
        return await self._call(
            "await_key", lambda: self._store.await_key(tenant, key, run, changes=changes, now=now)
        )  # fmt: skip

    async def open(self) -> None:
        """See the port."""
        return await self._call("open", self._store.open)

    async def close(self) -> None:
        """See the port."""
        return await self._call("close", self._store.close)


class _FaultyTransaction:
    """A transaction on a store with faults; when the process dies, leaving it rolls back."""

    def __init__(self, store: FaultyStore, inner: Transaction) -> None:
        self._of, self._inner = store, inner

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return await self._of._call("transaction.execute", lambda: self._inner.execute(sql, parameters))

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        return await self._of._call(
            "transaction.alike", lambda: self._inner.alike(tenant, origin, tool=tool, digest=digest, key=key)
        )

    async def take_key(self, tenant: Tenant, mark: KeyMark, *, now: int | None = None) -> KeyRow | None:
        return await self._of._call("transaction.take_key", lambda: self._inner.take_key(tenant, mark, now=now))

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        try:
            return await self._of._call(
                "transaction.append",
                lambda: self._of._stored(append, lambda: self._inner.append(append, now=now)),
                append,
            )
        except CommitUnknown:
            # Committed or not, it is over: the connection is gone. One without authority ends it with nothing stored.
            nobody = replace(append, authority=replace(append.authority, token=""))
            with suppress(StoreError, Refused):
                await self._inner.append(nobody, now=now)
            raise
