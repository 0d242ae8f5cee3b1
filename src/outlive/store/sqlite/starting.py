"""How a run begins: its row, its first entry, and what that carries, in one transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from outlive.log.entry import seal
from outlive.model.run import Authority, Head, NewRun, RunRow
from outlive.store import columns
from outlive.store.port import Append
from outlive.store.sqlite import rows
from outlive.store.sqlite.append import blob_parameters
from outlive.store.sqlite.connection import QUERIES
from outlive.store.sqlite.records import find_run

NOBODY = Head(0, b"")


@dataclass(frozen=True, slots=True)
class Starting:
    """All parameters of a start."""

    run: NewRun
    row: columns.Parameters
    entries: list[tuple[object, ...]]
    blobs: list[columns.Parameters]


def prepare(secret: bytes, run: NewRun, at: int) -> Starting:
    """Seal the first entry and encode everything. Raises NotSerialisable."""
    first = Append(Authority(run.tenant, run.id, 0, ""), NOBODY, (columns.started(run, at),))
    sealed = seal(secret, NOBODY, 0, first.drafts)
    row = columns.run_parameters(run, sealed.head)
    columns.check_text({**row, "input": run.input}, f"run {run.id}")
    entries = [rows.entry_parameters(run.tenant, run.id, entry) for entry in sealed.entries]
    return Starting(run, row, entries, blob_parameters(first, sealed.blobs, [entry.blob for entry in sealed.entries]))


def add(database: sqlite3.Connection, starting: Starting, now: int) -> RunRow | None:
    """Add the run, if its id is free; gives the row that has the id."""
    if database.execute(QUERIES["add_run"], {**starting.row, "now": now}).rowcount == 1:
        for blob in starting.blobs:
            database.execute(QUERIES["add_blob"], {**blob, "now": now})
        for entry in starting.entries:
            database.execute(QUERIES["add_entry"], entry)
    return find_run(database, starting.run.tenant, starting.run.id)
