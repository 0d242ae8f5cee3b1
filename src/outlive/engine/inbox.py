"""What others have written to a run (evidence, decisions of people) moves into its log with the owner's own appends.

Every unread row is taken, also those that change nothing any more: no message is dropped, each is answered by an entry
or by the row itself being marked as read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter

from outlive.engine import later
from outlive.engine.cancelling import Request, answers, read
from outlive.engine.journal import Also, Item, Journal, brief
from outlive.log import kinds
from outlive.log.fold import Call
from outlive.log.verdict import verdict
from outlive.model.approval import APPROVAL
from outlive.model.business import KEY
from outlive.model.ids import OperationId
from outlive.model.operation import OPEN, SETTLED, OperationRow, OperationStatus
from outlive.store.port import Change, Message

log = logging.getLogger("outlive.worker")

EVIDENCE = "evidence"
RESOLUTION = "resolution"
# Requests that a run ends or is paused.
CONTROL = "control"
# Only a wake-up: what stood in the way of a rollback may be settled.
SETTLED_ELSEWHERE = "settled elsewhere"
# Before the topic of a message for the agent's own code.
MAIL = "mail:"


@dataclass(frozen=True, slots=True)
class Testimony:
    """The body of an evidence row."""

    operation: str
    attempt: int
    epoch: int
    answer: Literal["succeeded", "raised", "sent late"]
    payload: str | None
    error: kinds.ErrorRecord | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The body of a resolution row."""

    operation: str
    attempt: int
    decision: Literal["happened", "did-not-happen", "abandon", "reuse", "repeat"]
    who: str
    why: str
    payload: str | None = None


_testimony: TypeAdapter[Testimony] = TypeAdapter(Testimony)
_decision: TypeAdapter[Decision] = TypeAdapter(Decision)


def resolution(decision: Decision) -> str:
    """A decision as the text of an inbox row."""
    return _decision.dump_json(decision).decode()


@dataclass(frozen=True, slots=True)
class News:
    """What taking the inbox in has brought: any rows at all, and the outcome of a call.

    `pause` is the first request for one, with all of them: they are left in the inbox, and the append that pauses the
    run takes them. So are, for a run that ends here, all requests: `asked`.
    """

    taken: bool = False
    progress: bool = False
    pause: tuple[Request, tuple[Message, ...]] | None = None
    asked: tuple[tuple[Request, Message], ...] = ()


async def take(
    journal: Journal, *, change: Change | None = None, ending: bool = False, read: Sequence[Message] | None = None
) -> News:
    """Move all unread rows into the log, with `change` in the same commit.

    With `ending` without those that the append which ends the run takes. `read` is what was unread when nobody else
    could take any of it.
    """
    async with journal.reading:
        messages = await journal.store.unread(journal.row.tenant, journal.row.id) if read is None else list(read)
        return await _take(journal, messages, change, ending)


async def asked(journal: Journal) -> list[Request]:
    """What the run was asked for and has not been answered."""
    unread = await journal.store.unread(journal.row.tenant, journal.row.id)
    found = [_request(journal, message) for message in unread if message.topic == CONTROL]
    return [request for request in found if request is not None]


async def _take(journal: Journal, messages: list[Message], change: Change | None, ending: bool) -> News:
    run = journal.row
    requests = [(_request(journal, message), message) for message in messages if message.topic == CONTROL]
    may_pause = not run.ended and run.paused_at is None and journal.fold.cancelling is None
    left = [(asked, message) for asked, message in requests if asked is not None and ending]
    held = [(asked, message) for asked, message in requests if may_pause and asked and asked.what == "pause"]
    kept = {message.id for _, message in (*left, *held)}
    messages = [message for message in messages if message.id not in kept]
    pause = (held[0][0], tuple(message for _, message in held)) if held else None
    if not messages and change is None:
        return News(pause=pause, asked=tuple(left))
    items: list[Item] = []
    rows: dict[str, OperationRow] = {}
    words: list[tuple[later.Word, Call]] = []
    for message in list(messages):
        if message.topic == CONTROL:
            continue
        if message.topic == later.COMPLETION and (word := _word(journal, message)) is not None:
            if journal.seam.in_flight(word.operation):
                messages.remove(message)  # first comes what the call itself says
                continue
            if (call := journal.fold.sent(word.operation)) is not None:
                words.append((word, call))
                continue
        moved = await _moved(journal, message, rows)
        if moved is not None:
            items.append(moved)
    taken = tuple(message.id for message in messages)
    # A message is no progress of the run; an outcome that it brings is.
    progress = any(row.status in SETTLED for row in rows.values()) or any(one.answer == "happened" for one, _ in words)
    # Of what the other side has told too, the record says what the log comes to with that.
    settled_so = {word.operation for word, _ in words}
    alone = tuple(row for row in rows.values() if row.id not in settled_so)
    also = Also(change=change, rows=alone, taken=taken, progress=progress)
    met = [asked for asked, message in requests if asked is not None and message.id not in kept]

    def made() -> Iterator[Item]:
        yield from answers(journal, met)
        yield from _completed(journal, words)

    if messages or change is not None:
        await journal.append(*items, also=also, made=made)
    return News(bool(messages), progress, pause, tuple(left))


def _request(journal: Journal, message: Message) -> Request | None:
    try:
        return read(message.body)
    except ValueError as error:
        log.warning("run %s: message %d in its inbox is not understood: %s", journal.row.id, message.id, error)
        return None


def _word(journal: Journal, message: Message) -> later.Word | None:
    try:
        return later.read(message.body)
    except ValueError as error:
        log.warning("run %s: message %d in its inbox is not understood: %s", journal.row.id, message.id, error)
        return None


def _completed(journal: Journal, words: Iterable[tuple[later.Word, Call]]) -> Iterator[Item]:
    """What the other side has told, judged by what is recorded when it gets its place, each after the one before.

    The turn of a call may have ended since its message was read: then it is judged by what was recorded at that end.
    """
    for word, call in words:
        fact = later.of_call(word, call, journal.time.now())
        yield Item(fact, call.scope, call.key, word.payload)


async def _moved(journal: Journal, message: Message, rows: dict[str, OperationRow]) -> Item | None:
    if message.topic.startswith(MAIL):
        # After its end a run takes no messages: the row is marked as read, which is the answer.
        arrived = kinds.Arrived(topic=message.topic.removeprefix(MAIL), sender_key=message.sender_key)
        return None if journal.row.ended else Item(arrived, payload=message.body)
    if message.topic in (APPROVAL, KEY, SETTLED_ELSEWHERE):
        return None  # only a wake-up: what was decided is in its own row, and the call that waits for it looks there
    try:
        operation = str(json.loads(message.body)["operation"])
        row = rows.get(operation) or await journal.store.operation(journal.row.tenant, OperationId(operation))
        if row is None or row.run != journal.row.id:
            raise ValueError(f"it speaks of {operation}, which this run does not have")
        moved: tuple[Item, OperationRow] | None
        if message.topic == EVIDENCE:
            moved = _evidence(_testimony.validate_json(message.body), row, journal)
        elif message.topic == later.COMPLETION:
            moved = _told(later.read(message.body), row, journal)
        elif message.topic == RESOLUTION:
            moved = _resolution(_decision.validate_json(message.body), row, journal)
        else:
            raise ValueError(f"its topic is {message.topic}")
    except Exception as error:  # noqa: BLE001 - a row of anybody's must not stop the run that it is for
        log.warning("run %s: message %d in its inbox is not understood: %s", journal.row.id, message.id, error)
        return None
    if moved is None:
        return None
    item, rows[operation] = moved
    return item


def _evidence(said: Testimony, row: OperationRow, journal: Journal) -> tuple[Item, OperationRow]:
    judged = verdict(
        row.effect,
        row.status,
        row.attempt,
        row.outcome,
        attempt=said.attempt,
        answer=said.answer,
        payload=brief(said.payload),
    )
    fact = kinds.Evidence(
        operation=said.operation, attempt=said.attempt, epoch=said.epoch, answer=said.answer, verdict=judged,
        error=said.error,
    )  # fmt: skip
    if judged == "settles" and said.answer != "sent late":
        row = settled(row, said.answer, "evidence", journal.time.now(), said.payload, said.error)
    elif judged == "duplicate":
        row = replace(row, duplicates=row.duplicates + 1, updated_at=journal.time.now())
    return Item(fact, payload=said.payload), row


def _told(word: later.Word, row: OperationRow, journal: Journal) -> tuple[Item, OperationRow]:
    now = journal.time.now()
    fact = later.of_row(word, row, brief(word.payload), now)
    return Item(fact, payload=word.payload), later.recorded(row, fact, now, brief(word.payload))


def _resolution(said: Decision, row: OperationRow, journal: Journal) -> tuple[Item, OperationRow] | None:
    early = said.decision == "did-not-happen" and journal.time.now() < row.not_before
    fits = row.status in decidable(said.decision) and row.status != "pending"
    if not fits or row.attempt != said.attempt or early:
        log.warning(
            "run %s: operation %s is %s, the decision %s comes too late", row.run, row.id, row.status, said.decision
        )
        return None
    fact = kinds.Resolved(operation=said.operation, decision=said.decision, who=said.who, why=said.why)
    return Item(fact, payload=said.payload), decided(row, said.decision, journal.time.now(), said.payload)


_DECIDED: dict[str, OperationStatus] = {
    "happened": "succeeded", "did-not-happen": "absent", "abandon": "abandoned", "reuse": "succeeded",
    "repeat": "retrying",
}  # fmt: skip


def decidable(decision: str) -> frozenset[OperationStatus]:
    """In which states of an operation a person can say so: in doubt, with its outcome to come, or held because another
    run has done it.
    """
    if decision == "abandon":
        return OPEN | {"held"}
    return frozenset(("held",)) if decision in ("reuse", "repeat") else OPEN


def decided(row: OperationRow, decision: str, at: int, outcome: str | None) -> OperationRow:
    """The record of an operation after a person's decision."""
    how = "reuse" if decision == "reuse" else "person"
    return settled(row, _DECIDED[decision], how, at, outcome, None)


def settled(
    row: OperationRow, status: OperationStatus, how: str, at: int, outcome: str | None, error: kinds.ErrorRecord | None
) -> OperationRow:
    """The record of an operation after its fate became known."""
    return replace(
        row, status=status, how=how, updated_at=at, outcome=brief(outcome) if status == "succeeded" else None,
        error=f"{error.type}: {error.message}" if error else "",
    )  # fmt: skip
