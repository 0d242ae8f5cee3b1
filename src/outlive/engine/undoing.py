"""How a rollback begins: a run of its own, which undoes what another one has done. One at a time does so.

It is there before the run that it undoes has ended, and waits for that: whoever asks for it may die at any moment.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Literal

from outlive.engine import inbox
from outlive.engine.attempt import Attempt
from outlive.engine.calls import Asked
from outlive.engine.cancelling import is_pause
from outlive.engine.failures import writable
from outlive.engine.journal import Item
from outlive.engine.scope import Scope, Stop
from outlive.log import kinds
from outlive.log.canonical import digest
from outlive.log.codec import Codec
from outlive.log.fold import Call, fold
from outlive.model.clock import Clock
from outlive.model.errors import BadArguments, RunExists, WrongState
from outlive.model.ids import LONGEST_NAME, LONGEST_WORDS, RunId
from outlive.model.run import NewRun, RunRow
from outlive.store.port import Message, Store

_LONGEST_ID = 180
_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Order:
    """The input of a rollback: which run, on whose word, and why.

    `cause` *person*: the run is cancelled if it has not ended. *run*: it has asked for this itself, and is about to
    fail. *failure*: it is about to fail, and nothing is undone unless it does.
    """

    run: str
    who: str
    why: str
    cause: Literal["person", "run", "failure"]


@dataclass(frozen=True, slots=True)
class Left:
    """An operation that a rollback has left as it was, and why."""

    operation: str
    tool: str
    why: str


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of a rollback: the operations of `run` that are compensated, newest first, and those that are not."""

    run: str
    compensated: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


class RolledBack(Exception):
    """What a run has failed with that asked for its rollback; the message is the reason."""


def check_reason(function: str, reason: str, most: int = _LONGEST) -> None:
    """Raises BadArguments."""
    if not reason.strip() or len(reason) > most:
        raise BadArguments(function=function, why=f"the reason is a text of 1 to {most} characters")


async def by_person(store: Store, clock: Clock, target: RunRow, who: str, why: str) -> RunRow:
    """The open rollback of the run, or a new one. A run that has not ended is cancelled by it.

    One that waits for the run to end by itself is not taken for that: the new one comes after it. Raises WrongState for
    a run that is a rollback itself, BadArguments for a `who` or `why` that says nothing.
    """
    check_reason("rollback", why, LONGEST_WORDS)
    check_reason("rollback", who, LONGEST_NAME)
    order = Order(target.id, writable(who), writable(why), "person")
    return await _start(store, clock, target, await _place(store, target, order), order)


async def after_failure(store: Store, clock: Clock, target: RunRow, detail: str) -> RunRow | None:
    """The rollback of a run that is about to fail; none where it has done nothing."""
    if target.rolls_back is not None or not await store.operations(target.tenant, target.id):
        return None
    order = Order(target.id, target.principal, f"the run failed: {writable(detail)[:_LONGEST]}", "failure")
    return await _start(store, clock, target, await _place(store, target, order), order)


async def from_inside(attempt: Attempt, scope: Scope, key: str, asked: Asked, reason: str, call: Call | None) -> None:
    """What `run.rollback` does, but for leaving the agent's code: the run fails once its calls have their record.

    That it was asked for is in the log before the rollback is there, under the id that is said there.
    """
    kit, row = attempt.kit, attempt.journal.row
    if call is None:
        await attempt.gate(scope)
        scope.executing = True
        place = await attempt.patiently(lambda: _place(kit.store, row), "the place of its rollback")
        fact = kinds.RollingBack(name=asked.name, digest=asked.digest, shown=asked.shown)
        said = json.dumps({"rollback": place, "reason": kit.scrubber.scrub(writable(reason))})
        await attempt.journal.append(Item(fact, scope.name, key, said))
        scope.executing = False
        await attempt.recorded(scope)
        call = attempt.fold.keys[key]
    await attempt.gate(scope, cancellable=False)
    told: dict[str, str] = json.loads(call.payload or "{}")
    order = Order(row.id, row.principal, told["reason"], "run")
    scope.executing = True
    await attempt.patiently(lambda: _start(kit.store, kit.clock, row, RunId(told["rollback"]), order), "its rollback")
    attempt.halt(Stop("fault", fault=RolledBack(told["reason"])))


async def _place(store: Store, target: RunRow, order: Order | None = None) -> RunId:
    """The id of the open rollback that does what is ordered, or the next one that is free. Raises WrongState."""
    if target.rolls_back is not None:
        wanted = f"it is a rollback itself; start anew what run {target.rolls_back} did"
        raise WrongState(run=target.id, status=target.status, wanted=wanted)
    for number in itertools.count(1):
        id = RunId(f"{target.id[:_LONGEST_ID]}-rollback{'' if number == 1 else f'-{number}'}")
        row = await store.run(target.tenant, id)
        if row is None:
            return id
        if row.rolls_back == target.id and not row.ended and (order is None or await _does(store, row, target, order)):
            return id
    raise AssertionError("unreachable")


async def _does(store: Store, row: RunRow, target: RunRow, order: Order) -> bool:
    """Whether an open rollback does what is ordered: for a person it undoes the run whatever becomes of that."""
    if order.cause != "person":
        return True
    if await _is_ending(store, row):
        return False
    [entry] = await store.entries(row.tenant, row.id, limit=1)
    theirs = Codec.of(Order).decode(entry.payload or "null", where=f"the input of run {row.id}")
    target = await store.run(target.tenant, target.id) or target
    if theirs.cause == "person":
        return True
    return target.status == "failed" or (target.ended and theirs.cause == "run")


async def _is_ending(store: Store, row: RunRow) -> bool:
    """Whether it was asked to end, heard of or not."""
    unread = await store.unread(row.tenant, row.id)
    asked = any(one.topic == inbox.CONTROL and not is_pause(one.body) for one in unread)
    return asked or fold(await store.window(row.tenant, row.id)).cancelling is not None


async def _start(store: Store, clock: Clock, target: RunRow, id: RunId, order: Order) -> RunRow:
    """The rollback of that id, which may be there. Raises RunExists for an id that something else has got meanwhile."""
    text = Codec.of(Order).encode(order, where="the input of a rollback")
    key = await store.key(target.tenant)
    new = NewRun(
        target.tenant, id, target.agent, target.version, text, digest(key, b"input", text.encode())[:32],
        target.queue, target.priority, None, order.who, target.purpose, rolls_back=target.id,
    )  # fmt: skip
    row = await store.start(new, now=clock.now())
    if row.rolls_back != target.id:
        raise RunExists(run=id, differs=f"run: it does not roll {target.id} back")
    return row


async def wake(store: Store, clock: Clock, row: RunRow) -> None:
    """What stood in the way of a rollback may be about to be settled by what this ended run was sent.

    Told before that is taken in: a rollback does not judge while anything is unread, so that none of this is lost.
    """
    if not await store.unread(row.tenant, row.id):
        return
    for run in (row.id, row.rolls_back):
        for one in await store.rollbacks(row.tenant, run) if run is not None else ():
            if not one.ended and one.id != row.id:
                told = Message(row.tenant, one.id, inbox.SETTLED_ELSEWHERE, f"{row.id}:{row.head.seq}", "{}")
                await store.post(told, now=clock.now())
