"""Between records and rows, where this store differs; columns.py has what is alike in all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.log.entry import Entry
from outlive.model.ids import RunId, Tenant
from outlive.store.columns import Parameters, Row
from outlive.store.port import Message


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
