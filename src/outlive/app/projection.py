"""What the rows beside a log have to be by the log: its run's row and its operation records, folded from the entries.

The records that the engine writes are made here once more from the same fold, and compared column by column. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace

from outlive.app.consents import Consented
from outlive.engine import later
from outlive.engine.inbox import decided, settled
from outlive.engine.journal import brief, record_of
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.log.fold import Fold, step
from outlive.model.business import KeyMark, key_status
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import UNDER_WAY, OperationRow
from outlive.model.run import Head, RunRow, Status
from outlive.store.survey import Recorded

# A record that takes a message in has the time at which it was read; its entry that of the append, which may wait.
_APART_MS = 60_000


@dataclass(slots=True)
class Expected:
    """An operation record by the log.

    `late` says that its time may differ, `told` that it comes from lost entries and no entry has all of it. `oldest` is
    the first epoch that it may have: an append whose outcome was unknown is written again under the next one, with the
    records as they were.
    """

    row: OperationRow
    data_class: str
    key_id: str
    oldest: int
    late: bool = False
    told: bool = False


@dataclass(slots=True)
class Projection:
    """A log as far as it was read, and the rows that follow from it."""

    tenant: Tenant
    run: RunId
    fold: Fold = field(default_factory=Fold)
    head: Head = Head(0, b"")
    operations: dict[str, Expected] = field(default_factory=dict)
    statuses: frozenset[Status] = frozenset()
    epoch: int = 0
    oldest: int = 0
    """The first of the epochs in a row that one worker had, each claimed again from itself."""
    reason: str = ""
    wake_at: int = 0
    paused: bool = False
    turns: list[int] = field(default_factory=list)
    """The first and the last entry that began a turn."""
    forked: kinds.Forked | None = None
    consented: Consented = field(default_factory=Consented)
    doubted: dict[str, int] = field(default_factory=dict)
    """Operations in doubt, by the epoch of the entry that says so."""

    def take(self, entry: Entry) -> None:
        """Fold the next entry in. Raises UndecodableEntry."""
        fact = kinds.read(entry)
        step(self.fold, entry.seq, fact, entry.scope, entry.key, entry.payload)
        self.head = Head(entry.seq + 1, entry.digest)
        self._stand(entry, fact)
        self._project(entry, fact)
        self.consented.take(entry, fact)

    def _stand(self, entry: Entry, fact: kinds.Fact) -> None:
        match fact:
            case kinds.Ended():
                self.statuses = frozenset((fact.status,))
                for one in self.operations.values() if fact.status in ("expired", "cancelled") else ():
                    self._expire(one, entry)
            case _ if self.fold.ended is not None and not isinstance(fact, kinds.ClaimedBy):
                pass
            case kinds.ClaimedBy():
                self.epoch = entry.epoch
                self.oldest = self.oldest if fact.why == "again" else entry.epoch
                if self.fold.ended is None:
                    # A control claim leaves the status, and may leave the run ready without another entry.
                    self.statuses = (
                        self.statuses | {"ready"} if fact.why == "control" else frozenset(("running",))
                    )  # fmt: skip
            case kinds.Started() | kinds.Released() | kinds.Retried() | kinds.Adopted():
                # Adopting before any build has diverged changes nothing about how the run stands.
                stays = isinstance(fact, kinds.Adopted) and (self.reason, "blocked" in self.statuses) != (
                    "diverged",
                    True,
                )
                self.statuses = self.statuses if stays else frozenset(("ready",))
            case kinds.Paused() | kinds.Resumed():
                self.statuses, self.paused = frozenset((fact.status,)), isinstance(fact, kinds.Paused)
            case kinds.Suspended():
                self.statuses, self.wake_at = frozenset(("waiting",)), fact.wake_at
            case kinds.Blocked():
                # Another build may go on with what this one cannot.
                self.statuses = frozenset(("blocked", "ready") if fact.reason == "diverged" else ("blocked",))
                self.reason = fact.reason
            case kinds.Forked():
                # What is before it is history: its operations are those of the parent.
                self.forked, self.statuses, self.operations = fact, frozenset(("ready",)), {}
                self.paused = False
            case kinds.Turn():
                self.turns = [self.turns[0] if self.turns else entry.seq, entry.seq]
            case _:
                pass

    def _expire(self, one: Expected, entry: Entry) -> None:
        if one.row.status in UNDER_WAY:
            one.row, one.late = replace(one.row, status="unknown", updated_at=entry.at), True

    def _project(self, entry: Entry, fact: kinds.Fact) -> None:
        if isinstance(fact, kinds.EntriesLost):
            self._lost(entry, fact)
            return
        id = str(getattr(fact, "operation", "") or "")
        known, call = self.operations.get(id), self.fold.sent(id)
        if isinstance(fact, kinds.Resolved | kinds.Evidence):
            if known is not None:
                self._judged(known, entry, fact)
        elif isinstance(fact, kinds.Completed) and (call is None or self.fold.ended is not None):
            if known is not None:
                known.row, known.late = later.recorded(known.row, fact, entry.at, brief(entry.payload)), True
        elif call is not None and call.sent is not None:
            row = record_of(call, self.tenant, self.run, entry.epoch, entry.at)
            if isinstance(fact, kinds.InDoubt):
                self.doubted[id] = entry.epoch
            if known is None:
                self.operations[id] = Expected(row, entry.data_class, entry.key_id, self.oldest)
            else:
                known.row, known.late, known.told, known.oldest = row, False, False, self.oldest

    def _judged(self, known: Expected, entry: Entry, fact: kinds.Resolved | kinds.Evidence) -> None:
        row = known.row
        if isinstance(fact, kinds.Resolved):
            known.row = decided(row, fact.decision, entry.at, entry.payload)
        elif fact.verdict == "settles" and fact.answer != "sent late":
            known.row = settled(row, fact.answer, "evidence", entry.at, entry.payload, fact.error)
        elif fact.verdict == "duplicate":
            known.row = replace(row, duplicates=row.duplicates + 1, updated_at=entry.at)
        known.late = True

    def _lost(self, entry: Entry, fact: kinds.EntriesLost) -> None:
        """What a worker remembers of lost entries, it writes in words that no entry has."""
        for id, epoch in self.doubted.items():
            if epoch == entry.epoch:
                self.operations[id].told = True
        for one in fact.operations:
            call = self.fold.sent(one.operation)
            if call is not None and call.sent is not None:
                row = record_of(call, self.tenant, self.run, entry.epoch, entry.at)
                self.operations[one.operation] = Expected(row, entry.data_class, entry.key_id, self.oldest, told=True)

    def of_run(self, row: RunRow) -> Iterator[tuple[str, str]]:
        """The columns of the run's row that do not fit, each with why. The row may not be older than the log."""
        started = self.fold.started
        if row.head != self.head:
            yield "head", f"the log ends before entry {self.head.seq}, the row says before {row.head.seq}"
        if started is None:
            yield "head", "the log does not begin with the start of the run"
            return
        if row.status not in self.statuses:
            yield "status", f"the row says {row.status}, the log {' or '.join(sorted(self.statuses))}"
        if row.status == "blocked" and row.reason != self.reason:
            yield "reason", f"the row says {row.reason!r}, the log {self.reason!r}"
        if row.status == "waiting" and "ready" not in self.statuses and (row.wake_at or 0) != self.wake_at:
            yield "wake_at", f"the row says {row.wake_at}, the log {self.wake_at or None}"
        if (row.paused_at is not None) != (self.paused and not row.ended):
            yield "paused_at", f"the row says {row.paused_at}, the log that it is {'' if self.paused else 'not '}paused"
        turns: list[int] | list[None] = self.turns or [None, None]
        fork = self.forked
        for name, found, meant in (
            ("epoch", row.epoch, self.epoch), ("agent", row.agent, started.agent),
            ("version", row.version, started.version), ("input_digest", row.input_digest, started.input_digest),
            ("principal", row.principal, fork.who if fork else started.principal),
            ("purpose", row.purpose, started.purpose),
            ("identity", row.identity, started.identity), ("labels", row.labels, started.labels),
            ("pin", row.pin, started.version if started.pin else None),
            ("rolls_back", row.rolls_back, started.rolls_back or None),
            ("fork_of", row.fork_of, fork.parent if fork else None),
            ("fork_seq", row.fork_seq, fork.at if fork else None),
            ("repeat_effects", row.repeat_effects, fork is not None and fork.repeat_effects),
            ("prologue_seq", row.prologue_seq, turns[0]), ("window_seq", row.window_seq, turns[1]),
        ):  # fmt: skip
            if found != meant:
                yield name, f"the row says {found!r}, the log {meant!r}"

    def of_operations(self, found: list[Recorded]) -> Iterator[tuple[str, str]]:
        """The operation records that do not fit, each with why."""
        there = {str(one.id): one for one in found}
        for id, one in there.items():
            if id not in self.operations:
                yield id, "no entry speaks of it"
            elif one.row is None:
                yield id, f"its record cannot be read: {one.wrong}"
            else:
                yield from ((id, why) for why in _differences(self.operations[id], one, one.row))
        yield from ((id, "its record is not there") for id in self.operations if id not in there)
        known = [id for id in self.operations if id in there]
        order = [id for id in there if id in self.operations]
        if known != order and not any(one.told for one in self.operations.values()):
            first = next(id for id, meant in zip(order, known, strict=True) if id != meant)
            yield first, "position: the records are not in the order of their first intents"


def _differences(meant: Expected, found: Recorded, row: OperationRow) -> Iterator[str]:
    for name, is_, should in (
        ("data_class", found.data_class, meant.data_class), ("key_id", found.key_id, meant.key_id)
    ):  # fmt: skip
        if is_ != should:
            yield f"{name}: the record says {is_!r}, the log {should!r}"
    names = ["status", "tool", "effect", "key"] if meant.told else [one.name for one in fields(OperationRow)]
    for name in names:
        is_, should = getattr(row, name), getattr(meant.row, name)
        if is_ != should and not _allowed(meant, name, row):
            yield f"{name}: the record says {_short(is_)}, the log {_short(should)}"


def _allowed(meant: Expected, name: str, row: OperationRow) -> bool:
    """What may differ without that anything was changed."""
    match name:
        case "updated_at":
            late = meant.late and 0 <= meant.row.updated_at - row.updated_at <= _APART_MS
            return late or bool(row.compensated_by)
        case "epoch":
            return meant.oldest <= row.epoch <= meant.row.epoch
        case "status":
            # That it was undone is in the log of the run that has done it.
            acted = meant.row.status == "succeeded" or meant.row.duplicates > 0
            return row.status == "compensated" and bool(row.compensated_by) and acted
        case "compensated_by":
            return row.status == "compensated"
        case _:
            return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


def unlike(row: OperationRow, mark: KeyMark) -> str:
    """What of a business key does not fit an operation record that names it; empty if it fits."""
    if row.how == "shared":
        theirs = (row.shared_run, row.shared_operation)
        same = row.status == "failed" or theirs == (mark.run, mark.operation)
        return "" if same else f"it is operation {mark.operation}'s of run {mark.run}, not {theirs[1]}'s of {theirs[0]}"
    if mark.operation != row.id:
        acted = row.status in ("succeeded", "raised", "compensated")
        return f"operation {mark.operation} of run {mark.run} has it, and this one is {row.status}" if acted else ""
    acted, either = row.duplicates > 0, (True, False)
    may = {key_status(row.status, over=over, stands=stands, acted=acted) for over in either for stands in either}
    if mark.status not in may:
        return f"it is {mark.status}, the operation {row.status}"
    if mark.status == "succeeded" and brief(mark.outcome) != row.outcome:
        return f"its outcome is {_short(mark.outcome)}, that of the operation {_short(row.outcome)}"
    return ""
