"""An operation: a call that acts on the outside world. Its effects, statuses, record, and what tools answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, Literal, TypeVar

from outlive.model.ids import OperationId, RunId, Tenant

R_co = TypeVar("R_co", covariant=True)

Effect = Literal["read", "idempotent", "external", "transactional"]

# pending = may have been sent; retrying = known not to have acted, will be sent again; absent = found not to have
# happened; raised = the tool answered with an exception that it declares.
# held = not sent, because another run of the same origin has done the same; a person decides.
# compensated = it succeeded, and a run that rolls its run back has undone it. No log of its own run says so.
# later = sent and taken on by the other side, which tells the outcome when it knows.
OperationStatus = Literal[
    "pending", "later", "retrying", "unknown", "absent", "held", "succeeded", "raised", "failed", "abandoned",
    "compensated",
]  # fmt: skip

# On its way: no run ends with one of these, whoever ends it makes them *unknown*.
UNDER_WAY: frozenset[OperationStatus] = frozenset(("pending", "later"))
IN_DOUBT: frozenset[OperationStatus] = frozenset(("pending", "unknown"))
# Sent, and without an outcome as yet.
OPEN: frozenset[OperationStatus] = IN_DOUBT | {"later"}
SETTLED: frozenset[OperationStatus] = frozenset(("succeeded", "raised", "failed", "abandoned", "compensated"))


@dataclass(frozen=True, slots=True)
class OperationRow:
    """The operation record: a projection of the log, written in the same commit as the entry that changes it.

    `arguments` is the readable form (scrubbed), `outcome` the JSON text of a result. Times are database milliseconds.
    `digest` is that of the arguments which the code asked for. `approval` is the one that was used, `executed` the
    digest of the arguments that it allowed; both are empty where none was needed.
    `compensates` is the operation of another run that this one undoes, `compensated_by` the one that has undone it.
    `business_key` is the digest of the key that makes it one action across runs, if it has one. With `how` *shared* it
    was never sent: it has the outcome of `shared_operation` of `shared_run`, which has the same key.
    `seq` is the entry from which on it may have been sent: what tells the operations before a fork from those after it.
    """

    tenant: Tenant
    run: RunId
    id: OperationId
    call: str
    tool: str
    effect: Effect
    key: str
    digest: str
    arguments: str
    status: OperationStatus
    attempt: int
    epoch: int
    first_sent_at: int
    updated_at: int
    not_before: int = 0
    outcome: str | None = None
    error: str = ""
    how: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    duplicates: int = 0
    approval: str = ""
    executed: str = ""
    seq: int = 0
    compensates: OperationId = OperationId("")
    compensated_by: OperationId = OperationId("")
    business_key: str = ""
    shared_run: RunId = RunId("")
    shared_operation: OperationId = OperationId("")


class Happened(Generic[R_co]):
    """Answer of `reconcile`, or of whoever completes an operation: it happened, with this outcome."""

    def __init__(self, outcome: R_co, *, note: str = "") -> None:
        self.outcome, self.note = outcome, note


class DidNotHappen:
    """Answer of `reconcile`, or of whoever completes an operation: it did not happen.

    Believed only when no request can be on its way any more.
    """

    def __init__(self, *, note: str = "") -> None:
        self.note = note


class Unclear:
    """Answer of `reconcile`: the other side cannot say now; asked again with backoff, then a person is."""

    def __init__(self, note: str) -> None:
        self.note = note


@dataclass(frozen=True, slots=True)
class Pending:
    """What a tool returns in place of its result: the outcome comes later, until `until` (database milliseconds)."""

    until: int


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast a call that is known not to have acted is tried again.

    `attempts` counts the first one. The wait before attempt n+1 is `first` · 2^(n-1), at most `most` (or `first`, where
    that is longer), with jitter of up to a half; a failure with a `retry_after` attribute (seconds) waits at least so
    long. A lost worker costs no attempt.
    """

    attempts: int = 5
    first: timedelta = timedelta(seconds=1)
    most: timedelta = timedelta(minutes=5)

    def delay_ms(self, attempt: int, jitter: float, after_s: float = 0.0) -> int:
        """Milliseconds to wait after failed attempt number `attempt` (from 1); `jitter` is in [0, 1)."""
        most = max(self.most, self.first).total_seconds()
        base = min(self.first.total_seconds() * 2.0 ** min(attempt - 1, 32), most)
        return int(1000 * max(base * (1.0 - jitter / 2.0), after_s))
