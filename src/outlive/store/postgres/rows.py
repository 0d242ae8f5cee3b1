"""Between records of the model and rows of the tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from outlive.log.entry import Entry
from outlive.model.errors import NotSerialisable
from outlive.model.ids import OperationId, Owner, RunId, Tenant
from outlive.model.operation import Effect, OperationRow, OperationStatus
from outlive.model.run import Head, RunRow, Status
from outlive.store.port import Message, WorkerRow

Parameters = dict[str, object]
Row = Mapping[str, Any]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def run_row(row: Row) -> RunRow:
    """A row of `run`. Columns that this release does not know are left out."""
    return RunRow(
        tenant=Tenant(row["tenant"]),
        id=RunId(row["id"]),
        agent=row["agent"],
        version=row["version"],
        status=cast(Status, row["status"]),
        epoch=row["epoch"],
        head=Head(row["next_seq"], row["head"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        input_digest=row["input_digest"],
        origin=RunId(row["origin"]),
        queue=row["queue"],
        priority=row["priority"],
        owner=Owner(row["owner"]) if row["owner"] is not None else None,
        expires_at=row["expires_at"],
        lease_ms=row["lease_ms"],
        wake_at=row["wake_at"],
        deadline_at=row["deadline_at"],
        paused_at=row["paused_at"],
        ended_at=row["ended_at"],
        reason=row["reason"],
        detail=row["detail"],
        lapses=row["lapses"],
        prologue_seq=row["prologue_seq"],
        window_seq=row["window_seq"],
        principal=row["principal"],
        purpose=row["purpose"],
        grants=row["grants"],
        identity=row["identity"],
        root=RunId(row["root"]) if row["root"] is not None else None,
        parent=RunId(row["parent"]) if row["parent"] is not None else None,
        traceparent=row["traceparent"],
        labels=json.loads(row["labels"]),
    )


def operation_row(row: Row) -> OperationRow:
    """A row of `operation`."""
    return OperationRow(
        tenant=Tenant(row["tenant"]),
        run=RunId(row["run_id"]),
        id=OperationId(row["id"]),
        call=row["call"],
        tool=row["tool"],
        effect=cast(Effect, row["effect"]),
        key=row["key"],
        digest=row["digest"],
        arguments=row["arguments"],
        status=cast(OperationStatus, row["status"]),
        attempt=row["attempt"],
        epoch=row["epoch"],
        first_sent_at=row["first_sent_at"],
        updated_at=row["updated_at"],
        not_before=row["not_before"],
        outcome=row["outcome"],
        error=row["error"],
        how=row["how"],
        notes=json.loads(row["notes"]),
        duplicates=row["duplicates"],
    )


def operation_parameters(row: OperationRow) -> Parameters:
    """What `put_operation` takes; tenant and run are those of the append."""
    return {
        "id": row.id,
        "call": row.call,
        "tool": row.tool,
        "effect": row.effect,
        "key": row.key,
        "digest": row.digest,
        "arguments": row.arguments,
        "status": row.status,
        "attempt": row.attempt,
        "epoch": row.epoch,
        "first_sent_at": row.first_sent_at,
        "updated_at": row.updated_at,
        "not_before": row.not_before,
        "outcome": row.outcome,
        "error": row.error,
        "how": row.how,
        "notes": to_json(row.notes),
        "duplicates": row.duplicates,
    }


def entry(row: Sequence[Any]) -> Entry:
    """A row of `entries` or `window`."""
    return Entry(*row)


def entry_parameters(entry: Entry) -> Parameters:
    """What `add_entry` takes; tenant and run are those of the append."""
    return {
        "seq": entry.seq,
        "epoch": entry.epoch,
        "kind": entry.kind,
        "version": entry.version,
        "at": entry.at,
        "scope": entry.scope,
        "key": entry.key,
        "body": entry.body,
        "payload": entry.payload,
        "blob": entry.blob,
        "data_class": entry.data_class,
        "key_id": entry.key_id,
        "digest": entry.digest.hex(),
    }


def message(tenant: Tenant, run: RunId, row: Row) -> Message:
    """A row of `unread`."""
    return Message(tenant, run, row["topic"], row["sender_key"], row["body"], row["id"], row["at"])


def worker_row(row: Row) -> WorkerRow:
    """A row of `worker`."""
    return WorkerRow(Owner(row["owner"]), row["pid"], json.loads(row["serves"]), row["started_at"], row["seen_at"])


def to_json(value: object) -> str:
    """Compact JSON for a column or a parameter."""
    return _encode(value)


def check_text(values: Mapping[str, object], where: str) -> None:
    """Refuse text that no database can store, before anything else of the same commit is written."""
    for name, value in values.items():
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise NotSerialisable(what=name, where=where, why="it has half of a surrogate pair") from error
            if "\0" in value:
                raise NotSerialisable(what=name, where=where, why="it has a NUL character")
