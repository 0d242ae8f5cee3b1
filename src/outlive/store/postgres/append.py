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
from outlive.model.errors import (
    CommitUnknown,
    LeaseLost,
    OutliveError,
    Refused,
    StoreError,
    StoreUnavailable,
    WrongState,
)
from outlive.model.run import ENDED, Authority, Head
from outlive.store.port import Append, Change
from outlive.store.postgres.connection import CROSSED, MOST_ATTEMPTS, Statements, is_lost, translated
from outlive.store.postgres.rows import Parameters, check_text, entry_parameters, operation_parameters, to_json
from outlive.store.postgres.tasks import Tasks

MOST_RUNS = 64
MOST_BYTES = 4 * 2**20

# The parts of the statement, and the parameter that each of them reads.
_PARTS = {
    "add_blob": "blobs",
    "add_entry": "entries",
    "put_operation": "operations",
    "take_message": "messages",
    "forgive": "forgiven",
    "put_divergence": "divergences",
}

Connect: TypeAlias = "Callable[[], Awaitable[psycopg.AsyncConnection[TupleRow]]]"


@dataclass(slots=True)
class Prepared:
    """All parameters of an append: its own row, and rows for the parts of the statement."""

    authority: Authority
    head: Head
    row: Parameters
    changes: bool
    parts: dict[str, list[Parameters]] = field(default_factory=dict)
    bytes: int = 0


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
    parts: dict[str, list[Parameters]] = {
        "add_blob": blob_parameters(append, sealed.blobs, [entry.blob for entry in sealed.entries]),
        "add_entry": [entry_parameters(entry) for entry in sealed.entries],
        # The last record of an operation counts: one statement cannot write a row twice.
        "put_operation": list({one.id: operation_parameters(one) for one in append.operations}.values()),
        "take_message": [{"id": number} for number in append.taken],
        "forgive": [{"spared": append.divergence.code if append.divergence else None}] if append.forgive else [],
        "put_divergence": [{"code": append.divergence.code, "report": append.divergence.report}]
        if append.divergence
        else [],
    }
    # What is sealed has been checked.
    others = (one for name, rows in parts.items() if name not in ("add_blob", "add_entry") for one in rows)
    for parameters in (row, *others):
        check_text(parameters, where)
    size = sum(len(entry.body) + len(entry.payload or "") for entry in sealed.entries)
    size += sum(len(payload) for _, payload in sealed.blobs)
    return Prepared(authority, sealed.head, row, append.change is not None, parts, size)


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
    """One statement for appends to different runs; `refusals` reads what it returns."""
    placed = list(enumerate(batch, start=1))
    rows = [{"place": place, **one.row} for place, one in placed]
    parameters: Parameters = {"appends": to_json(rows), "now": None}
    parts = []
    for part, name in _PARTS.items():
        found = [{"place": place, "number": n, **row} for place, one in placed for n, row in enumerate(one.parts[part])]
        if found:
            parts.append(part)
            parameters[name] = to_json(found)
    first, end = "append", "accepted"
    if any(one.changes for one in batch):
        first, end = "append_and_change", "judged"
    return sql.built(first, tuple(parts), end), parameters


def refusals(batch: Sequence[Prepared], found: Sequence[TupleRow]) -> list[LeaseLost | WrongState | None]:
    """What the statement did to each append: None is stored, the others are not."""
    told: dict[int, tuple[bool, str]] = {int(place): (accepted, status) for place, accepted, status in found}
    answers: list[LeaseLost | WrongState | None] = []
    for place, one in enumerate(batch, start=1):
        run = one.authority.run
        match told.get(place):
            case None:
                answers.append(LeaseLost(run=run, epoch=one.authority.epoch))
            case (False, status):
                wanted = f"it has ended and cannot be {one.row['status']}"
                answers.append(WrongState(run=run, status=status, wanted=wanted))
            case _:
                answers.append(None)
    return answers


@dataclass(slots=True)
class _Waiting:
    prepared: Prepared
    future: asyncio.Future[Head]


class Committer:
    """Sends appends over a connection of its own, so that they never wait for one, with one commit on its way.

    A run that is not ours any more fails alone; an append that the database cannot store fails alone.
    """

    def __init__(self, connect: Connect, sql: Statements, tasks: Tasks, *, store: str) -> None:
        self._connect, self._sql, self._tasks, self._store = connect, sql, tasks, store
        self._connection: psycopg.AsyncConnection[TupleRow] | None = None
        self._waiting: list[_Waiting] = []
        self._busy, self._open = False, True

    async def append(self, prepared: Prepared) -> Head:
        """As the port's `append`."""
        if not self._open:
            raise StoreUnavailable(store=self._store, why="it is closed")
        one = _Waiting(prepared, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if not self._busy:
            self._busy = True
            self._tasks.start(self._run())
        return await one.future

    async def close(self) -> None:
        """Accept nothing more, and disconnect; what is waiting has been sent, because its tasks were waited for."""
        self._open = False
        await self._tasks.join()
        await self._drop()

    async def _run(self) -> None:
        try:
            while batch := self._gather():
                await self._commit(batch)
        finally:
            self._busy = False

    def _gather(self) -> list[_Waiting]:
        """The next batch: one append per run, in order; callers that have gone are left out."""
        batch: dict[tuple[str, str], _Waiting] = {}
        left, size = list[_Waiting](), 0
        for one in self._waiting:
            if one.future.done():
                continue
            run = (one.prepared.authority.tenant, one.prepared.authority.run)
            full = len(batch) == MOST_RUNS or (batch and size + one.prepared.bytes > MOST_BYTES)
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

    async def _send(self, batch: list[Prepared]) -> list[LeaseLost | WrongState | None]:
        query, parameters = statement(self._sql, batch)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            if self._connection is None or self._connection.closed:
                self._connection = await self._connect()
            try:
                cursor = await self._connection.execute(query, parameters)
                return refusals(batch, await cursor.fetchall())
            except psycopg.Error as error:
                if error.sqlstate in CROSSED and attempt < MOST_ATTEMPTS:
                    continue
                if is_lost(error):
                    await self._drop()
                raise translated(error, self._store, wrote=True) from error
        raise AssertionError("unreachable")

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _change(change: Change, where: str) -> Parameters:
    if change.status == "running":
        raise Refused(what=f"a change of {where} to running", why="only a claim makes a run running")
    return {
        "status": change.status,
        "reason": change.reason,
        "detail": change.detail,
        "wake_at": change.wake_at,
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
