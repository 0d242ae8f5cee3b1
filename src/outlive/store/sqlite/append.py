"""One append: prepared in full (sealed, encoded, checked) before the transaction, then executed inside it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from outlive.log.entry import seal
from outlive.model.business import KeyRow
from outlive.model.errors import ApprovalRefused, KeyTaken, LeaseLost, Refused, WrongState
from outlive.model.run import ENDED, Authority, Head
from outlive.store.columns import (
    Parameters,
    ask_parameters,
    check_text,
    key_parameters,
    key_row,
    notice_parameters,
    operation_parameters,
    use_parameters,
)
from outlive.store.port import Append, Change
from outlive.store.sqlite.connection import QUERIES
from outlive.store.sqlite.rows import entry_parameters


@dataclass(frozen=True, slots=True)
class Prepared:
    """All parameters of an append."""

    authority: Authority
    head: Head
    statement: str
    update: Parameters
    entries: list[tuple[object, ...]]
    blobs: list[Parameters]
    operations: list[Parameters]
    compensations: list[Parameters]
    messages: list[Parameters]
    divergence: Parameters | None
    forgive: bool
    notices: list[Parameters]
    asks: list[Parameters]
    use: Parameters | None
    take: Parameters | None
    marks: list[Parameters]


def prepare(secret: bytes, append: Append) -> Prepared:
    """Seal the drafts and encode everything.

    Raises NotSerialisable for text that cannot be stored, Refused for a change that no append can make.
    """
    authority, run = append.authority, {"tenant": append.authority.tenant, "run": append.authority.run}
    where = f"run {authority.run}"
    sealed = seal(secret, append.head, authority.epoch, append.drafts)
    blobs = blob_parameters(append, sealed.blobs, [entry.blob for entry in sealed.entries])
    update: Parameters = {
        **run, "epoch": authority.epoch, "token": authority.token, "seq": append.head.seq, "next_seq": sealed.head.seq,
        "head": sealed.head.digest, "progress": append.progress or append.forgive, "turn": append.turn,
    }  # fmt: skip
    if append.change is not None:
        update |= _change(append.change, where)
    operations = [{**operation_parameters(row), **run} for row in append.operations]
    divergence: Parameters | None = None
    if append.divergence is not None:
        divergence = {**run, "code": append.divergence.code, "report": append.divergence.report}
    notices = [{**notice_parameters(one, append.head.seq), **run} for one in append.notices]
    asks = [{**ask_parameters(row), **run} for row in append.asks]
    take = None if append.take is None else {**key_parameters(append.take), **run}
    # In an order that is the same for all, and the last word about each.
    last = {mark.key: mark for mark in append.marks}
    marks = [{**key_parameters(last[key]), **run} for key in sorted(last)]
    for parameters in (update, *operations, *notices, *asks, *marks, divergence or {}, take or {}):
        check_text(parameters, where)
    return Prepared(
        authority=authority,
        head=sealed.head,
        statement="append" if append.change is None else "append_and_change",
        update=update,
        entries=[entry_parameters(authority.tenant, authority.run, entry) for entry in sealed.entries],
        blobs=blobs,
        operations=operations,
        compensations=[{**run, "id": row.id, "compensates": row.compensates} for row in append.compensations],
        messages=[{**run, "id": number, "seq": append.head.seq} for number in append.taken],
        divergence=divergence,
        forgive=append.forgive,
        notices=notices,
        asks=asks,
        use=None if append.use is None else {**update, **use_parameters(append.use)},
        take=take,
        marks=marks,
    )


def blob_parameters(
    append: Append, blobs: tuple[tuple[str, str], ...], addresses: list[str | None]
) -> list[Parameters]:
    """What `add_blob` takes, for each blob with the class and key of the draft that brought it."""
    drafts = {address: draft for address, draft in zip(addresses, append.drafts, strict=True) if address is not None}
    return [
        {
            "tenant": append.authority.tenant,
            "address": bytes.fromhex(address),
            "payload": payload,
            "data_class": drafts[address].data_class,
            "key_id": drafts[address].key_id,
        }
        for address, payload in blobs
    ]


def execute(database: sqlite3.Connection, prepared: Prepared, now: int) -> Head:
    """Store it inside the open transaction.

    Raises LeaseLost when authority or head do not match, WrongState for a change that would leave an ended status,
    ApprovalRefused for an approval that is not good, KeyTaken for a key that is another's; then nothing was written.
    """
    if (
        prepared.use is not None
        and database.execute(QUERIES["use_approval"], {**prepared.use, "now": now}).rowcount != 1
    ):
        raise _refusal(database, prepared)
    if prepared.take is not None and take_key(database, prepared.take, now) is not None:
        raise _refusal(database, prepared, key=True)
    if database.execute(QUERIES[prepared.statement], {**prepared.update, "now": now}).rowcount != 1:
        raise _refusal(database, prepared)
    for blob in prepared.blobs:
        database.execute(QUERIES["add_blob"], {**blob, "now": now})
    for entry in prepared.entries:
        database.execute(QUERIES["add_entry"], entry)
    _record(database, prepared, now)
    for message in prepared.messages:
        database.execute(QUERIES["take_message"], message)
    if prepared.forgive:
        database.execute(QUERIES["forgive"], {"tenant": prepared.authority.tenant, "run": prepared.authority.run})
    if prepared.divergence is not None:
        database.execute(QUERIES["put_divergence"], {**prepared.divergence, "now": now})
    for notice in prepared.notices:
        database.execute(QUERIES["add_notification"], {**notice, "now": now})
    for ask in prepared.asks:
        database.execute(QUERIES["ask_approval"], {**ask, "now": now})
    if prepared.update.get("ended"):
        database.execute(QUERIES["withdraw_approvals"], {**prepared.update, "now": now})
    return prepared.head


def _record(database: sqlite3.Connection, prepared: Prepared, now: int) -> None:
    for operation in prepared.operations:
        database.execute(QUERIES["put_operation"], operation)
    for compensation in prepared.compensations:
        database.execute(QUERIES["compensate"], {**compensation, "now": now})
        database.execute(QUERIES["compensate_key"], {**compensation, "now": now})
    for mark in prepared.marks:
        database.execute(QUERIES["wake_waiters"], {**mark, "now": now})
        database.execute(QUERIES["mark_key"], {**mark, "now": now})


def take_key(database: sqlite3.Connection, take: Parameters, now: int) -> KeyRow | None:
    """Take a business key inside the open transaction; the row of whoever has it, if it cannot be taken."""
    if database.execute(QUERIES["take_key"], {**take, "now": now}).rowcount == 1:
        return None
    return key_row(database.execute(QUERIES["find_business_key"], take).fetchone())


def _refusal(
    database: sqlite3.Connection, prepared: Prepared, *, key: bool = False
) -> ApprovalRefused | KeyTaken | LeaseLost | WrongState:
    """Why no row was changed."""
    run = prepared.authority.run
    row = database.execute(QUERIES["find_authority"], prepared.update).fetchone()
    if row is None or row["next_seq"] != prepared.update["seq"]:
        return LeaseLost(run=run, epoch=prepared.authority.epoch)
    if key and prepared.take is not None:
        return KeyTaken(key=str(prepared.take["shown"]), operation=str(prepared.take["operation"]))
    if prepared.use is not None:
        return ApprovalRefused(
            approval=str(prepared.use["approval"]), operation=str(prepared.use["operation"])
        )  # fmt: skip
    return WrongState(run=run, status=row["status"], wanted=f"it has ended and cannot be {prepared.update['status']}")


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
