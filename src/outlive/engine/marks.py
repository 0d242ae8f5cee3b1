"""What an append says of business keys: it follows from the operations that the append changes, or ends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from outlive.engine.notices import Fact
from outlive.log import kinds
from outlive.log.fold import Call, Fold
from outlive.model.business import KeyMark, KeyStatus, key_status
from outlive.model.ids import OperationId, RunId
from outlive.model.operation import OPEN, OperationRow
from outlive.model.run import ENDED, Status

_error: TypeAdapter[kinds.ErrorRecord] = TypeAdapter(kinds.ErrorRecord)
_WAITING = frozenset(("retrying", "absent", "held"))


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a run as an append leaves it: its log, what was recorded last, and whether the run goes on."""

    run: RunId
    fold: Fold
    facts: Sequence[Fact]
    change: Status | None
    reason: str
    ended: bool

    @property
    def over(self) -> bool:
        """Whether nothing of it is sent any more."""
        return self.ended or self.change in ENDED

    @property
    def stands(self) -> bool:
        """Whether a person has to decide, also where another branch goes on by itself."""
        return self.change == "blocked" or self.reason == "operation in doubt"

    @property
    def parts(self) -> bool:
        """Whether something is left behind that will not be sent any more, or that nobody goes on with."""
        return self.over or self.stands or any(isinstance(fact, _CUTS) for fact, _ in self.facts)


_CUTS = kinds.ScopeCancelled | kinds.Cancelling
_ACTED = kinds.ErrorRecord(type="Abandoned", message="it has acted after all, although that was known not to be so")


def written(error: kinds.ErrorRecord | None) -> str:
    """An error as the row of a business key holds it."""
    return "" if error is None else _error.dump_json(error, exclude_defaults=True).decode()


def read(text: str) -> kinds.ErrorRecord | None:
    """The inverse. Raises ValueError."""
    return _error.validate_json(text) if text else None


def marks(
    at: Moment, touched: Iterable[Call], rows: Sequence[OperationRow], take: KeyMark | None
) -> tuple[KeyMark, ...]:
    """What became of the keys of these calls and records, and of all others that the append puts an end to."""
    calls = {id(call): call for call in touched if _keyed(call)}
    if at.parts:
        known = (*at.fold.operations.values(), *at.fold.orphans.values())
        calls |= {id(call): call for call in known if _keyed(call) and call.sent and call.sent.status in _UNSETTLED}
    found = {mark.operation: mark for mark in (_of_call(at, call) for call in calls.values())}
    for row in rows:
        if row.business_key and row.how != "shared" and row.id not in found:
            found[row.id] = _of_row(at, row)
    if take is not None:
        found.pop(take.operation, None)
    return tuple(found.values())


_UNSETTLED = OPEN | _WAITING


def _keyed(call: Call) -> bool:
    return call.sent is not None and bool(call.sent.business_key) and call.sent.how != "shared"


def _of_call(at: Moment, call: Call) -> KeyMark:
    sent = call.sent
    assert sent is not None
    over = at.over or (sent.status in _WAITING and (call.cut or _left(at.fold, call.scope)))
    acted = sent.duplicates > 0
    status = key_status(sent.status, over=over, stands=at.stands, acted=acted)
    error = _ACTED if acted and status == "abandoned" else call.error
    return KeyMark(
        sent.business_key, sent.business_shown, call.name, sent.executed or call.digest, at.run, OperationId(sent.id),
        status, call.payload if status == "succeeded" else None, _told(status, error),
    )  # fmt: skip


def _of_row(at: Moment, row: OperationRow) -> KeyMark:
    """Of an operation that the log's window has not: what was said of it is among the facts of the append."""
    # What has left the window is not sent any more.
    over = at.over or (row.status in _WAITING and at.fold.sent(row.id) is None)
    acted = row.duplicates > 0
    status = key_status(row.status, over=over, stands=at.stands, acted=acted)
    payload, error = row.outcome, _ACTED if acted else None
    for fact, given in _about(at, row.id):
        payload = given if given is not None else payload
        error = getattr(fact, "error", None) or error
        if isinstance(fact, kinds.Resolved):
            error = kinds.ErrorRecord(type="Abandoned", message=fact.why)
    return KeyMark(
        row.business_key, "", row.tool, row.executed or row.digest, at.run, row.id, status,
        payload if status == "succeeded" else None, _told(status, error),
    )  # fmt: skip


def _about(at: Moment, operation: str) -> Iterator[Fact]:
    return ((fact, payload) for fact, payload in at.facts if getattr(fact, "operation", None) == operation)


def _told(status: KeyStatus, error: kinds.ErrorRecord | None) -> str:
    return written(error) if status in ("raised", "abandoned") else ""


def _left(fold: Fold, scope: str) -> bool:
    """Whether a scope was cancelled, or one above it: then what waits in it is not sent any more."""
    return any(
        log.cancelled is not None and (scope == name or scope.startswith(f"{name}/"))
        for window in fold.windows
        for name, log in window.items()
        if name
    )
