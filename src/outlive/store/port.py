"""The store port: five protocols that every database adapter meets, held equal by `outlive.testing.store_suite`.

What stays true whatever the adapter:
- Every write that belongs to a run names its full authority (epoch *and* token) and, for appends, where the log ends.
  The store compares for equality; it never judges a lease's expiry on a write.
- Time is integer milliseconds of the database's clock; each method takes a nullable `now` (None in production).
- No driver exception leaves an adapter: only errors of `outlive.model.errors`. An error other than `CommitUnknown`
  means that nothing was written.
- Keys of tenants are made at first use and never change.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from outlive.log.entry import Draft, Entry
from outlive.model.approval import ApprovalRow, Use
from outlive.model.business import KeyMark
from outlive.model.ids import OperationId, Owner, RunId, Tenant
from outlive.model.notice import Notice
from outlive.model.operation import OperationRow
from outlive.model.run import Authority, Head, History, NewRun, RunFilter, RunRow, Status
from outlive.store.approving import Approvals
from outlive.store.keyed import Keys
from outlive.store.others import Other

if TYPE_CHECKING:
    from outlive.store.within import Transaction


@dataclass(frozen=True, slots=True)
class Change:
    """What an append does to its run's row. It ends the authority in the same commit: lease and token are gone.

    `running` is Refused: only a claim leads there. `wake_at` counts for `waiting` alone. An ended run keeps its status:
    another one is WrongState, and the one that it has only ends the authority of a `seize`, so that reason, detail and
    the time of its end stay as they were. `paused` says that from now on nobody claims the run, or that one may again;
    None leaves that as it is.
    """

    status: Status
    reason: str = ""
    detail: str = ""
    wake_at: int | None = None
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """The fact that one version of the code cannot continue the run.

    `code` names the build, not the agent's version.
    """

    code: str
    report: str


@dataclass(frozen=True, slots=True)
class Append:
    """One commit to one log. All of it is stored or none.

    `progress` says that a call got its outcome, which resets the count of lapsed leases. `turn` says that the first of
    `drafts` begins a new window: the first such entry of a run also ends its prologue. `taken` are inbox rows that
    these entries move into the log. `forgive` drops the run's divergences and lapses (a person asked to try again).
    `notices` are stored as notifications, each of the entry at its place among `drafts`. `asks` are approvals that are
    asked for with these entries. `use` is an approval that they depend on: unless it is given and good at this moment,
    nothing is stored. An append that ends the run withdraws what approvals it has open. `operations` replace the
    records of this run, but for what says that one was compensated; `compensations` change those of the run that this
    one rolls back. `take` is a business key that they depend on: unless it is nobody's, free, or open for this very
    operation, nothing is stored. `marks` say what became of business keys, where they are those operations' still or
    nobody's; whoever waits for one that changes is woken.
    """

    authority: Authority
    head: Head
    drafts: tuple[Draft, ...]
    change: Change | None = None
    operations: tuple[OperationRow, ...] = ()
    taken: tuple[int, ...] = ()
    divergence: Divergence | None = None
    progress: bool = False
    turn: bool = False
    forgive: bool = False
    notices: tuple[Notice, ...] = ()
    asks: tuple[ApprovalRow, ...] = ()
    use: Use | None = None
    take: KeyMark | None = None
    marks: tuple[KeyMark, ...] = ()

    @property
    def compensations(self) -> tuple[OperationRow, ...]:
        """Records that say that an operation of another run is undone: that one is *compensated* in the same commit."""
        return tuple(row for row in self.operations if row.compensates and row.status == "succeeded")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a worker asks for.

    `serves` maps an agent's name to the build of its code, `versions` to the agent's version: a pinned run is taken
    only by a worker that serves the version it is pinned to. `watched` are `(tenant, run, epoch)` whose lease the
    worker has itself seen unrenewed for a whole renewal interval; only those are taken over, and only once their lease
    has expired by the database's clock. `why` of the claim entry is decided by the store: start, resume or takeover.
    `quick` is a claim of what somebody has just asked for, runs that are `ready` and runs that were sent something, by
    a worker with more room than it could fill: whatever else is due, and may be more urgent, it claims next. A run is
    claimed until `grace_ms` after its deadline, so that it can clean up. `turn` is another number with each claim:
    which of the ways to be claimable begins, where not all that is equally urgent can be taken. What `others` could
    drive is left to them.
    """

    owner: Owner
    serves: Mapping[str, str]
    limit: int
    lease_ms: int
    watched: frozenset[tuple[Tenant, RunId, int]] = frozenset()
    queues: tuple[str, ...] = ("default",)
    tenants: tuple[Tenant, ...] | None = None
    quick: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    grace_ms: int = 0
    turn: int = 0
    others: frozenset[Other] = frozenset()


ClaimWhy = Literal["start", "resume", "takeover", "again", "control"]


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that is now ours: its row after the claim, where its log ends (after the claim entry), and the time.

    `database` is as in `Renewed`.
    """

    authority: Authority
    row: RunRow
    why: ClaimWhy
    now: int
    database: str = ""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A running run whose renewal is overdue by its own interval (a third of its lease)."""

    tenant: Tenant
    run: RunId
    epoch: int
    renewed_at: int
    lease_ms: int

    @property
    def expires_at(self) -> int:
        """When its lease has expired by the database's clock, unless it is renewed."""
        return self.renewed_at + self.lease_ms


@dataclass(frozen=True, slots=True)
class Renewed:
    """The answer to a renewal.

    The time, which of the authorities are still ours, and which runs have unread inbox rows. `database` says which
    database has answered; another one than before may not have all that was acknowledged. Empty: it cannot be said.
    """

    now: int
    kept: frozenset[Authority]
    unread: frozenset[tuple[Tenant, RunId]]
    database: str = ""


@dataclass(frozen=True, slots=True)
class Attention:
    """A run that needs a control claim.

    Its deadline has passed and nobody could clean up (any more); or something has arrived that nobody will claim it
    for: it has ended, or is blocked or paused and was asked to end or to be paused (*late*); or for two
    leases of the worker that asks no worker has been there that could take it, and it diverged and was left ready for
    other builds (*stranded*), or was asked to end or to be paused, or is being cancelled (*unserved*: it is ready or
    waiting).
    """

    tenant: Tenant
    run: RunId
    why: Literal["deadline", "late", "stranded", "unserved"]


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to do for a worker, and when it should look again. All of one moment, `now`.

    `claimable` says that its claim would find something, apart from what has lapsed: that is among `overdue`, for the
    worker to judge. `due_ms` is how long until the next timer of an agent that it serves, or the next deadline, that
    has not come yet; None without any. `unread` are the runs that this worker has claimed and that were sent something;
    `database` is as in `Renewed`. `duties` are due, and nobody is at them.
    """

    now: int
    claimable: bool
    due_ms: int | None = None
    overdue: tuple[Overdue, ...] = ()
    attention: tuple[Attention, ...] = ()
    database: str = ""
    unread: frozenset[tuple[Tenant, RunId]] = frozenset()
    duties: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A row of a run's inbox.

    `sender_key` dedupes per (run, topic): a second post with the same key changes nothing.
    """

    tenant: Tenant
    run: RunId
    topic: str
    sender_key: str
    body: str
    id: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker process that has announced itself, and what it serves (agent name to build, and to agent version).

    `stalled_at` is since when its event loop has not turned, None while it does; `stalled_by` the run whose code was
    running then, where that could be told. `skew_ms` is how far the database's clock was certainly ahead of that of the
    worker's machine (negative: behind), by the last answer before its last sign of life; None where there was none.
    `started_at` 0, in an announcement, is the time at which it is stored.
    """

    owner: Owner
    pid: int
    serves: Mapping[str, str]
    started_at: int
    seen_at: int
    versions: Mapping[str, str] = field(default_factory=dict)
    stalled_at: int | None = None
    stalled_by: str = ""
    skew_ms: int | None = None

    def fits(self, run: RunRow) -> bool:
        """Whether it serves the run's agent in a version that may drive it."""
        return run.agent in self.serves and (run.pin is None or self.versions.get(run.agent) == run.pin)


@dataclass(frozen=True, slots=True)
class Stalled:
    """An event loop that has not turned for so many milliseconds, and the run whose code was running, if known."""

    for_ms: int
    by: str = ""


class Log(Protocol):
    """The log of a run: appended to by its owner alone, read by anyone."""

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        """Store one append; returns where the log ends after it.

        Raises LeaseLost when epoch, token or expected seq do not match (nothing is written), StoreBusy, StoreFull or
        StoreUnavailable (nothing is written, try again), CommitUnknown (claim `again` and read the tail), WrongState
        for a change that would leave an ended status, ApprovalRefused where `use` is not good any more (not approved,
        not for this operation, these arguments or this policy, or over by the database's clock), KeyTaken where `take`
        is another operation's, and NotSerialisable for text that no database takes (nothing is written, and it fails
        again).
        """
        ...

    async def window(self, tenant: Tenant, run: RunId) -> list[Entry]:
        """The entries that replay needs, in order, with their payloads: the prologue and the current turn.

        For a run without turns that is the whole log. Read after a claim has committed, never in the same statement.
        """
        ...

    async def entries(self, tenant: Tenant, run: RunId, *, after: int = -1, limit: int = 1000) -> list[Entry]:
        """Up to `limit` entries with seq > `after`, in order, with their payloads. Only committed entries are seen."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction for a `transactional` tool. Rolled back unless an append was joined to it.

        Its SQL may read the store's tables, but not write them, nor end the transaction. Another write to the store
        from inside is Refused: it would wait for itself. Raises StoreBusy when the lock cannot be had. SQLite: holds
        the one write lock of the database while it is open, so all other writers wait.
        """
        ...


class Work(Protocol):
    """The queue, leases and workers."""

    async def start(self, run: NewRun, *, now: int | None = None, within: object = None) -> RunRow:
        """Create the run (`ready`, with its `started` entry at seq 0), or return the row that has the id already.

        Idempotent: the caller compares agent and input digest of what it gets back. `within` is a connection of the
        driver's to this database, in whose transaction it happens: the run is there when that commits, and no hint is
        sent. Refused for what is no such connection, or has no transaction.
        """
        ...

    async def fork(self, run: NewRun, history: History, first: Draft, *, now: int | None = None) -> RunRow:
        """Create a run (`ready`) with the history, and `first` as the entry after it; the parent is marked as `forked`.

        Returns the row that has the id already, with nothing changed: the caller compares. Raises WrongState, with
        nothing changed, for a parent that has not ended and is not paused, or that still runs; all in one transaction.
        """
        ...

    async def claim(self, claim: Claim, *, now: int | None = None) -> list[Claimed]:
        """Take up to `limit` runs, highest priority first, then longest due.

        Where not all of one priority can be taken, those that are ready, timers that have come, and so on take turns,
        each the longest due first: a backlog of one kind keeps no other waiting until it is worked off.

        Each gets epoch + 1, a new random token, the status `running`, a lease, and an entry `claimed`.

        Eligible: not paused, not `grace_ms` past its deadline, agent served, pinned to no version or to the one that is
        served, queue and tenant asked for, no divergence recorded for the build that this worker serves, and one of:
        `ready`; `waiting` and (wake_at has come or an unread inbox row exists); `blocked` and an unread inbox row
        exists; `blocked` with reason *diverged* or *undecodable* (the divergence condition makes it a build that has
        not tried); `running` with an expired lease and in `watched` (counts one lapse, unless its owner is known to
        have been stalled by another run).
        """
        ...

    async def again(
        self, authority: Authority, *, owner: Owner, lease_ms: int, token: str | None = None, now: int | None = None
    ) -> Claimed | None:
        """Claim a run again from ourselves after an unknown commit.

        Epoch + 1, a new token, an entry `claimed` (why *again*). A caller that draws the token itself knows what is its
        own when it does not learn the outcome of this either. None when epoch and token are not ours any more. Orders
        itself before or after the lost append.
        """
        ...

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
        """A control claim, whatever the status and the lease: epoch + 1, new token, entry `claimed` (why *control*).

        The status stays as it is. A run that was `running` keeps a lease of `lease_ms`, so that it is taken over if the
        controller dies before its append. None, with nothing changed, for an unknown run, for one whose status is not
        in `only`, and with `unless_live` for a running one whose lease has not expired by the database's clock. Both
        are decided in the transaction that makes the claim: what was read before may have changed.
        """
        ...

    def renew(
        self, owner: Owner, held: Sequence[Authority], lease_ms: int, *, stalled: Stalled | None = None,
        now: int | None = None,
    ) -> Renewed:  # fmt: skip
        """Extend the leases of exactly these authorities, and give the worker's own sign of life.

        With it goes whether the worker is stalled; the next one without `stalled` takes that back; and how far its
        clock is off, as with every sign of life: nothing is decided by that. Blocks: for the renewal thread. Raises
        StoreError when the store cannot say: that is not a lost lease.
        """
        ...

    async def look(self, claim: Claim, *, sign: bool = False, most: int = 100, now: int | None = None) -> Look:
        """All that the worker of this claim has to know before it sends it, in one statement.

        With `sign` it gives that worker's sign of life too; else it changes nothing. `attention` has at most `most`
        runs of each kind, `overdue` ten times as many, first what has expired longest ago. A running run past its
        deadline is its owner's to end while its lease lives; one that is blocked or paused needs attention at its
        deadline, any other only when its claim would be refused.
        """
        ...

    def hints(self) -> AsyncGenerator[bool]:
        """An item whenever something may have become claimable, or an ended run been sent something. It never ends.

        Only hints: they come late or never, several at once, and for nothing. An item says whether further ones can be
        relied on; False when they cannot, for instance while a connection is down.
        """
        ...

    async def announce(self, worker: WorkerRow, *, now: int | None = None) -> None:
        """Make known that a worker is alive and what it serves.

        When it was seen and how far its clock is off, the store says itself.
        """
        ...

    async def leave(self, owner: Owner) -> None:
        """Take a worker's announcement back; its leases are released by its appends, not by this."""
        ...

    async def workers(self, *, within_ms: int, now: int | None = None) -> list[WorkerRow]:
        """Workers that gave a sign of life within so many milliseconds."""
        ...


class Records(Protocol):
    """What people and other processes read and write beside the log."""

    async def now(self) -> int:
        """Milliseconds by the database's clock."""
        ...

    async def key(self, tenant: Tenant, *, within: object = None) -> bytes:
        """The tenant's digest key (32 bytes), made at first use. Callers may keep it.

        With `within` it is the one that a `start` there goes by, which is only to be kept once that has committed.
        """
        ...

    async def run(self, tenant: Tenant, run: RunId) -> RunRow | None:
        """One row, or None."""
        ...

    async def runs(self, tenant: Tenant, which: RunFilter) -> list[RunRow]:
        """Rows that match, newest first."""
        ...

    async def operations(self, tenant: Tenant, run: RunId) -> list[OperationRow]:
        """The operation records of a run, in the order of their first intent."""
        ...

    async def operation(self, tenant: Tenant, operation: OperationId) -> OperationRow | None:
        """One operation record by its full id."""
        ...

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        """What all runs of an origin have recorded of a tool with these arguments or under this key, first sent first.

        It sees what was committed before it was asked.
        """
        ...

    async def rollbacks(self, tenant: Tenant, run: RunId) -> list[RunRow]:
        """The runs that roll this one back, ended ones too, in the order in which they were started."""
        ...

    async def post(self, message: Message, *, now: int | None = None) -> bool:
        """Add a row to a run's inbox; False if the sender's key is there already. Never touches a live run's row.

        Raises UnknownRun.
        """
        ...

    async def unread(self, tenant: Tenant, run: RunId) -> list[Message]:
        """All rows that no append has taken yet, in order of arrival."""
        ...

    async def divergences(self, tenant: Tenant, run: RunId) -> list[Divergence]:
        """Which builds cannot continue this run, and why."""
        ...

    async def durability(self) -> list[str]:
        """Settings of the database that may lose acknowledged commits; empty is good."""
        ...


class Store(Log, Work, Records, Approvals, Keys, Protocol):
    """All five, as one object with a life of its own."""

    name: str

    async def open(self) -> None:
        """Connect, bring the schema up to date under a lock, check durability.

        Raises StoreUnavailable, SchemaTooNew, UnsafeDurability.
        """
        ...

    async def close(self) -> None:
        """Let calls in flight end, then disconnect."""
        ...
