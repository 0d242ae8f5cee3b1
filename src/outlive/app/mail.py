"""What people and programs say to a run, and what it has asked: one way for handles, the command line and the lab.

Whoever speaks writes a row into the run's inbox and touches nothing else; what is open is read from the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pydantic_core import from_json

from outlive.engine import inbox, waits
from outlive.engine.callables import check_name
from outlive.log import kinds
from outlive.log.codec import codec_of
from outlive.log.entry import Entry
from outlive.model.errors import BadArguments, Refused, UndecodableEntry, UnknownQuestion, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunFilter, RunRow
from outlive.store.port import Message, Store

# Types whose name says all that an answer has to be.
_PLAIN: dict[str, type[object]] = {one.__name__: one for one in (str, int, float, bool)}


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a run waits with. `id` is its own; `answered_by` is who has answered what is not read yet.

    `expects` names the type of the answer; `until` is when it is given up, in milliseconds of the database (0: never).
    """

    run: RunId
    id: str
    text: str
    role: str
    expects: str
    asked_at: int
    until: int
    answered_by: str = ""


async def send(store: Store, tenant: Tenant, run: RunId, topic: str, body: str, key: str, now: int | None) -> bool:
    """Store a message, JSON, for a run; False for one that is there already. Raises UnknownRun, Refused."""
    check_name("topic", topic)
    return await store.post(Message(tenant, run, inbox.MAIL + topic, key, body), now=now)


async def answer(store: Store, tenant: Tenant, run: RunId, question: str, body: str, who: str, now: int | None) -> bool:
    """Store an answer, JSON; the first that arrives counts. Raises as `send`, Refused for what is no question's id."""
    if not question.startswith(waits.ANSWER):
        raise Refused(what=f"an answer to {question!r}", why="it is not the id of a question")
    return await store.post(Message(tenant, run, inbox.MAIL + question, who, body), now=now)


async def questions(store: Store, tenant: Tenant, run: RunId) -> list[Question]:
    """What the run waits to be told by people, in the order in which it asked. Raises UnknownRun, UndecodableEntry."""
    row = await store.run(tenant, run)
    if row is None:
        raise UnknownRun(run=run)
    return await _of(store, row)


async def readable_questions(store: Store, row: RunRow) -> list[Question]:
    """The same of a run whose log may be damaged: then none is known."""
    try:
        return await _of(store, row)
    except UndecodableEntry:
        return []


async def all_questions(store: Store, tenant: Tenant, *, limit: int) -> list[Question]:
    """The same of up to `limit` runs that have not ended, those that were started last."""
    which = RunFilter(statuses=("ready", "running", "waiting", "blocked"), limit=limit)
    return [one for row in await store.runs(tenant, which) for one in await readable_questions(store, row)]


async def asked(store: Store, tenant: Tenant, run: RunId, named: str) -> Question:
    """The open question whose id begins so, or that has this text. Raises UnknownQuestion for none or several."""
    still = [one for one in await questions(store, tenant, run) if not one.answered_by]
    found = [one for one in still if named in (one.id, one.text)]
    found = found or [one for one in still if one.id.startswith((named, waits.ANSWER + named))]
    if len(found) != 1:
        raise UnknownQuestion(run=run, question=named, matches=tuple(one.id for one in found),
                              known=tuple(one.id for one in still))  # fmt: skip
    return found[0]


def written(value: object, where: str) -> str:
    """A message as JSON. What is JSON already, as what a client sent, stays as it is. Raises NotSerialisable."""
    kind: object = type(value)
    if type(value) is dict and all(isinstance(key, str) for key in value):
        kind = dict[str, object]  # with keys of any type it would be pairs, in which nobody finds a model again
    return codec_of(kind).encode(value, where=where)


def check_json(text: str, what: str) -> str:
    """The text, if it is JSON. Raises BadArguments."""
    try:
        json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadArguments(function=what, why=f"it is not JSON: {error}") from None
    try:
        from_json(text)
    except ValueError as error:
        # As whoever receives it would read it, which bears fewer levels of nesting.
        raise BadArguments(function=what, why=f"nobody could read it: {error}") from None
    return text.strip()


def check_answer(question: Question, text: str) -> str:
    """The text, if it can be an answer as far as is known here. Raises BadArguments: what does not fit is used up."""
    plain = _PLAIN.get(question.expects)
    try:
        text = check_json(text, "the answer")
    except BadArguments:
        if plain is not str:
            raise
        text = json.dumps(text)  # a word that is not JSON, where text is expected
    if plain is not None:
        try:
            codec_of(plain).decode(text, where="the answer")
        except UndecodableEntry as error:
            raise BadArguments(
                function="the answer", why=f"the question expects {plain.__name__}: {error.why}"
            ) from None
    return text


async def _of(store: Store, row: RunRow) -> list[Question]:
    if row.ended:
        return []
    still = _still_open(row.id, await store.window(row.tenant, row.id))
    said: dict[str, str] = {}
    for message in await store.unread(row.tenant, row.id) if still else ():
        said.setdefault(message.topic.removeprefix(inbox.MAIL), message.sender_key)
    return [replace(one, answered_by=one.answered_by or said.get(one.id, "")) for one in still]


def _still_open(run: RunId, window: Iterable[Entry]) -> list[Question]:
    found: dict[str, tuple[str, Question]] = {}
    for entry in window:
        match fact := kinds.read(entry):
            case kinds.Waiting() if entry.payload is not None:
                one = Question(
                    run, fact.topic, json.loads(entry.payload), fact.role, fact.expects, entry.at, fact.until
                )
                found[fact.topic] = entry.scope, one
            case kinds.Woken():
                found.pop(fact.topic, None)
            case kinds.Arrived() if fact.topic in found:
                scope, one = found[fact.topic]
                found[fact.topic] = scope, replace(one, answered_by=one.answered_by or fact.sender_key)
            case kinds.ScopeCancelled():
                found = {topic: each for topic, each in found.items() if each[0] != entry.scope}
            case kinds.Turn():
                found = {}
            case _:
                pass
    return [one for _, one in found.values()]


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")
