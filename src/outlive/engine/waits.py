"""Waits: for a time, for a message, for a person's answer. They cost nothing: a run that only waits is unloaded.

What a wait came to is an entry of its own, in one order with everything else of its scope. A message is an entry as
soon as it has arrived and stays until a call receives it: by arrival, first come first served within its topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from outlive.engine.attempt import Attempt
from outlive.engine.calls import Asked
from outlive.engine.journal import Item
from outlive.engine.scope import Parked, Scope
from outlive.log import kinds
from outlive.log.codec import Codec
from outlive.log.fold import Call
from outlive.model.errors import Diverged, MessageRefused, Refused, TimedOut, UndecodableEntry

# Before the key of the call that asked: what a question is known by.
ANSWER = "answer:"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is waited for. Without a `topic` it is time alone; `until` is a moment of the database's clock, 0 for never.

    A `question` is seen by people from the moment at which it is asked. A message is one of `kind`, or is refused.
    """

    why: str
    topic: str = ""
    until: int = 0
    role: str = ""
    question: str | None = None
    expects: str = ""
    kind: Codec[object] | None = None


async def wait(attempt: Attempt, asked: Asked, wanted: Wanted) -> object:
    """Wait, record what it came to, and give the message, if it was one that is waited for.

    Raises TimedOut, and MessageRefused for a message that is none of `wanted.kind`.
    """
    with attempt.entering(asked.shown, asked.line) as scope:
        key, call = attempt.consume(scope, "wait", asked.name, asked.digest, asked.shown, asked.line)
        if call is None or not call.done:
            await attempt.beyond(scope, call)
            await _until_over(attempt, scope, key, asked, wanted, call)
        over = attempt.fold.keys[key] if call is None else call
        return None if wanted.kind is None else _told(over, wanted.kind, attempt.journal.row.id, asked.line)


async def _until_over(
    attempt: Attempt, scope: Scope, key: str, asked: Asked, wanted: Wanted, call: Call | None
) -> None:
    begun, until = call is not None, wanted.until if call is None else call.until
    topic = topic_of(key, wanted)
    while True:
        await attempt.gate(scope)
        # Another branch may be about to receive the first: until its entry is written it is in the mail still.
        mail = next((one for one in attempt.fold.mail.get(topic, ()) if not one.taken), None) if topic else None
        if mail is not None or (until and attempt.kit.time.now() >= until):
            if mail is not None:
                mail.taken = True
            refused = _refused(mail.payload, wanted.kind) if mail is not None and wanted.kind is not None else None
            over = kinds.Woken(
                name=asked.name, digest=asked.digest, shown=asked.shown, topic=topic, refused=refused
            )  # fmt: skip
            await _record(attempt, scope, Item(over, scope.name, key, arrival=mail))
            return
        if not begun:
            begun = True
            fact = kinds.Waiting(
                name=asked.name,
                digest=asked.digest,
                shown=asked.shown,
                topic=topic,
                until=until,
                role=wanted.role,
                expects=wanted.expects,
            )
            item = Item(fact, scope.name, key, wanted.question)
            if wanted.question is not None:
                await _record(attempt, scope, item)
                continue
            # Nobody outside can see it before the append that unloads the run, which carries it.
            attempt.journal.buffer(item)
        await attempt.park(scope, Parked(wanted.why, until=until or None, message=bool(topic)))


async def _record(attempt: Attempt, scope: Scope, item: Item) -> None:
    scope.executing = True
    await attempt.journal.append(item)
    scope.executing = False
    await attempt.recorded(scope)


def topic_of(key: str, wanted: Wanted) -> str:
    """Where the messages come in: an answer belongs to one question alone."""
    return wanted.topic if wanted.question is None else f"{ANSWER}{key}"


def _refused(text: str, kind: Codec[object]) -> str:
    """Why a message is none of that kind; empty if it is one."""
    try:
        kind.decode(text, where="the message")
    except UndecodableEntry as error:
        return error.why
    return ""


def _told(call: Call, kind: Codec[object], run: str, line: str) -> object:
    """What the agent is given: the message. Raises TimedOut, MessageRefused for one that does not fit, and Diverged for
    one that did when it was recorded: the code was told another story then.
    """
    if call.arrival is None:
        raise TimedOut(run=run, status="running", detail=f"{call.shown} has waited in vain")
    if call.refused:
        raise MessageRefused(wait=call.shown, why=call.refused)
    try:
        return kind.decode(call.payload or "null", where=f"the message for {call.shown}")
    except UndecodableEntry as error:
        if call.refused is None:
            raise MessageRefused(wait=call.shown, why=error.why) from None
        raise Diverged(
            has=f"a message for {call.shown}", asks=f"another type: {error.why}", line=line, seq=call.seq
        ) from error


def moment(when: timedelta | datetime, now: int) -> int:
    """A duration from now, or an instant, as milliseconds. Raises Refused for what is no time to wait for."""
    if isinstance(when, timedelta):
        if when < timedelta(0):
            raise Refused(what=f"a wait of {when}", why="it is over before it begins")
        return now + max(1, round(when.total_seconds() * 1000))
    if when.tzinfo is None:
        raise Refused(what=f"a wait until {when}", why="an instant needs its time zone")
    return round(when.timestamp() * 1000)
