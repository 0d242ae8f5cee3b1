"""Outcomes that come later: an operation waits for what the other side tells, as a row, until its time is over.

What it tells is judged by what is recorded at the moment at which it gets its place in the log. While the call itself
is in flight it stays in the inbox: first comes what the call says, then what was told of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter

from outlive.engine.doubt import left_to_wait_ms, watch
from outlive.engine.scope import Parked
from outlive.log import kinds
from outlive.log.fold import Call, Sent
from outlive.log.verdict import Told, told
from outlive.model.operation import Effect, OperationRow, OperationStatus

if TYPE_CHECKING:
    from outlive.engine.send import Send

# The topic of what the other side tells.
COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class Word:
    """The body of a completion: what was told of attempt `attempt`. `payload` is the outcome, if it happened."""

    operation: str
    attempt: int
    key: str
    answer: Literal["happened", "did not happen"]
    payload: str | None = None
    who: str = ""
    why: str = ""


_word: TypeAdapter[Word] = TypeAdapter(Word)


def written(word: Word) -> str:
    """A completion as the text of an inbox row."""
    return _word.dump_json(word).decode()


def read(body: str) -> Word:
    """The inverse. Raises ValueError."""
    return _word.validate_json(body)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is recorded of an operation, of which something is told."""

    effect: Effect
    status: OperationStatus
    attempt: int
    outcome: str | None
    not_before: int


def of_call(word: Word, call: Call, now: int) -> kinds.Completed:
    """What it means for an operation that the fold knows."""
    sent = call.sent
    assert sent is not None
    outcome = call.payload if sent.status == "succeeded" else None
    return _judged(word, _Known(sent.effect, sent.status, call.attempt, outcome, sent.not_before), word.payload, now)


def of_row(word: Word, row: OperationRow, payload: str | None, now: int) -> kinds.Completed:
    """What it means for an operation of which there is the record alone; `payload` is the outcome as that has it."""
    return _judged(word, _Known(row.effect, row.status, row.attempt, row.outcome, row.not_before), payload, now)


def _judged(word: Word, known: _Known, payload: str | None, now: int) -> kinds.Completed:
    judged: Told = told(
        known.effect, known.status, known.attempt, known.outcome, attempt=word.attempt,
        happened=word.answer == "happened", payload=payload, early=known.status == "pending" or now < known.not_before,
    )  # fmt: skip
    return kinds.Completed(
        operation=word.operation, attempt=word.attempt, key=word.key, answer=word.answer, verdict=judged, who=word.who,
        why=word.why,
    )  # fmt: skip


def recorded(row: OperationRow, fact: kinds.Completed, at: int, outcome: str | None) -> OperationRow:
    """The record of an operation after that, where the fold does not have it."""
    if fact.verdict == "duplicate":
        return replace(row, duplicates=row.duplicates + 1, updated_at=at)
    if fact.verdict != "settles":
        return row
    happened = fact.answer == "happened"
    return replace(
        row, status="succeeded" if happened else "absent", how="completion", updated_at=at, error="",
        outcome=outcome if happened else None,
    )  # fmt: skip


async def awaited(send: Send, call: Call, sent: Sent) -> None:
    """One move towards the outcome; the caller looks at what is recorded then. Parks while it is to come."""
    attempt = send.attempt
    await send.hear()
    if sent.status != "later":
        return
    if attempt.kit.time.now() >= sent.until:
        await send.record(given_up(send, call, sent, f"no outcome has come until {moment(sent.until)}"))
        return
    why = f"the outcome of {send.asked.shown}"
    try:
        await attempt.park(send.scope, Parked(why, until=sent.until, message=True, cancellable=False))
    except asyncio.CancelledError:
        if attempt.leaving(send.scope):
            await send.leave(call, sent)
        raise


def given_up(send: Send, call: Call, sent: Sent, why: str) -> kinds.InDoubt:
    """Nobody waits for its outcome any longer. What was believable before is so still."""
    kit = send.attempt.kit
    watch(kit, sent.id, sent.not_before)
    again_at = kit.time.now() if sent.effect == "idempotent" else 0
    return kinds.InDoubt(
        operation=sent.id, attempt=call.attempt, why=why, not_before=sent.not_before, again_at=again_at
    )


async def denied(send: Send, call: Call, sent: Sent) -> None:
    """The other side has said that it did not happen, too early to be believed: it is when no request can be on its
    way any more.
    """
    kit = send.attempt.kit
    at = max(sent.not_before, kit.time.now() + left_to_wait_ms(kit, sent.id))
    await send.attempt.wait_until(
        send.scope, at, f"believing that {send.asked.shown} did not happen", cancellable=False
    )
    if sent.status == "unknown":
        await send.record(kinds.Absent(operation=sent.id, attempt=call.attempt, how="completion"))


def moment(at: int) -> str:
    """A moment of the database as people read it."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
