"""What a log says: entries folded, purely, into the calls of each scope in the order in which replay must meet them.

`Call` is one durable call with all that is recorded of it. The engine folds its own appends in with the same function,
so that what it knows live and what a new worker reads from the log cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Literal, assert_never

from outlive.log import kinds
from outlive.log.asked import Asked, asked, decided, sent_before
from outlive.log.awaited import completed, cost, later
from outlive.log.difference import Difference
from outlive.log.entry import Entry
from outlive.model.errors import UndecodableEntry
from outlive.model.operation import OPEN, SETTLED, Effect, OperationStatus

_SHOWN = 20

CallKind = Literal["step", "operation", "value", "branches", "turn", "emit", "wait", "rollback"]


@dataclass(slots=True)
class Sent:
    """What is recorded of an operation beyond its call."""

    id: str
    effect: Effect
    key: str
    arguments: str
    first_sent_at: int
    send_by: int
    timeout_ms: int
    settle_ms: int
    status: OperationStatus = "pending"
    spent: int = 0
    """Failed attempts that count against the retry policy."""
    not_before: int = 0
    lookups: int = 0
    again_at: int = 0
    how: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    duplicates: int = 0
    lost: bool = False
    """The last attempt's worker was lost: if it did not happen, that costs no attempt."""
    approval: str = ""
    executed: str = ""
    theirs: str = ""
    """The operation of another run because of which it was held."""
    again: bool = False
    """A person has decided that it is done once more, although another run of the same origin has done it."""
    compensates: str = ""
    """The operation of another run that this one undoes."""
    until: int = 0
    """How long the outcome of the last attempt is, or was, waited for; 0 where it was not to come later."""
    business_key: str = ""
    business_shown: str = ""
    shared: tuple[str, str] = ("", "")
    """The run, and its operation, that has done it once for both: then it was not sent here."""
    denied: bool = False
    """The other side says that the last attempt did not happen, which could not be believed when it said so."""


@dataclass(slots=True)
class Call:
    """One durable call: what was asked (kind, name, digest), how far it got, what user code is told."""

    kind: CallKind
    scope: str
    key: str
    name: str
    digest: str
    shown: str
    seq: int
    done: bool = False
    payload: str | None = None
    error: kinds.ErrorRecord | None = None
    declared: bool = False
    attempt: int = 0
    retry_at: int = 0
    sent: Sent | None = None
    branches: tuple[str, ...] = ()
    joined: kinds.Joined | None = None
    number: int = 0
    until: int = 0
    arrival: int | None = None
    refused: str | None = None
    """Why the message was refused, empty if it was not; None where that is not recorded."""
    asked: Asked | None = None
    adopted: Adopted | None = None
    barred: kinds.Shared | None = None
    """Its business key stands for something that it has no outcome of: user code is told of that."""
    version: str = ""
    """That of the agent that the run was of when it was recorded; of a turn, that of its state."""
    left: tuple[str, ...] = ()
    """Of a turn: the versions whose state became this one by a rule."""
    cut: bool = False
    """The run was cancelled while it was in flight: user code is told of that, whatever became of the call."""


@dataclass(slots=True)
class Adopted:
    """What a person has accepted about a recorded step, or about what may come before a recorded call.

    Steps are known by name and digest. One that was `let_in` is taken out when it is recorded.
    """

    skippable: bool = False
    takers: set[tuple[str, str]] = field(default_factory=set)
    let_in: set[tuple[str, str]] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Arrival:
    """A message that no call has received yet; `taken` says that one is about to."""

    seq: int
    sender_key: str
    payload: str
    taken: bool = False


@dataclass(slots=True)
class ScopeLog:
    """The calls of one scope in order, and whether the scope was cancelled after them.

    `told_after` is of the root scope alone: after how many of its calls the run was cancelled. Others may follow.
    """

    calls: list[Call] = field(default_factory=list)
    cancelled: str | None = None
    told_after: int | None = None


@dataclass(slots=True)
class Fold:
    """A run as its log tells it: prologue and current turn, each with the calls of their scopes."""

    windows: list[dict[str, ScopeLog]] = field(default_factory=lambda: [{}])
    operations: dict[str, Call] = field(default_factory=dict)
    input: str | None = None
    version: str = ""
    """The version of the agent that the run is of by now: the one that started it, that has made the state of the
    present turn, or whose rule was applied last.
    """
    started: kinds.Started | None = None
    ended: kinds.Ended | None = None
    result: str | None = None
    duplicate: str = ""
    """The operation with an effect too many that nobody has acknowledged yet."""
    lost: str = ""
    """Which entries the database has lost, until a person has decided."""
    orphans: dict[str, Call] = field(default_factory=dict)
    """Operations of lost entries that no call has met again, by id: in no scope, because their place is not known."""
    keys: dict[str, Call] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    """Where builds have diverged since the present turn began, the last one last."""
    mail: dict[str, list[Arrival]] = field(default_factory=dict)
    """By topic, in the order of arrival, what no call has received yet."""
    cancelling: kinds.Cancelling | None = None
    retried: int = -1
    """The entry by which a person has let it be tried again, last time."""

    @property
    def window(self) -> int:
        """The number of the window that is open: 0 is the prologue, n + 1 is turn n. Part of every operation's key."""
        root = self.current.get("")
        return root.calls[0].number + 1 if len(self.windows) > 1 and root is not None else 0

    @property
    def current(self) -> dict[str, ScopeLog]:
        """The scopes of the window that is still open."""
        return self.windows[-1]

    def sent(self, operation: str) -> Call | None:
        """The call of an operation, also of one whose place in the log was lost."""
        return self.operations.get(operation) or self.orphans.get(operation)

    def in_doubt(self, *, orphans: bool = False) -> list[Call]:
        """Operations that are pending, unknown, or have their outcome to come; with those of lost entries that no call
        has met again, if asked.
        """
        known = [*self.operations.values(), *(self.orphans.values() if orphans else ())]
        return [c for c in known if c.sent and c.sent.status in OPEN]


def moved(state: Fold, since: int, by: int) -> None:
    """What was folded in as entry `since` and later has become entries that are `by` further on."""
    for mail in state.mail.values():
        for one in mail:
            one.seq += by if one.seq >= since else 0
    for call in state.keys.values():
        call.seq += by if call.seq >= since else 0
    state.retried += by if state.retried >= since else 0


def unfold(state: Fold, key: str, was: Call | None) -> None:
    """Take back what was folded in of a call, with an append that was refused; `was` is the call before, if any."""
    call = state.keys.get(key)
    if call is None:
        return
    if call.sent is not None and (was is None or was.sent is None):
        state.operations.pop(call.sent.id, None)
    if was is None:
        del state.keys[key]
        scope = _scope(state, call.scope)
        scope.calls = [one for one in scope.calls if one is not call]
        return
    for one in fields(was):
        setattr(call, one.name, getattr(was, one.name))


def fold(entries: Iterable[Entry]) -> Fold:
    """Fold a window (or a whole log). Raises UndecodableEntry."""
    state = Fold()
    for entry in entries:
        step(state, entry.seq, kinds.read(entry), entry.scope, entry.key, entry.payload)
    return state


# What says nothing to replay.
_OF_THE_RUN = (kinds.ClaimedBy, kinds.Suspended, kinds.Released, kinds.TooLate, kinds.Paused, kinds.Resumed)


def step(state: Fold, seq: int, fact: kinds.Fact, scope: str, key: str, payload: str | None) -> None:
    """Fold one fact in. The only place that says what an entry means for replay."""
    match fact:
        case kinds.Turn():
            _turn(state, seq, fact, scope, key, payload)
        case kinds.Call():
            _call(state, seq, fact, scope, key, payload)
        case kinds.ScopeCancelled() | kinds.Cancelling():
            _cancelled(state, fact, scope)
        case kinds.Joined() | kinds.Decided() | kinds.Reminded():
            _of_a_call(state, seq, fact, key, payload)
        case kinds.Arrived():
            state.mail.setdefault(fact.topic, []).append(Arrival(seq, fact.sender_key, payload or "null"))
        case kinds.Started() | kinds.Forked():
            _begun(state, fact, payload)
        case kinds.Ended():
            state.ended, state.result = fact, payload
        case kinds.Retried() | kinds.EntriesLost():
            _stood(state, seq, fact)
        case kinds.Blocked():
            state.differences += [fact.difference] if fact.difference is not None else []
        case kinds.Adopted() | kinds.StateAdopted():
            _adopted(state, seq, fact, scope, payload)
        case _:
            if not isinstance(fact, _OF_THE_RUN):
                _operation(state, seq, fact, payload)


def _begun(state: Fold, fact: kinds.Started | kinds.Forked, payload: str | None) -> None:
    if isinstance(fact, kinds.Started):
        state.started, state.input, state.version = fact, payload, fact.version
    else:
        state.mail = {}  # what nobody has received was sent to the parent, and is still there for it


def _of_a_call(
    state: Fold, seq: int, fact: kinds.Joined | kinds.Decided | kinds.Reminded, key: str, payload: str | None
) -> None:
    call = state.keys.get(key)
    if not isinstance(fact, kinds.Joined):
        decided(call, seq, fact, payload)
    elif call is None or fact.branch not in call.branches:
        why = f"it tells the end of the branch {fact.branch} of {key}, which was not opened"
        raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why=why)
    else:
        call.joined = fact


def _cancelled(state: Fold, fact: kinds.ScopeCancelled | kinds.Cancelling, scope: str) -> None:
    if isinstance(fact, kinds.ScopeCancelled):
        _scope(state, scope).cancelled = fact.why
        return
    state.cancelling = fact
    root = _scope(state, "")
    root.told_after = len(root.calls)
    if fact.cut and (call := state.keys.get(fact.cut)) is not None:
        call.cut = True


def _scope(state: Fold, scope: str) -> ScopeLog:
    return state.current.setdefault(scope, ScopeLog())


def _turn(state: Fold, seq: int, fact: kinds.Turn, scope: str, key: str, payload: str | None) -> None:
    if len(state.windows) > 1:
        gone = {id(call) for log in state.windows.pop().values() for call in log.calls}
        state.operations = {name: call for name, call in state.operations.items() if id(call) not in gone}
    state.windows.append({})
    state.version = fact.version or (state.started.version if state.started is not None else "")
    call = Call("turn", scope, key, fact.name, fact.digest, fact.shown, seq, True, payload, number=fact.number)
    call.version, call.left = state.version, tuple(fact.left)
    _scope(state, scope).calls.append(call)
    state.keys = {key: call}
    state.differences = []
    state.mail = {}  # the same append carries over what nobody has received
    state.orphans = {one.operation: _orphan(one, seq) for one in fact.lost}


def _call(state: Fold, seq: int, fact: kinds.Call, scope: str, key: str, payload: str | None) -> None:
    if isinstance(fact, kinds.MetAgain):
        _met_again(state, seq, fact, scope, key)
        return
    call = state.keys.get(key)
    if call is not None and call.kind != _kind(fact):
        raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why=f"its key is that of a {call.kind}")
    if call is None:
        call = Call(_kind(fact), scope, key, fact.name, fact.digest, fact.shown, seq, version=state.version)
        state.keys[key] = call
        _place(_scope(state, scope).calls, call)
    match fact:
        case kinds.StepTried():
            call.attempt, call.retry_at, call.error = fact.attempt, fact.retry_at, fact.error
        case kinds.StepDone() | kinds.Done():
            _finished(state, seq, call, fact, payload)
        case kinds.Intent() | kinds.Held() | kinds.Shared():
            _intent(state, seq, call, fact, payload)
        case kinds.Proposed():
            call.asked = asked(fact)
        case kinds.Opened():
            call.branches, call.done = tuple(fact.branches), True
        case kinds.Value() | kinds.Emitted() | kinds.RollingBack():
            call.done, call.payload = True, payload
        case kinds.Waiting():
            call.until = fact.until
        case kinds.Woken():
            _woken(state, seq, call, fact)
        case _:
            raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why="a call of a kind that cannot be folded")


def key_before(key: str, entry: int) -> str:
    """The key of a step that was let in before the call whose first entry that is: its place is part of its key."""
    return f"{key}@{entry}"


def _place(calls: list[Call], call: Call) -> None:
    """Behind all that is recorded, or where a person has let it in."""
    _, _, before = call.key.rpartition("/")[2].partition("@")
    if not before:
        calls.append(call)
        return
    at = next((place for place, one in enumerate(calls) if one.seq == int(before)), len(calls))
    calls.insert(at, call)
    if at + 1 < len(calls) and (adopted := calls[at + 1].adopted) is not None:
        adopted.let_in.discard((call.name, call.digest))


def find(state: Fold, scope: str, entry: int) -> Call | None:
    """The call of the present window whose first entry that is."""
    recorded = state.current.get(scope)
    return next((call for call in recorded.calls if call.seq == entry), None) if recorded is not None else None


def _adopted(state: Fold, seq: int, fact: kinds.Adopted | kinds.StateAdopted, scope: str, payload: str | None) -> None:
    call = find(state, scope, fact.entry)
    if call is None:
        raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why=f"no call was recorded first as {fact.entry}")
    state.version = fact.version or state.version
    if isinstance(fact, kinds.StateAdopted):
        if call.kind != "turn":
            raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why=f"entry {fact.entry} is no turn")
        call.left = tuple(one for one in (*call.left, fact.of) if one != fact.version)
        call.name = call.shown = fact.name
        call.digest, call.version, call.payload = fact.digest, fact.version, payload
        return
    adopted = call.adopted = call.adopted or Adopted()
    step = (fact.name, fact.digest)
    if fact.how in ("skip", "run-again"):
        adopted.skippable = True
    if fact.how in ("insert", "run-again"):
        adopted.let_in.add(step)
    if fact.how == "take-old":
        adopted.takers.add(step)


def _finished(state: Fold, seq: int, call: Call, fact: kinds.StepDone | kinds.Done, payload: str | None) -> None:
    call.done, call.payload, call.attempt = True, payload, fact.attempt
    call.error, call.declared = fact.error, fact.declared
    if isinstance(fact, kinds.Done):
        call.seq = seq
        status: OperationStatus = "succeeded" if fact.error is None else "raised" if fact.declared else "failed"
        call.sent = Sent(fact.operation, "transactional", fact.idempotency_key, fact.arguments, 0, 0, 0, 0, status)
        call.sent.how, call.sent.approval, call.sent.executed = "call", fact.approval, fact.executed
        call.sent.business_key, call.sent.business_shown = fact.business_key, fact.business_shown
        state.operations[fact.operation] = call


def _woken(state: Fold, seq: int, call: Call, fact: kinds.Woken) -> None:
    call.done, call.arrival, call.refused = True, fact.arrival, fact.refused
    if fact.arrival is None:
        return
    mail = state.mail.get(fact.topic, [])
    found = [one for one in mail if one.seq == fact.arrival]
    if not found:
        raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why=f"no message arrived as entry {fact.arrival}")
    mail.remove(found[0])
    call.payload = found[0].payload


_CALLS: dict[type[kinds.Call], CallKind] = {
    kinds.Intent: "operation", kinds.Done: "operation", kinds.Opened: "branches", kinds.Value: "value",
    kinds.Proposed: "operation", kinds.Held: "operation", kinds.Emitted: "emit", kinds.Waiting: "wait",
    kinds.Woken: "wait", kinds.RollingBack: "rollback", kinds.Shared: "operation",
}  # fmt: skip


def _kind(fact: kinds.Call) -> CallKind:
    if isinstance(fact, kinds.StepDone | kinds.StepTried):
        return "operation" if fact.tool else "step"
    return _CALLS.get(type(fact), "step")


def _shared(state: Fold, call: Call, fact: kinds.Shared, payload: str | None) -> None:
    """What its business key stands for. Where that is an outcome, it is the call's, which has a record of its own."""
    call.done, call.payload, call.error, call.declared = True, payload, fact.error, fact.status == "raised"
    if fact.status not in ("succeeded", "raised"):
        call.barred = fact
        if call.sent is not None:
            call.sent.status, call.sent.how = "failed", "shared"
        return
    if call.sent is None:
        call.sent = Sent(fact.operation, fact.effect, fact.idempotency_key, fact.arguments, 0, 0, 0, 0)
        state.operations[fact.operation] = call
    sent = call.sent
    sent.status = "raised" if call.declared else "succeeded"
    sent.how, sent.executed, sent.shared = "shared", fact.executed, (fact.run, fact.theirs)
    sent.business_key, sent.business_shown = fact.business_key, fact.business_shown


def _held(state: Fold, call: Call, fact: kinds.Held, payload: str | None) -> None:
    if call.sent is None:
        call.sent = Sent(fact.operation, fact.effect, fact.idempotency_key, payload or "{}", 0, 0, 0, 0)
        state.operations[fact.operation] = call
    call.sent.status, call.sent.theirs = "held", fact.theirs


def _intent(
    state: Fold, seq: int, call: Call, fact: kinds.Intent | kinds.Held | kinds.Shared, payload: str | None
) -> None:
    if not isinstance(fact, kinds.Intent):
        if isinstance(fact, kinds.Held):
            _held(state, call, fact, payload)
        else:
            _shared(state, call, fact, payload)
        return
    if call.sent is None:
        call.sent = Sent(
            fact.operation, fact.effect, fact.idempotency_key, payload or "{}", fact.first_sent_at, fact.send_by,
            fact.timeout_ms, fact.settle_ms, compensates=fact.compensates,
        )  # fmt: skip
        state.operations[fact.operation] = call
    elif call.attempt == 0:
        # It was held, and is sent now: only here it is known what it is sent as.
        call.sent.effect, call.sent.timeout_ms, call.sent.settle_ms = fact.effect, fact.timeout_ms, fact.settle_ms
        call.seq = seq
    # What is done once more on purpose has another key than before.
    call.sent.key, call.sent.first_sent_at = fact.idempotency_key, fact.first_sent_at
    call.sent.arguments = payload or call.sent.arguments
    call.sent.approval, call.sent.executed = fact.approval, fact.executed
    call.sent.business_key, call.sent.business_shown = fact.business_key, fact.business_shown
    call.attempt, call.sent.send_by, call.sent.status = fact.attempt, fact.send_by, "pending"
    call.sent.lost, call.sent.lookups, call.sent.again_at = False, 0, 0
    call.sent.until, call.sent.denied = 0, False


def _stood(state: Fold, seq: int, fact: kinds.Retried | kinds.EntriesLost) -> None:
    """The run stands still until a person has decided, or goes on because one has."""
    if isinstance(fact, kinds.Retried):
        state.duplicate, state.lost, state.retried = "", "", seq
        for call in state.operations.values():
            if call.sent is not None:
                call.sent.lookups, call.sent.again_at = 0, 0
                # What undoes something has no other outcome than that: it is tried as often as a person asks for it.
                call.sent.spent = 0 if call.sent.compensates else call.sent.spent
        return
    state.lost = f"the database has lost entries {fact.first}-{fact.last}: {'; '.join(fact.entries[:_SHOWN])}"
    for one in fact.operations:
        if one.operation not in state.operations:
            state.orphans.setdefault(one.operation, _orphan(one, seq))


def _orphan(one: kinds.LostOperation, seq: int) -> Call:
    sent = Sent(
        one.operation, one.effect, one.idempotency_key, one.arguments, one.first_sent_at, one.send_by, one.timeout_ms,
        one.settle_ms, one.status, not_before=one.not_before, how=one.how, lost=True, compensates=one.compensates,
        business_key=one.business_key, business_shown=one.business_shown,
    )  # fmt: skip
    call = Call("operation", one.scope, one.key, one.name, one.digest, one.shown, seq, attempt=one.attempt, sent=sent)
    if one.status in SETTLED:
        _settle(call, sent, one.status, one.payload, one.error, one.how)
    return call


def lost_operation(call: Call) -> kinds.LostOperation:
    """An orphan as the entry of the next turn carries it on. The inverse of what folding that entry makes of it."""
    sent = call.sent
    assert sent is not None and sent.effect in ("idempotent", "external")
    return kinds.LostOperation(
        operation=sent.id, name=call.name, effect=sent.effect, scope=call.scope, key=call.key, digest=call.digest,
        shown=call.shown, idempotency_key=sent.key, arguments=sent.arguments, attempt=call.attempt,
        first_sent_at=sent.first_sent_at, send_by=sent.send_by, timeout_ms=sent.timeout_ms, settle_ms=sent.settle_ms,
        not_before=sent.not_before, status=sent.status, how=sent.how, payload=call.payload, error=call.error,
        compensates=sent.compensates, business_key=sent.business_key, business_shown=sent.business_shown,
    )  # fmt: skip


def _met_again(state: Fold, seq: int, fact: kinds.MetAgain, scope: str, key: str) -> None:
    call = state.orphans.pop(fact.operation, None)
    if call is None:
        raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why=f"no lost entry told of {fact.operation}")
    call.scope, call.key, call.seq = scope, key, seq
    known = state.operations[fact.operation] = state.keys.setdefault(key, call)
    if known is call:
        _scope(state, scope).calls.append(call)
    else:
        sent_before(known, call)


def _operation(state: Fold, seq: int, fact: kinds.Fact, payload: str | None) -> None:
    operation: object = getattr(fact, "operation", None)
    call = state.sent(str(operation))
    if call is None and isinstance(fact, kinds.Evidence | kinds.Completed):
        # It speaks of a turn that has left the window: only an effect too many still matters.
        state.duplicate = fact.operation if fact.verdict == "duplicate" else state.duplicate
        return
    if call is None and isinstance(fact, kinds.Resolved):
        return
    if call is None or call.sent is None:
        raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why=f"it speaks of {operation}, which has no intent")
    sent = call.sent
    match fact:
        case kinds.Outcome():
            _settle(call, sent, fact.status, payload, fact.error, fact.how)
        case kinds.NotActed():
            sent.status, call.error, call.retry_at = "retrying", fact.error, fact.retry_at
            sent.spent += 0 if fact.free else 1
        case kinds.InDoubt():
            sent.status, sent.not_before, sent.again_at = "unknown", fact.not_before, fact.again_at
            sent.lost = sent.lost or fact.lost
            sent.spent += 1 if sent.effect == "idempotent" and not fact.lost else 0
        case kinds.LookedUp():
            sent.lookups, sent.again_at = fact.number, fact.again_at
        case kinds.Absent() | kinds.Later() | kinds.Completed():
            _heard(state, call, sent, fact, payload)
        case kinds.Noted():
            sent.notes.update(fact.facts)
        case kinds.Resolved():
            _resolved(state, call, sent, fact, payload)
        case kinds.Evidence():
            _evidence(state, call, sent, fact, payload)
        case _:
            raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why="it cannot be folded")


def _heard(
    state: Fold, call: Call, sent: Sent, fact: kinds.Absent | kinds.Later | kinds.Completed, payload: str | None
) -> None:
    match fact:
        case kinds.Absent():
            sent.spent += cost(sent)
            sent.status = "absent"
        case kinds.Later():
            later(call, sent, fact)
        case _ if completed(call, sent, fact, payload):
            state.duplicate = sent.id
        case _:
            pass


def _settle(
    call: Call, sent: Sent, status: OperationStatus, payload: str | None, error: kinds.ErrorRecord | None, how: str
) -> None:
    sent.status, sent.how = status, how
    call.done, call.payload, call.error, call.declared = True, payload, error, status == "raised"


def _resolved(state: Fold, call: Call, sent: Sent, fact: kinds.Resolved, payload: str | None) -> None:
    match fact.decision:
        case "happened":
            _settle(call, sent, "succeeded", payload, None, "person")
        case "did-not-happen":
            sent.spent += cost(sent)
            sent.status = "absent"
        case "reuse":
            _settle(call, sent, "succeeded", payload, None, "reuse")
        case "repeat":
            sent.status, sent.again, call.retry_at = "retrying", True, 0
        case "abandon":
            _settle(call, sent, "abandoned", None, kinds.ErrorRecord(type="Abandoned", message=fact.why), "person")
        case _:
            assert_never(fact.decision)
    if not state.in_doubt(orphans=True):
        state.lost = ""  # what was to be decided is decided


def _evidence(state: Fold, call: Call, sent: Sent, fact: kinds.Evidence, payload: str | None) -> None:
    if fact.verdict == "duplicate":
        sent.duplicates += 1
        state.duplicate = sent.id
    elif fact.verdict == "settles" and fact.answer != "sent late":
        _settle(call, sent, fact.answer, payload, fact.error, "evidence")
