"""A conversation as the log holds it: each message once.

A model's response is the outcome of its operation, what a tool returned that of its own. The entry that commits a turn
says what the turn has added, and names those instead of repeating them; so a conversation is read from the whole log,
by whichever framework goes on with it. Messages are in the JSON of the framework that made them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from outlive.engine.guest import Guest
from outlive.harness.units import Json
from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.log.fold import Fold, step

RESPONSE = "outlive:response"
"""In the place of a message: the response that is recorded under this key."""
RETURNED = "outlive:returned"
"""In the place of a message: what the calls of these ids returned is recorded under these keys."""
COMPACTED = "compacted"
"""The event that tells of a summary."""


class Turn(BaseModel):
    """What a turn has added to the conversation, and what the next one has to know of it."""

    added: list[dict[str, JsonValue]] = Field(default_factory=list)
    retries: dict[str, int] = Field(default_factory=dict)
    output_retries: int = 0
    kept_from: int = 0
    """The turn from which on messages are handed over, counted from 0. Those before it are in the last summary."""
    beside: dict[str, JsonValue] = Field(default_factory=dict)
    """What was used up to here and no response of the conversation tells: calls of tools, and what summaries cost."""
    warned: list[str] = Field(default_factory=list)
    """Of which limits it has been told that they are near."""
    agent: str = ""
    """Which of several agents goes on, when it is not the one that began."""
    called: list[str] = []
    """Which agents have called tools, where that changes what they ask of their model."""

    @model_serializer(mode="wrap")
    def _brief(self, whole: SerializerFunctionWrapHandler) -> dict[str, object]:
        kept: dict[str, object] = whole(self)
        return {name: value for name, value in kept.items() if value}


class Compacted(BaseModel):
    """A conversation was summed up for its model. Nothing is left out of the log by it: it changes what a model sees.

    `first` to `last` are the turns that gave way to the `summary`, counted from 1. `tokens_before` is what the
    provider has counted in the last request before; `tokens_after` what is expected of the next, in proportion to the
    length of both.
    """

    agent: str
    first: int
    last: int
    summary: str
    tokens_before: int
    tokens_after: int


@dataclass(slots=True)
class Told:
    """One turn as it was committed, and what is recorded under the keys that it names."""

    turn: Turn
    at: int
    """When, in milliseconds since 1970."""
    outcomes: Mapping[str, str] = field(default_factory=dict)

    def response(self, message: Json) -> Json | None:
        """The recorded response that a message stands for."""
        if list(message) != [RESPONSE]:
            return None
        whole: Json = json.loads(self.outcomes[str(message[RESPONSE])])
        response = whole["response"]
        assert isinstance(response, dict)
        return response

    def returned(self, message: Json) -> dict[str, JsonValue] | None:
        """What the calls of tools returned that a message stands for, by the ids that the model gave them."""
        keys = message.get(RETURNED)
        if list(message) != [RETURNED] or not isinstance(keys, dict):
            return None
        return {call: json.loads(self.outcomes[str(key)]) for call, key in keys.items()}


@dataclass(slots=True)
class Recalled:
    """What a log says of the turns that are committed."""

    turns: list[Told] = field(default_factory=list)
    compacted: Compacted | None = None


# Entries after which the outcome of a call is the payload of the last one that has its key.
_OUTCOMES = frozenset(("step", "done", "outcome"))
_ASIDE = frozenset((
    "started", "claimed", "intent", "opened", "suspended", "attempt", "not acted", "unknown", "lookup", "absent",
    "proposed", "decided", "reminded", "released", "paused", "resumed", "ended",
))  # fmt: skip


async def recalled(guest: Guest) -> Recalled:
    """Read the turns of a run up to where the present one begins, and the last summary before it."""
    return await quickly(guest) or await thoroughly(guest)


async def quickly(guest: Guest) -> Recalled | None:
    """The same for a log in which nothing was in doubt, without folding it: most of thousands of turns is so."""
    found, latest, outcomes = Recalled(), None, dict[str, str]()
    async for entry in guest.recorded():
        if entry.kind in _OUTCOMES:
            outcomes |= {entry.key: entry.payload} if entry.payload is not None else {}
        elif entry.kind in ("turn", "emitted"):
            latest = _told(found, latest, entry, kinds.read(entry), outcomes)
            outcomes = {} if entry.kind == "turn" else outcomes
        elif entry.kind not in _ASIDE:
            return None
    return found


async def thoroughly(guest: Guest) -> Recalled:
    """The same for any log."""
    found, latest, state = Recalled(), None, Fold()
    async for entry in guest.recorded():
        fact = kinds.read(entry)
        if isinstance(fact, kinds.Turn | kinds.Emitted):
            outcomes = {key: call.payload for key, call in state.keys.items() if call.payload is not None}
            latest = _told(found, latest, entry, fact, outcomes)
        step(state, entry.seq, fact, entry.scope, entry.key, entry.payload)
    return found


def _told(
    found: Recalled, latest: Compacted | None, entry: Entry, fact: kinds.Fact, outcomes: Mapping[str, str]
) -> Compacted | None:  # fmt: skip
    """Add what the entry says to what was found. The latest summary counts from the turn on that ends after it."""
    if isinstance(fact, kinds.Turn):
        if fact.number:  # the first one is what the loop begins with
            found.turns.append(Told(Turn.model_validate_json(entry.payload or ""), entry.at, outcomes))
        found.compacted = latest
    elif isinstance(fact, kinds.Emitted) and fact.name == f"emit:{COMPACTED}":
        return Compacted.model_validate_json(entry.payload or "")
    return latest


def returned(outcomes: Mapping[str, tuple[str, str | None]], parts: Mapping[str, JsonValue]) -> Json | None:
    """A message of what tools returned, as the names of what is recorded; None where it says anything else.

    `outcomes` has key and recorded outcome by the id that the model gave the call, `parts` what the message says.
    """
    keys: dict[str, JsonValue] = {}
    for call, said in parts.items():
        key, recorded = outcomes.get(call, ("", None))
        if recorded is None or json.loads(recorded) != said:
            return None
        keys[call] = key
    return {RETURNED: keys} if keys else None
