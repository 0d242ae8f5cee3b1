"""Every kind of entry, as a versioned record, and the one place that writes and reads their bodies.

A kind is never removed and its meaning never changes: a new version adds an upcaster that turns an older body into the
next one, so that a log of any release can be read. What cannot be read is UndecodableEntry with its seq, never None.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from outlive.log.difference import Adoption, Difference
from outlive.log.entry import Draft, Entry
from outlive.model.errors import UndecodableEntry
from outlive.model.operation import OperationStatus


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Base of all entry bodies. `KIND` and `VERSION` are compatibility data; fields at their default are not stored."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class ErrorRecord:
    """An exception as data: the name of its type, its message, and what of its arguments and attributes is data.

    `declared` is the name of the class that the tool declares and the exception is one of; `at` the line of user code
    that raised it.
    """

    type: str
    message: str = ""
    data: dict[str, object] = field(default_factory=dict)
    declared: str = ""
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class LostOperation:
    """An operation whose intent the database has lost: what its worker remembers of it, as replay and people need it.

    `payload` and `error` are its outcome, once `status` is one that has an outcome. `key` is that of its call.
    """

    operation: str
    name: str
    effect: Literal["idempotent", "external"]
    scope: str
    key: str
    digest: str
    shown: str
    idempotency_key: str
    arguments: str
    attempt: int
    first_sent_at: int
    send_by: int
    timeout_ms: int
    settle_ms: int
    not_before: int
    status: OperationStatus = "unknown"
    how: str = ""
    payload: str | None = None
    error: ErrorRecord | None = None
    compensates: str = ""
    business_key: str = ""
    business_shown: str = ""


@dataclass(frozen=True, kw_only=True)
class Started(Fact):
    """The first entry. Payload: the input. `rolls_back` is the run whose operations a rollback undoes."""

    KIND: ClassVar[str] = "started"
    agent: str
    version: str
    input_digest: str
    principal: str = ""
    purpose: str = ""
    identity: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    pin: bool = False
    rolls_back: str = ""


@dataclass(frozen=True, kw_only=True)
class ClaimedBy(Fact):
    """A worker took the run: from here on it is the only writer."""

    KIND: ClassVar[str] = "claimed"
    owner: str
    why: Literal["start", "resume", "takeover", "again", "control"]
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Call(Fact):
    """Base of the entries that can be the first of a durable call: what replay compares."""

    name: str
    digest: str = ""
    shown: str = ""


@dataclass(frozen=True, kw_only=True)
class StepDone(Call):
    """A step, or a read tool, got its outcome. Payload: the result, unless `error` says what was raised."""

    KIND: ClassVar[str] = "step"
    attempt: int = 1
    tool: bool = False
    error: ErrorRecord | None = None
    declared: bool = False


@dataclass(frozen=True, kw_only=True)
class StepTried(Call):
    """An attempt of a step, a read tool or a transactional tool failed and will be repeated at `retry_at`."""

    KIND: ClassVar[str] = "attempt"
    attempt: int
    tool: bool = False
    error: ErrorRecord
    retry_at: int


@dataclass(frozen=True, kw_only=True)
class Intent(Call):
    """An operation may be sent from here until `send_by`. Payload (first attempt): the arguments, readable.

    `approval` is the one that this commit has used, `executed` the digest of the arguments that it allows. Where that
    is another one than before, the key is too, and the payload says them again. `compensates` is the operation of
    another run that this one undoes. `business_key` is the digest of what makes it one action across runs, which this
    commit has taken, `business_shown` what people read of that.
    """

    KIND: ClassVar[str] = "intent"
    operation: str
    effect: Literal["idempotent", "external", "transactional"]
    idempotency_key: str
    attempt: int
    send_by: int
    first_sent_at: int
    timeout_ms: int
    settle_ms: int = 60_000
    approval: str = ""
    executed: str = ""
    compensates: str = ""
    business_key: str = ""
    business_shown: str = ""


@dataclass(frozen=True, kw_only=True)
class Outcome(Fact):
    """An operation is settled. Payload: the result, if it succeeded."""

    KIND: ClassVar[str] = "outcome"
    operation: str
    attempt: int
    status: Literal["succeeded", "raised", "failed", "abandoned"]
    how: Literal["call", "lookup", "person", "evidence"]
    error: ErrorRecord | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Done(Call):
    """A transactional operation: effect and outcome in one commit, so one entry. Payload: the result."""

    KIND: ClassVar[str] = "done"
    operation: str
    idempotency_key: str
    arguments: str
    attempt: int
    error: ErrorRecord | None = None
    declared: bool = False
    approval: str = ""
    executed: str = ""
    business_key: str = ""
    business_shown: str = ""


@dataclass(frozen=True, kw_only=True)
class NotActed(Fact):
    """An attempt is known not to have acted; it will be sent again at `retry_at` (0: at once, it cost no attempt)."""

    KIND: ClassVar[str] = "not acted"
    operation: str
    attempt: int
    error: ErrorRecord
    retry_at: int
    free: bool = False


@dataclass(frozen=True, kw_only=True)
class InDoubt(Fact):
    """It is not known whether an attempt acted. *Did not happen* can be believed from `not_before` on.

    An operation that the other side dedupes is repeated at `again_at`. `lost` says that the attempt's worker was lost:
    then it costs no attempt.
    """

    KIND: ClassVar[str] = "unknown"
    operation: str
    attempt: int
    why: str
    not_before: int
    again_at: int = 0
    lost: bool = False


Said = Literal["happened", "did not happen", "unclear"]


@dataclass(frozen=True, kw_only=True)
class LookedUp(Fact):
    """The other side was asked. `again_at` is when it is asked again (0: no more, a person decides)."""

    KIND: ClassVar[str] = "lookup"
    operation: str
    attempt: int
    number: int
    answer: Said
    note: str = ""
    again_at: int = 0


@dataclass(frozen=True, kw_only=True)
class Absent(Fact):
    """An attempt did not happen: said by a look-up or a person after no request could be on its way any more."""

    KIND: ClassVar[str] = "absent"
    operation: str
    attempt: int
    how: Literal["lookup", "person", "completion"]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Noted(Fact):
    """`op.note`: durable facts that a later attempt or look-up can read."""

    KIND: ClassVar[str] = "note"
    operation: str
    facts: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Resolved(Fact):
    """A person's decision about an operation in doubt, or held. Payload: the outcome, if it happened or is reused."""

    KIND: ClassVar[str] = "resolution"
    operation: str
    decision: Literal["happened", "did-not-happen", "abandon", "reuse", "repeat"]
    who: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Evidence(Fact):
    """A worker without the lease reports what its call answered. Payload: the result, if it succeeded."""

    KIND: ClassVar[str] = "evidence"
    operation: str
    attempt: int
    epoch: int
    answer: Literal["succeeded", "raised", "sent late"]
    verdict: Literal["settles", "confirms", "duplicate", "no news"]
    error: ErrorRecord | None = None


@dataclass(frozen=True, kw_only=True)
class Later(Fact):
    """The other side has taken an attempt on, and tells its outcome when it knows it: until `until`, after that nobody
    waits for it. *Did not happen* can be believed from `not_before` on, if another says so.
    """

    KIND: ClassVar[str] = "later"
    operation: str
    attempt: int
    until: int
    not_before: int


@dataclass(frozen=True, kw_only=True)
class Completed(Fact):
    """What the other side tells of an attempt, under `key` of its own. Payload: the outcome, if it happened.

    *too early*: a request may still be on its way, so it is gone by when none can be any more. *contradicts*: the run
    has been told otherwise.
    """

    KIND: ClassVar[str] = "completion"
    operation: str
    attempt: int
    key: str
    answer: Literal["happened", "did not happen"]
    verdict: Literal["settles", "confirms", "duplicate", "contradicts", "too early", "no news"]
    who: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Value(Call):
    """`run.now`, `run.random` or `run.uuid`, recorded. Payload: the value."""

    KIND: ClassVar[str] = "value"


@dataclass(frozen=True, kw_only=True)
class Opened(Call):
    """A gather, map or first began. `branches` are its keys in order."""

    KIND: ClassVar[str] = "opened"
    branches: list[str]


@dataclass(frozen=True, kw_only=True)
class Joined(Fact):
    """What user code was told when branches ended otherwise than all well: which one failed, or won."""

    KIND: ClassVar[str] = "joined"
    branch: str
    how: Literal["failed", "won"]


@dataclass(frozen=True, kw_only=True)
class ScopeCancelled(Fact):
    """A branch was cancelled after the entries of its scope so far."""

    KIND: ClassVar[str] = "scope cancelled"
    why: str


@dataclass(frozen=True, kw_only=True)
class Turn(Call):
    """A turn begins (and the one before is committed). Payload: the state it begins with.

    `lost` are the operations of lost entries that no call has met again yet: they outlive the window. `version` is that
    of the agent that has made the state (empty: the one that started the run); `left` are those whose state became
    this one by a rule.
    """

    KIND: ClassVar[str] = "turn"
    number: int
    lost: list[LostOperation] = field(default_factory=list)
    version: str = ""
    left: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class RollingBack(Call):
    """`run.rollback`: the run fails here, and another one undoes what it has done. Payload: its id, and the reason."""

    KIND: ClassVar[str] = "rolling back"


@dataclass(frozen=True, kw_only=True)
class Emitted(Call):
    """`run.emit`: an event for whoever follows the run. Payload: its data."""

    KIND: ClassVar[str] = "emitted"


@dataclass(frozen=True, kw_only=True)
class Arrived(Fact):
    """A message came in; it stays until a call receives it. Payload: the message.

    `again` is the entry that it first was, when a turn has carried it over into its window.
    """

    KIND: ClassVar[str] = "arrived"
    topic: str
    sender_key: str
    again: int | None = None


@dataclass(frozen=True, kw_only=True)
class Waiting(Call):
    """A wait began, until `until` at the latest (0: for ever). Payload: the question, if a person is asked.

    `expects` names the type of the answer.
    """

    KIND: ClassVar[str] = "wait"
    topic: str = ""
    until: int = 0
    role: str = ""
    expects: str = ""


@dataclass(frozen=True, kw_only=True)
class Woken(Call):
    """A wait is over: by the message that arrived as entry `arrival`, or because its time was.

    `refused` is why the message was no such thing as was waited for, which is what the code was told; empty where it
    was one. None: this was not recorded, as it was not at first.
    """

    KIND: ClassVar[str] = "woken"
    topic: str = ""
    arrival: int | None = None
    refused: str | None = None


@dataclass(frozen=True, kw_only=True)
class Proposed(Call):
    """An operation waits for an approval by people of `role`, until `expires_at`. Payload: the arguments, readable.

    `policy` is the version of the rule that asks, `remind_at` when they are reminded (0: never). `escalated` says that
    others were asked before, in vain.
    """

    KIND: ClassVar[str] = "proposed"
    operation: str
    approval: str
    role: str
    quorum: int
    policy: str
    asked_at: int
    expires_at: int
    remind_at: int = 0
    escalated: bool = False


@dataclass(frozen=True, kw_only=True)
class Decided(Fact):
    """What became of an approval, copied from its row. Payload: the arguments that were approved, if they are others.

    *lapsed* and *withdrawn* do not count: where one is needed it is asked for anew. `executed` is the digest of the
    arguments that were approved, `by` are those who agreed.
    """

    KIND: ClassVar[str] = "decided"
    approval: str
    decision: Literal["approved", "rejected", "lapsed", "withdrawn"]
    why: str = ""
    by: list[str] = field(default_factory=list)
    executed: str = ""


@dataclass(frozen=True, kw_only=True)
class Reminded(Fact):
    """Those who can approve were reminded."""

    KIND: ClassVar[str] = "reminded"
    approval: str
    role: str


@dataclass(frozen=True, kw_only=True)
class Suspended(Fact):
    """The run waits, unloaded."""

    KIND: ClassVar[str] = "suspended"
    why: str
    wake_at: int


@dataclass(frozen=True, kw_only=True)
class Blocked(Fact):
    """Only a person (or another version of the code) can let the run go on."""

    KIND: ClassVar[str] = "blocked"
    reason: str
    detail: str = ""
    code: str = ""
    difference: Difference | None = None


@dataclass(frozen=True, kw_only=True)
class Released(Fact):
    """The worker gave the run back in good order."""

    KIND: ClassVar[str] = "released"
    why: str


@dataclass(frozen=True, kw_only=True)
class Retried(Fact):
    """A person asked that a blocked run be tried again."""

    KIND: ClassVar[str] = "retried"
    who: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Adopted(Fact):
    """A person, or a rule in code, accepts that the code differs from the log at the step that was recorded first as
    `entry`.

    *skip*: the code need not ask for it. *insert*: the code may ask for the step `name` before it. *take-old*: its
    result is also that of the step `name`. *run-again*: the step `name` is done in its place. `digest` is that of the
    arguments of the step `name`. `version` is that of the agent whose rule it is; empty where a person has decided.
    """

    KIND: ClassVar[str] = "adopted"
    entry: int
    how: Adoption
    who: str
    why: str
    name: str = ""
    digest: str = ""
    shown: str = ""
    version: str = ""


@dataclass(frozen=True, kw_only=True)
class StateAdopted(Fact):
    """A rule of the agent's `version` has made a state of its own of the one that was recorded as `entry`, which was of
    the version `of`. Payload: the new state. `name` and `digest` are those of its loop of turns.
    """

    KIND: ClassVar[str] = "state adopted"
    entry: int
    of: str
    version: str
    who: str
    why: str
    name: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Cancelling(Fact):
    """The run is to end: somebody has asked for it, or its deadline has passed. Its code is told here.

    `cut` is the key of the call that is in flight in the root scope (empty: none whose entry is before this one): it
    raises the cancellation whatever becomes of it. What follows is clean-up, until `grace_until` by the database's
    clock.
    """

    KIND: ClassVar[str] = "cancelling"
    cause: Literal["cancel", "deadline"]
    grace_until: int
    who: str = ""
    why: str = ""
    cut: str = ""


@dataclass(frozen=True, kw_only=True)
class TooLate(Fact):
    """A request that came when it could not be met any more: the run had ended, or was already being cancelled."""

    KIND: ClassVar[str] = "too late"
    what: Literal["cancel", "pause"]
    who: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Paused(Fact):
    """A person has paused the run: nobody claims it until it is resumed. `status` is what it is meanwhile."""

    KIND: ClassVar[str] = "paused"
    who: str
    why: str
    status: Literal["ready", "waiting", "blocked"]


@dataclass(frozen=True, kw_only=True)
class Resumed(Fact):
    """A person has resumed a paused run; `status` is what it is now."""

    KIND: ClassVar[str] = "resumed"
    who: str
    why: str
    status: Literal["ready", "blocked"]


@dataclass(frozen=True, kw_only=True)
class EntriesLost(Fact):
    """The database had acknowledged entries `first` to `last`, and does not have them any more.

    `entries` says what the worker remembers of them, `operations` which of them may act a second time.
    """

    KIND: ClassVar[str] = "entries lost"
    first: int
    last: int
    entries: list[str] = field(default_factory=list)
    operations: list[LostOperation] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Forked(Fact):
    """What is before it is history: the log of `parent` up to entry `at`, whose digest (hex) is `head`.

    With `repeat_effects` nothing is asked before an operation is sent that a run of the same origin has done.
    """

    KIND: ClassVar[str] = "forked"
    parent: str
    at: int
    head: str
    who: str
    why: str = ""
    repeat_effects: bool = False


@dataclass(frozen=True, kw_only=True)
class Held(Call):
    """An operation is not sent: run `run` of the same origin has one like it, `theirs`, which is `status`.

    A person decides. Payload (while no attempt was made): the arguments, readable.
    """

    KIND: ClassVar[str] = "held"
    operation: str
    effect: Literal["idempotent", "external", "transactional"]
    idempotency_key: str
    run: str
    theirs: str
    status: str


Acting = Literal["idempotent", "external", "transactional"]
Settled = Literal["succeeded", "raised", "abandoned", "compensated", "conflict"]


@dataclass(frozen=True, kw_only=True)
class Shared(Call):
    """An operation is not sent: what its business key stands for is settled, by operation `theirs` of `run`.

    *succeeded*, *raised*: it has that outcome, once for both. *abandoned*, *compensated*: the code is told so.
    *conflict*: the key stands for another action. Payload: the result, if it succeeded.
    """

    KIND: ClassVar[str] = "shared"
    operation: str
    effect: Acting
    idempotency_key: str
    arguments: str
    business_key: str
    business_shown: str
    run: str
    theirs: str
    status: Settled
    executed: str = ""
    error: ErrorRecord | None = None


@dataclass(frozen=True, kw_only=True)
class MetAgain(Call):
    """Replay has come to a call whose operation was sent in lost entries: it goes on from what is known of that."""

    KIND: ClassVar[str] = "met again"
    operation: str


@dataclass(frozen=True, kw_only=True)
class Ended(Fact):
    """The last entry but for resolutions, evidence and audit. Payload: the result, if it succeeded."""

    KIND: ClassVar[str] = "ended"
    status: Literal["succeeded", "failed", "cancelled", "expired"]
    error: ErrorRecord | None = None
    reason: str = ""


_ALL: tuple[type[Fact], ...] = (
    Started, ClaimedBy, StepDone, StepTried, Intent, Outcome, Done, NotActed, InDoubt, LookedUp, Absent, Noted,
    Resolved,
    Evidence, Value, Opened, Joined, ScopeCancelled, Turn, Emitted, Arrived, Waiting, Woken, Suspended, Blocked,
    Released, Retried, Adopted, StateAdopted, EntriesLost,
    Forked, Held, MetAgain, Cancelling, TooLate, Paused, Resumed, Ended,
    Proposed, Decided, Reminded, RollingBack, Later, Completed, Shared,
)  # fmt: skip
KINDS: dict[str, type[Fact]] = {fact.KIND: fact for fact in _ALL}

Body = dict[str, object]

# (kind, version) -> the function that turns a body of that version into one of the next.
UPCASTERS: dict[tuple[str, int], Callable[[Body], Body]] = {}


# Built at first use: most processes need only a few kinds.
_adapters: dict[str, TypeAdapter[Fact]] = {}


def _adapter(kind: type[Fact]) -> TypeAdapter[Fact]:
    found = _adapters.get(kind.KIND)
    if found is None:
        found = _adapters[kind.KIND] = TypeAdapter(kind)
    return found


def draft(fact: Fact, *, at: int, scope: str = "", key: str = "", payload: str | None = None) -> Draft:
    """Write a fact as an entry that has no place yet."""
    body = _adapter(type(fact)).dump_json(fact, exclude_defaults=True).decode()
    return Draft(fact.KIND, fact.VERSION, at, scope, key, body, payload)


def read(entry: Entry) -> Fact:
    """Read the body of an entry of any release.

    Raises UndecodableEntry for one that is newer, unknown or damaged, and for one whose payload is lost: it says less
    than was recorded.
    """
    where = f"entry {entry.seq} ({entry.kind})"
    if entry.lost:
        raise UndecodableEntry(where=where, why="its payload is lost: the blob that it names is not in the store")
    kind = KINDS.get(entry.kind)
    if kind is None:
        raise UndecodableEntry(where=where, why="its kind is not known to this release")
    if entry.version > kind.VERSION:
        raise UndecodableEntry(where=where, why=f"version {entry.version} is newer than this release's {kind.VERSION}")
    try:
        if entry.version == kind.VERSION:
            return _adapter(kind).validate_json(entry.body)
        return _adapter(kind).validate_python(_upcast(kind, entry))
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        raise UndecodableEntry(where=where, why=str(error).replace("\n", " ")) from error


def _upcast(kind: type[Fact], entry: Entry) -> Body:
    body: Body = json.loads(entry.body)
    for version in range(entry.version, kind.VERSION):
        body = UPCASTERS[(kind.KIND, version)](body)
    return body
