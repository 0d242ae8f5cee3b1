"""Appends: each is prepared in full (sealed, encoded, checked) before it is sent; those that have gathered while the
one before was on its way are one statement and one commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import psycopg
from psycopg.rows import TupleRow

from outlive.log.entry import seal
from outlive.model.approval import Use
from outlive.model.business import KeyMark
from outlive.model.clock import Clock
from outlive.model.errors import (
    ApprovalRefused,
    CommitUnknown,
    KeyTaken,
    LeaseLost,
    OutliveError,
    Refused,
    StoreError,
    StoreUnavailable,
    WrongState,
)
from outlive.model.run import ENDED, Authority, Head
from outlive.store.certain import Certain, outcome
from outlive.store.columns import (
    Parameters,
    ask_parameters,
    check_text,
    key_parameters,
    notice_parameters,
    operation_parameters,
    to_json,
    use_parameters,
)
from outlive.store.lone import Lone
from outlive.store.port import Append, Change
from outlive.store.postgres.connection import CROSSED, FORGOTTEN, MOST_ATTEMPTS, Statements, is_lost, translated
from outlive.store.postgres.rows import entry_parameters
from outlive.store.postgres.tasks import Tasks
from outlive.store.postgres.wire import Wire

MOST_RUNS = 64
MOST_BYTES = 4 * 2**20

# The parts of the statement, and the parameter that each of them reads.
_PARTS = {
    "add_blob": "blobs",
    "add_entry": "entries",
    "put_operation": "operations",
    "compensate": "compensations",
    "compensate_key": "compensations",
    "lock_keys": "keys",
    "wake_waiters": "wakes",
    "mark_key": "marks",
    "take_message": "messages",
    "forgive": "forgiven",
    "put_divergence": "divergences",
    "ask_approval": "asks",
    "withdraw_approvals": "ends",
    "add_notification": "notices",
}

Connect: TypeAlias = "Callable[[], Awaitable[Wire]]"
Refusal: TypeAlias = "ApprovalRefused | KeyTaken | LeaseLost | WrongState"


@dataclass(slots=True)
class Prepared:
    """All parameters of an append: its own row, and rows for the parts of the statement."""

    authority: Authority
    head: Head
    row: Parameters
    changes: bool
    parts: dict[str, list[Parameters]] = field(default_factory=dict)
    bytes: int = 0
    use: Use | None = None
    take: KeyMark | None = None

    @property
    def alone(self) -> bool:
        """Whether it is a statement of its own: what it depends on, or locks beside its run, is not shared."""
        return self.use is not None or self.take is not None or bool(self.parts.get("mark_key"))


def prepare(secret: bytes, append: Append, now: int | None) -> Prepared:
    """Seal the drafts and encode everything.

    Raises NotSerialisable for text that cannot be stored, Refused for a change that no append can make.
    """
    authority, where = append.authority, f"run {append.authority.run}"
    sealed = seal(secret, append.head, authority.epoch, append.drafts)
    row: Parameters = {
        "tenant": authority.tenant, "run": authority.run, "epoch": authority.epoch, "token": authority.token,
        "seq": append.head.seq, "next_seq": sealed.head.seq, "head": sealed.head.digest.hex(), "now": now,
        "progress": append.progress or append.forgive, "turn": append.turn,
    }  # fmt: skip
    if append.change is not None:
        row |= _change(append.change, where)
    parts = {"add_entry": [entry_parameters(entry) for entry in sealed.entries]}
    compensations: list[Parameters] = [{"id": one.id, "compensates": one.compensates} for one in append.compensations]
    others: dict[str, list[Parameters]] = {
        # The last record of an operation counts: one statement cannot write a row twice.
        "put_operation": list({one.id: operation_parameters(one) for one in append.operations}.values()),
        "compensate": compensations,
        "compensate_key": compensations,
        "take_message": [{"id": number} for number in append.taken],
        "forgive": [{"spared": append.divergence.code if append.divergence else None}] if append.forgive else [],
        "put_divergence": [{"code": append.divergence.code, "report": append.divergence.report}]
        if append.divergence
        else [],
        "ask_approval": [ask_parameters(one) for one in append.asks],
        "withdraw_approvals": [{}] if row.get("ended") else [],
        "add_notification": [notice_parameters(one, append.head.seq) for one in append.notices],
        **(_marks(append) if append.marks else {}),
    }
    # What is sealed has been checked.
    for parameters in (row, *(one for rows in others.values() for one in rows)):
        check_text(parameters, where)
    size = sum(len(entry.body) + len(entry.payload or "") for entry in sealed.entries)
    if sealed.blobs:
        parts["add_blob"] = blob_parameters(append, sealed.blobs, [entry.blob for entry in sealed.entries])
        size += sum(len(payload) for _, payload in sealed.blobs)
    if append.use is not None or append.take is not None:
        row |= _dependence(append, where)
    return Prepared(
        authority, sealed.head, row, append.change is not None, parts | others, size, append.use, append.take
    )  # fmt: skip


def _dependence(append: Append, where: str) -> Parameters:
    """What `append_using` compares: an approval, a business key, or both."""
    approval: Parameters = {"approval": None, "operation": None, "executed": None, "policy": None}
    found = approval if append.use is None else use_parameters(append.use)
    mark = append.take
    taken: Parameters = {
        "take_key": mark and mark.key, "take_shown": mark and mark.shown, "take_tool": mark and mark.tool,
        "take_digest": mark and mark.digest, "take_operation": mark and mark.operation,
    }  # fmt: skip
    check_text(taken, where)
    return found | taken


def _marks(append: Append) -> dict[str, list[Parameters]]:
    """The business keys that it speaks of: locked, then written over, and whoever waits for them woken."""
    # In an order that is the same for all, and the last word about each.
    last = {mark.key: key_parameters(mark) for mark in append.marks}
    marks = [last[key] for key in sorted(last)]
    return {
        "lock_keys": [{"key": mark["key"]} for mark in marks],
        "wake_waiters": [
            {name: mark[name] for name in ("key", "of_run", "operation", "status", "topic")} for mark in marks
        ],
        "mark_key": marks,
    }  # fmt: skip


def blob_parameters(
    append: Append, blobs: Sequence[tuple[str, str]], addresses: Sequence[str | None]
) -> list[Parameters]:
    """What `add_blob` takes, for each blob with the class and key of the draft that brought it."""
    drafts = {address: draft for address, draft in zip(addresses, append.drafts, strict=True) if address is not None}
    return [
        {
            "address": address,
            "payload": payload,
            "data_class": drafts[address].data_class,
            "key_id": drafts[address].key_id,
        }
        for address, payload in blobs
    ]


def statement(sql: Statements, batch: Sequence[Prepared]) -> tuple[bytes, Parameters]:
    """One statement for appends to different runs; `refusals` reads what it returns. One that is `alone` is so here."""
    if batch[0].use is not None or batch[0].take is not None:
        names, parameters = _parts(batch, tuple(_PARTS))
        used = ("use_approval",) if batch[0].use is not None else ()
        return sql.built("append_using", (*used, *names), "used"), {**parameters, **batch[0].row}
    if len(batch) == 1 and not batch[0].changes:
        return _statement_of_one(sql, batch[0])
    rows = [{"place": place, **one.row} for place, one in enumerate(batch, start=1)]
    names, parameters = _parts(batch, tuple(_PARTS))
    parameters |= {"appends": to_json(rows), "now": None}
    first, end = "append", "accepted"
    if any(one.changes for one in batch):
        first, end = "append_and_change", "judged"
    return sql.built(first, names, end), parameters


def _statement_of_one(sql: Statements, one: Prepared) -> tuple[bytes, Parameters]:
    entries = one.parts.get("add_entry", ())
    if len(entries) != 1:
        names, parameters = _parts([one], tuple(_PARTS))
        return sql.built("append_one", names, "accepted"), parameters | one.row
    names, parameters = _parts([one], tuple(name for name in _PARTS if name != "add_entry"))
    return sql.built("append_one", ("add_one_entry", *names), "accepted"), {**parameters, **entries[0], **one.row}


def _parts(batch: Sequence[Prepared], parts: Sequence[str]) -> tuple[tuple[str, ...], Parameters]:
    """Those of the parts that have something to do, and what they read."""
    names, parameters = list[str](), Parameters()
    for part in parts:
        found = [
            {"place": place, "number": number, **row}
            for place, one in enumerate(batch, start=1)
            for number, row in enumerate(one.parts.get(part, ()))
        ]
        if found:
            names.append(part)
            parameters[_PARTS[part]] = to_json(found)
    return tuple(names), parameters


def refusals(batch: Sequence[Prepared], found: Sequence[TupleRow]) -> list[Refusal | None]:
    """What the statement did to each append: None is stored, the others are not."""
    told: dict[int, tuple[bool, str]] = {int(place): (accepted, status) for place, accepted, status in found}
    answers: list[Refusal | None] = []
    for place, one in enumerate(batch, start=1):
        run = one.authority.run
        match told.get(place):
            case None:
                answers.append(LeaseLost(run=run, epoch=one.authority.epoch))
            case (False, "key") if one.take is not None:
                answers.append(KeyTaken(key=one.take.shown, operation=one.take.operation))
            case (False, _) if one.use is not None:
                answers.append(ApprovalRefused(approval=one.use.approval, operation=one.use.operation))
            case (False, status):
                wanted = f"it has ended and cannot be {one.row['status']}"
                answers.append(WrongState(run=run, status=status, wanted=wanted))
            case _:
                answers.append(None)
    return answers


@dataclass(slots=True)
class _Waiting:
    prepared: Prepared
    future: Certain[Head]


class Committer:
    """Sends appends over a connection of its own, so that they never wait for one, with one commit on its way.

    A run that is not ours any more fails alone; an append that the database cannot store fails alone.
    """

    def __init__(self, connect: Connect, sql: Statements, tasks: Tasks, clock: Clock, *, store: str) -> None:
        self._connect, self._sql, self._tasks, self._store = connect, sql, tasks, store
        self._wire: Wire | None = None
        self._waiting: list[_Waiting] = []
        self._busy, self._open, self._lone = False, True, Lone(clock)
        self._ended: asyncio.Future[None] | None = None

    async def append(self, prepared: Prepared) -> Head:
        """As the port's `append`."""
        if not self._open:
            raise StoreUnavailable(store=self._store, why="it is closed")
        here = self._lone.begin(prepared.authority.tenant, prepared.authority.run)
        if self._busy or self._wire is None:
            one = _Waiting(prepared, Certain())
            self._waiting.append(one)
            self._go_on()
            return await outcome(one.future)
        # Nothing is on its way: the caller sends its own, and what gathers meanwhile follows in a task of ours.
        self._busy = True
        try:
            [refusal] = await self._send([prepared], here=here)
        finally:
            self._busy = False
            self._go_on()
        if here:
            await self._lone.end()
        if refusal is not None:
            raise refusal
        return prepared.head

    async def ready(self) -> None:
        """Connect, if nothing is connected or on its way. Raises StoreUnavailable."""
        if self._busy or (self._wire is not None and not self._wire.closed):
            return
        self._busy = True
        try:
            self._wire = await self._connect()
        finally:
            self._busy = False
            self._go_on()

    async def close(self) -> None:
        """Accept nothing more, and disconnect; what is waiting has been sent, because its tasks were waited for."""
        self._open = False
        if self._busy:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended
        await self._tasks.join()
        await self._drop()

    def _go_on(self) -> None:
        """Send what has gathered, unless something is on its way."""
        if self._waiting and not self._busy:
            self._busy = True
            self._tasks.start(self._run())
        elif not self._busy and self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    async def _run(self) -> None:
        try:
            while batch := self._gather():
                await self._commit(batch)
        finally:
            self._busy = False
            self._go_on()

    def _gather(self) -> list[_Waiting]:
        """The next batch: one append per run, in order."""
        batch: dict[tuple[str, str], _Waiting] = {}
        left, size = list[_Waiting](), 0
        for one in self._waiting:
            run = (one.prepared.authority.tenant, one.prepared.authority.run)
            # What depends on an approval or a business key is a statement of its own kind.
            alone = one.prepared.alone or any(other.prepared.alone for other in batch.values())
            full = len(batch) == MOST_RUNS or (batch and (alone or size + one.prepared.bytes > MOST_BYTES))
            if full or run in batch:
                left.append(one)
            else:
                batch[run] = one
                size += one.prepared.bytes
        self._waiting = left
        return list(batch.values())

    async def _commit(self, batch: list[_Waiting]) -> None:
        try:
            answers = await self._send([one.prepared for one in batch])
        except (CommitUnknown, StoreUnavailable) as error:
            for one in batch:
                _fail(one, _fresh(error))
        except OutliveError as error:
            # Whose fault it is cannot be seen from here: each for itself.
            if len(batch) == 1:
                _fail(batch[0], error)
            else:
                for one in batch:
                    await self._commit([one])
        except BaseException as error:
            for one in batch:
                _fail(one, error)
            raise
        else:
            for one, refusal in zip(batch, answers, strict=True):
                if refusal is not None:
                    _fail(one, refusal)
                elif not one.future.done():
                    one.future.set_result(one.prepared.head)

    async def _send(self, batch: list[Prepared], *, here: bool = False) -> list[Refusal | None]:
        query, parameters = statement(self._sql, batch)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            if self._wire is None or self._wire.closed:
                self._wire = await self._connect()
            try:
                return refusals(batch, await self._wire.execute(query, parameters, here=here))
            except psycopg.Error as error:
                if is_lost(error) or error.sqlstate in FORGOTTEN:
                    await self._drop()
                if error.sqlstate in (*CROSSED, *FORGOTTEN) and attempt < MOST_ATTEMPTS:
                    continue
                raise translated(error, self._store, wrote=True) from error
        raise AssertionError("unreachable")

    async def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()


def _change(change: Change, where: str) -> Parameters:
    if change.status == "running":
        raise Refused(what=f"a change of {where} to running", why="only a claim makes a run running")
    return {
        "status": change.status,
        "reason": change.reason,
        "detail": change.detail,
        "wake_at": change.wake_at,
        "paused": change.paused,
        "ended": change.status in ENDED,
    }


def _fail(one: _Waiting, error: BaseException) -> None:
    if not one.future.done():
        one.future.set_exception(error)


def _fresh(error: CommitUnknown | StoreUnavailable) -> StoreError:
    """An error object for each caller: one that is raised in several tasks would collect their tracebacks."""
    if isinstance(error, StoreUnavailable):
        return StoreUnavailable(store=error.store, why=error.why)
    return CommitUnknown(store=error.store)
