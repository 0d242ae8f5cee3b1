"""Which entries of an append somebody has to be told of: decided where they are written, so that no place forgets it.

A run that becomes blocked, an operation whose outcome became unknown, an effect that happened twice, an outcome that is
contradicted, entries that were lost, a question to a person, an approval that is asked for, and the reminder of that.
What the engine settles by itself (it repeats an idempotent operation) is not told while the run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from outlive.log import kinds
from outlive.log.fold import Fold
from outlive.model.clock import Clock
from outlive.model.notice import Notice, NoticeKind
from outlive.model.operation import OperationRow
from outlive.model.run import ENDED, Status

# What is told of a text; the log has all of it.
SHOWN = 2000

Fact = tuple[kinds.Fact, str | None]
Seen = tuple[int, NoticeKind, str, dict[str, object]]

_KINDS: dict[str, NoticeKind] = {"poison": "poison", "entries lost": "entries lost"}


def noticed(
    facts: Sequence[Fact], fold: Fold, change: Status | None, rows: Sequence[OperationRow], clock: Clock
) -> tuple[Notice, ...]:
    """The notices of an append with these facts and payloads, once they are folded in; `rows` it writes beside them."""
    found: list[Seen] = []
    for place, (fact, payload) in enumerate(facts):
        if isinstance(fact, _TELLING):
            found += _of(place, fact, payload, fold, change)
    if any(isinstance(fact, kinds.Ended) for fact, _ in facts) and (
        left := [row for row in rows if row.status == "unknown"]
    ):
        # Of a log that cannot be read the records alone say what is in doubt.
        listed: list[object] = [{"operation": row.id, "tool": row.tool} for row in left]
        found.append((len(facts) - 1, "unknown operation", "", {"operations": listed, "why": f"the run has {change}"}))
    return tuple(Notice(kind, clock.token(), place, role, told) for place, kind, role, told in found)


_TELLING = (
    kinds.Blocked,
    kinds.InDoubt,
    kinds.Evidence,
    kinds.Completed,
    kinds.EntriesLost,
    kinds.Waiting,
    kinds.Proposed,
    kinds.Reminded,
)


def _of(place: int, fact: kinds.Fact, payload: str | None, fold: Fold, change: Status | None) -> Iterator[Seen]:
    match fact:
        case kinds.Blocked() if change == "blocked":
            told: dict[str, object] = {"reason": fact.reason, "detail": fact.detail[:SHOWN]}
            yield place, _KINDS.get(fact.reason, "blocked"), "", told
        case kinds.InDoubt():
            call = fold.sent(fact.operation)
            if call is None or call.sent is None:
                return
            if call.sent.effect != "idempotent" or change == "blocked" or change in ENDED:
                told = {
                    "operation": fact.operation,
                    "tool": call.name,
                    "attempt": fact.attempt,
                    "why": fact.why[:SHOWN],
                }
                yield place, "unknown operation", "", told
        case kinds.Evidence(verdict="duplicate") | kinds.Completed(verdict="duplicate"):
            call = fold.sent(fact.operation)
            told = {"operation": fact.operation, "tool": call.name if call else "", "attempt": fact.attempt}
            yield place, "duplicate effect", "", told
        case kinds.Completed(verdict="contradicts"):
            call = fold.sent(fact.operation)
            told = {"operation": fact.operation, "tool": call.name if call else "", "attempt": fact.attempt}
            yield place, "contradiction", "", {**told, "answer": fact.answer, "key": fact.key}
        case kinds.EntriesLost() if change != "blocked":
            lost = [one.operation for one in fact.operations]
            yield place, "entries lost", "", {"first": fact.first, "last": fact.last, "operations": lost}
        case kinds.Proposed():
            asked: dict[str, object] = {
                "approval": fact.approval, "operation": fact.operation, "tool": fact.name, "shown": fact.shown[:SHOWN],
                "quorum": fact.quorum, "until": fact.expires_at, "escalated": fact.escalated,
            }  # fmt: skip
            yield place, "approval", fact.role, asked
        case kinds.Reminded():
            yield place, "reminder", fact.role, {"approval": fact.approval}
        case kinds.Waiting() if payload is not None:
            yield (
                place,
                "question",
                fact.role,
                {"question": str(json.loads(payload))[:SHOWN], "question_id": fact.topic, "until": fact.until or None},
            )
        case _:
            pass
