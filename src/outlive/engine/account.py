"""What lost entries mean for a run: its operations in doubt or with the outcome that their worker saw, and the entries
and records that say so.

Nothing that may have acted is forgotten: an operation whose intent is lost goes into the log with what is needed to
meet it again, one that was sent again since is a duplicate effect.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Literal

from outlive.engine import inbox
from outlive.engine.doubt import WHY, doubts
from outlive.engine.journal import Also, Item, Journal, brief
from outlive.engine.replay import show
from outlive.log import kinds
from outlive.log.entry import Draft, Entry
from outlive.log.verdict import verdict
from outlive.model.ids import OperationId
from outlive.model.operation import OperationRow
from outlive.store.port import Change

_SHOWN = 20

Answer = Literal["succeeded", "raised", "sent late"]
Verdict = Literal["settles", "confirms", "duplicate", "no news"]


@dataclass(frozen=True, slots=True)
class Loss:
    """Entries `first` to `last` were acknowledged and are not in the log. `since` is what it has instead of them."""

    first: int
    last: int
    lost: tuple[tuple[int, Draft], ...]
    operations: tuple[OperationRow, ...]
    since: tuple[Entry, ...]


class Account:
    """What a loss means for the operations of a run, as entries and records that say it."""

    def __init__(self, journal: Journal, loss: Loss) -> None:
        self.journal, self.loss, self.now = journal, loss, journal.time.now()
        facts = [(draft, _read(seq, draft)) for seq, draft in loss.lost]
        self.intents = {fact.operation: (draft, fact) for draft, fact in facts if isinstance(fact, kinds.Intent)}
        self.outcomes = {fact.operation: (draft, fact) for draft, fact in facts if isinstance(fact, kinds.Outcome)}
        others = [kinds.read(entry) for entry in loss.since if entry.kind == kinds.Intent.KIND]
        self.sent_since = {fact.operation for fact in others if isinstance(fact, kinds.Intent)}
        self.before = doubts(journal.fold, self.now, WHY, lost=True)
        self.orphans: list[kinds.LostOperation] = []
        self.evidence: list[Item] = []
        self.rows: dict[str, OperationRow] = {}

    async def consider(self, seen: OperationRow) -> None:
        """One operation as the worker saw it last."""
        if seen.effect not in ("idempotent", "external"):
            return  # its effect was in the database, and is lost with the record
        sent = seen.id in self.intents and seen.status not in ("retrying", "absent", "failed")
        there = await self.journal.store.operation(seen.tenant, OperationId(seen.id))
        if there is None:
            if sent:
                self._orphan(seen)
                self._testify(seen, seen.attempt)
            return
        if there.status == "pending":
            there = self._unknown(there, seen, self._not_before(seen.id))
        if sent and seen.id in self.sent_since:
            if seen.effect == "external" and seen.status != "raised":
                self._evidence(seen, there, "succeeded" if seen.status == "succeeded" else "sent late", "duplicate")
        elif sent and there.status != "unknown" and self._doubt(seen):
            # An attempt before the lost one is recorded, and goes on as if it were that one.
            self._unknown(there, seen, self._not_before(seen.id))
            self._testify(seen, there.attempt)
        else:
            self.rows.setdefault(seen.id, there)
            self._testify(seen, seen.attempt)

    def _orphan(self, seen: OperationRow) -> None:
        draft, fact = self.intents[seen.id]
        assert fact.effect != "transactional"
        not_before = self._not_before(seen.id)
        self.orphans.append(
            kinds.LostOperation(
                operation=seen.id, name=seen.tool, effect=fact.effect, scope=draft.scope, key=seen.call,
                digest=seen.digest, shown=fact.shown, idempotency_key=seen.key, arguments=seen.arguments,
                attempt=seen.attempt, first_sent_at=seen.first_sent_at, send_by=fact.send_by,
                timeout_ms=fact.timeout_ms, settle_ms=fact.settle_ms, not_before=not_before,
                compensates=fact.compensates, business_key=fact.business_key, business_shown=fact.business_shown,
            )
        )  # fmt: skip
        self._unknown(seen, seen, not_before)

    def _not_before(self, operation: str) -> int:
        """From when on *did not happen* can be believed, of all attempts that anybody knows of."""
        found = [
            item.fact.not_before
            for item in self.before
            if isinstance(item.fact, kinds.InDoubt) and item.fact.operation == operation
        ]
        if operation in self.intents:
            fact = self.intents[operation][1]
            found.append(max(fact.send_by, self.now) + fact.timeout_ms + fact.settle_ms)
        return max(found, default=self.now)

    def _unknown(self, row: OperationRow, seen: OperationRow, not_before: int) -> OperationRow:
        changed = replace(
            row, status="unknown", updated_at=self.now, not_before=not_before, outcome=None, how="", error=_said(seen)
        )
        self.rows[row.id] = changed
        return changed

    def _doubt(self, seen: OperationRow) -> bool:
        call = self.journal.fold.sent(seen.id)
        if call is None:
            return False
        doubt = kinds.InDoubt(
            operation=seen.id, attempt=call.attempt, why=f"{WHY}: {_said(seen)}",
            not_before=self._not_before(seen.id), lost=True,
        )  # fmt: skip
        self.before.append(Item(doubt, call.scope, call.key))
        return True

    def _testify(self, seen: OperationRow, attempt: int) -> None:
        """The outcome that the worker saw, if it has all of it."""
        row, answer = self.rows[seen.id], seen.status
        draft, fact = self.outcomes.get(seen.id, (None, None))
        payload = draft.payload if draft is not None else None
        if fact is None or answer not in ("succeeded", "raised") or (answer == "succeeded" and payload is None):
            return
        judged = verdict(
            row.effect, row.status, row.attempt, row.outcome, attempt=attempt, answer=answer, payload=brief(payload)
        )
        self._evidence(seen, row, answer, judged)

    def _evidence(self, seen: OperationRow, row: OperationRow, answer: Answer, judged: Verdict) -> None:
        draft, fact = self.outcomes.get(seen.id, (None, None))
        payload, error = draft.payload if draft is not None else None, fact.error if fact is not None else None
        if judged == "settles":
            self.rows[row.id] = inbox.settled(row, seen.status, "evidence", self.now, payload, error)
        elif judged == "duplicate":
            self.rows[row.id] = replace(row, duplicates=row.duplicates + 1, updated_at=self.now)
        said = kinds.Evidence(
            operation=seen.id, attempt=seen.attempt, epoch=seen.epoch, answer=answer, verdict=judged, error=error
        )
        self.evidence.append(Item(said, payload=payload))

    async def append(self) -> None:
        """All of it in one commit, which ends the control claim. A run that has ended keeps its status."""
        row, loss, why = self.journal.row, self.loss, detail(self.loss)
        fact = kinds.EntriesLost(first=loss.first, last=loss.last, entries=told(loss), operations=self.orphans)
        kept = [{"seq": seq, "kind": one.kind, "body": json.loads(one.body)} for seq, one in loss.lost]
        items = [*self.before, Item(fact, payload=json.dumps(kept)), *self.evidence]
        change = Change(row.status, reason=row.reason, detail=row.detail)
        if not row.ended:
            items.append(Item(kinds.Blocked(reason="entries lost", detail=why)))
            change = Change("blocked", reason="entries lost", detail=why)
        await self.journal.append(*items, also=Also(change=change, rows=tuple(self.rows.values())))


def _read(seq: int, draft: Draft) -> kinds.Fact:
    at = (draft.at, draft.scope, draft.key, draft.body, draft.payload)
    return kinds.read(Entry(seq, 0, draft.kind, draft.version, *at, None, "", "", b""))


def told(loss: Loss) -> list[str]:
    """The lost entries, one by one, as people read them."""
    return [f"{seq} {draft.kind} {_shown(_read(seq, draft))}".rstrip() for seq, draft in loss.lost]


def _shown(fact: kinds.Fact) -> str:
    match fact:
        case kinds.Call():
            return fact.shown or fact.name
        case kinds.Outcome():
            return f"of {fact.operation}: {fact.status}"
        case kinds.Ended():
            return fact.status
        case _:
            operation: object = getattr(fact, "operation", "")
            return str(operation)


def detail(loss: Loss) -> str:
    """What is lost, with its operations first: those are what a person has to look after."""
    operations = [f"{row.id} {show(row.tool, row.arguments)}: {_said(row)}" for row in loss.operations]
    what = "; ".join(operations or told(loss)[:_SHOWN])
    return f"the database had acknowledged entries {loss.first}-{loss.last} and has lost them: {what}"


def _said(seen: OperationRow) -> str:
    """How far an operation had come when its worker saw it last."""
    match seen.status:
        case "later":
            return "its outcome was to come later"
        case "pending":
            return "it may have been sent"
        case "unknown":
            return "it was in doubt"
        case "succeeded":
            return f"it had succeeded, with the outcome {(seen.outcome or '')[:200]}"
        case "retrying" | "absent" | "failed":
            return "it had not happened"
        case _:
            return f"it had {seen.status}"
