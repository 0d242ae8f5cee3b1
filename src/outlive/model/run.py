"""A run: its statuses and the only transitions between them, its row, and the authority to write its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from outlive.model.errors import UnknownRun, WrongState
from outlive.model.ids import Owner, RunId, Tenant

Status = Literal["ready", "running", "waiting", "blocked", "succeeded", "failed", "cancelled", "expired"]

STATUSES: tuple[Status, ...] = (
    "ready",
    "running",
    "waiting",
    "blocked",
    "succeeded",
    "failed",
    "cancelled",
    "expired",
)
ENDED: frozenset[Status] = frozenset(("succeeded", "failed", "cancelled", "expired"))

# Why a run is blocked. Each names what a person (or a new version of the code) has to do.
Block = Literal[
    "operation in doubt", "duplicate effect", "diverged", "poison", "undecodable", "entries lost", "done elsewhere",
    "compensation failed", "in doubt elsewhere", "context too long",
]  # fmt: skip

# The reason of a run that is being cancelled and that nobody drives: it is ready, or waits in its clean-up.
CANCELLING = "cancelling"

_NEXT: dict[Status, frozenset[Status]] = {
    "ready": frozenset(("running", "cancelled", "expired", "blocked")),
    "running": frozenset(("ready", "waiting", "blocked", "succeeded", "failed", "cancelled", "expired")),
    "waiting": frozenset(("running", "ready", "cancelled", "expired", "blocked")),
    "blocked": frozenset(("running", "ready", "cancelled", "expired")),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
    "expired": frozenset(),
}


def may_follow(before: Status, after: Status) -> bool:
    """Whether `after` may follow `before`; staying where one is counts as no transition and is always allowed."""
    return before == after or after in _NEXT[before]


@dataclass(frozen=True, slots=True)
class Authority:
    """The right to append to one log: named in full on every write, compared for equality by the store."""

    tenant: Tenant
    run: RunId
    epoch: int
    token: str


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log ends: the next `seq` and the digest of the last entry (empty for a new log)."""

    seq: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class RunRow:
    """One task given to an agent, as the store holds it. Times are milliseconds of the database's clock.

    A fork has the log of `fork_of` up to entry `fork_seq` as its history, and the `origin` of that run; every other run
    is its own origin. `forked` says that there is a fork of this run; `repeat_effects` that it sends again what another
    run of its origin has done, without asking.

    `damaged` says what of the row cannot be read, and is left out: one such row must not hide the others.
    """

    tenant: Tenant
    id: RunId
    agent: str
    version: str
    status: Status
    epoch: int
    head: Head
    created_at: int
    updated_at: int
    input_digest: str
    origin: RunId
    queue: str = "default"
    priority: int = 0
    owner: Owner | None = None
    expires_at: int | None = None
    lease_ms: int | None = None
    wake_at: int | None = None
    deadline_at: int | None = None
    paused_at: int | None = None
    ended_at: int | None = None
    reason: str = ""
    detail: str = ""
    lapses: int = 0
    prologue_seq: int | None = None
    window_seq: int | None = None
    principal: str = ""
    purpose: str = ""
    grants: str = ""
    identity: str | None = None
    root: RunId | None = None
    parent: RunId | None = None
    traceparent: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    pin: str | None = None
    """The only agent version that may drive it, if there is such a one."""
    damaged: str = ""
    fork_of: RunId | None = None
    fork_seq: int | None = None
    forked: bool = False
    repeat_effects: bool = False
    rolls_back: RunId | None = None
    """The run whose operations it undoes, if it is a rollback."""

    @property
    def ended(self) -> bool:
        """Whether the status is a terminal one."""
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class NewRun:
    """What `start` writes. With `pin` only workers that serve the agent in this version claim it.

    The row and the text of its input. `input_digest` decides whether a second start is the same.
    """

    tenant: Tenant
    id: RunId
    agent: str
    version: str
    input: str
    input_digest: str
    queue: str = "default"
    priority: int = 0
    deadline_ms: int | None = None
    principal: str = ""
    purpose: str = ""
    identity: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    pin: bool = False
    rolls_back: RunId | None = None


@dataclass(frozen=True, slots=True)
class History:
    """What a fork begins with: the entries of `parent` before `end.seq`, which end with the digest `end.digest`.

    `epoch` is that of the last of them; `prologue_seq` and `window_seq` are what they make of the run's row.
    """

    parent: RunId
    origin: RunId
    end: Head
    epoch: int
    prologue_seq: int | None = None
    window_seq: int | None = None
    repeat_effects: bool = False


def refusal_to_fork(run: RunId, row: RunRow | None) -> UnknownRun | WrongState | None:
    """Why a run cannot be forked, from its row: it must not do anything meanwhile. None where it can be."""
    if row is None:
        return UnknownRun(run=run)
    if row.rolls_back is not None:
        wanted = f"a rollback cannot be forked; it undoes run {row.rolls_back}, which can be rolled back again"
        return WrongState(run=run, status=row.status, wanted=wanted)
    running = row.status == "running"
    if row.ended or (row.paused_at is not None and not running):
        return None
    status = "running, although it is paused" if running and row.paused_at is not None else row.status
    return WrongState(run=run, status=status, wanted="only a run that has ended, or is paused, can be forked")


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs `runs` lists, newest first. Empty fields match everything; labels match what has unreadable ones too.

    Such a run is `damaged`, for people to see, and nothing is done to it that is done to runs with these labels.

    `before` takes those that were started before a moment; `behind` goes on behind a run, given by when it was started
    and its id: the last one of a page. `paused` takes those that stand still, or those that do not.
    """

    statuses: tuple[Status, ...] = ()
    agent: str = ""
    reason: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    limit: int = 100
    before: int | None = None
    behind: tuple[int, RunId] | None = None
    paused: bool | None = None
