"""Between records and rows, where this store differs; columns.py has what is alike in all."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from outlive.log.entry import Entry
from outlive.model.ids import RunId, Tenant
from outlive.model.run import RunRow
from outlive.store import columns
from outlive.store.columns import Parameters
from outlive.store.port import Message


def of_runs(database: sqlite3.Connection, query: str, parameters: Parameters) -> list[sqlite3.Row]:
    """Rows of `run`. Bytes that are no text are shown as escapes: one such row must not hide the others."""
    cursor = database.execute(query, parameters)
    try:
        return cursor.fetchall()
    except sqlite3.OperationalError as error:
        cursor.close()
        # The driver's own error, which has no code.
        if "decode" not in str(error):
            raise
    database.text_factory = _escaped
    try:
        return database.execute(query, parameters).fetchall()
    finally:
        database.text_factory = str


def run_row(row: sqlite3.Row) -> RunRow:
    """A row of `run`, as `of_runs` reads it; `damaged` where some of it is no text."""
    found = columns.run_row(row)
    wrong = [name for name in row.keys() if isinstance(row[name], _Escaped)]
    if not wrong:
        return found
    why = f"what is in {' and '.join(wrong)} is no text"
    return replace(found, damaged=f"{found.damaged}; {why}" if found.damaged else why)


class _Escaped(str):
    """Stands for bytes that are no text."""


def _escaped(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return _Escaped(text.decode("utf-8", "backslashreplace"))


def entry(row: sqlite3.Row) -> Entry:
    """A row of `entries` or `window`. The hex of no blob is an empty text."""
    seq, epoch, kind, version, at, scope, key, body, payload, blob, data_class, key_id, digest = row
    return Entry(
        seq, epoch, kind, version, at, scope, key, body, payload, blob or None, data_class, key_id, digest
    )  # fmt: skip


def entry_parameters(tenant: Tenant, run: RunId, entry: Entry) -> tuple[object, ...]:
    """What `add_entry` takes."""
    blob = bytes.fromhex(entry.blob) if entry.blob is not None else None
    return (
        tenant, run, entry.seq, entry.epoch, entry.kind, entry.version, entry.at, entry.scope, entry.key, entry.body,
        entry.payload, blob, entry.data_class, entry.key_id, entry.digest,
    )  # fmt: skip


def message(tenant: Tenant, run: RunId, row: sqlite3.Row) -> Message:
    """A row of `unread`."""
    topic, sender_key, body, number, at = row
    return Message(tenant, run, topic, sender_key, body, number, at)
