"""How a run begins: its row, its first entry, and what that carries, in one transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from outlive.log.entry import Draft, seal
from outlive.model.errors import UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.model.run import Authority, Head, History, NewRun, RunRow, refusal_to_fork
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


@dataclass(frozen=True, slots=True)
class Forking:
    """All parameters of a fork."""

    tenant: Tenant
    run: RunId
    row: columns.Parameters
    entry: tuple[object, ...]


def prepare_fork(secret: bytes, run: NewRun, history: History, first: Draft) -> Forking:
    """Seal the entry after the history and encode everything. Raises NotSerialisable."""
    sealed = seal(secret, history.end, history.epoch, [first])
    row = columns.fork_parameters(run, history, sealed.head)
    columns.check_text(row, f"run {run.id}")
    return Forking(run.tenant, run.id, row, rows.entry_parameters(run.tenant, run.id, sealed.entries[0]))


def add_fork(database: sqlite3.Connection, forking: Forking, now: int) -> RunRow | None:
    """Add the fork, if its id is free; gives the row that has the id. Raises what makes the parent not forkable."""
    if (existing := find_run(database, forking.tenant, forking.run)) is not None:
        return existing
    if database.execute(QUERIES["mark_forked"], forking.row).rowcount != 1:
        parent = RunId(str(forking.row["parent"]))
        why = refusal_to_fork(parent, find_run(database, forking.tenant, parent))
        raise why or UnknownRun(run=parent)  # it is being forgotten
    database.execute(QUERIES["add_fork"], {**forking.row, "now": now})
    database.execute(QUERIES["copy_entries"], forking.row)
    database.execute(QUERIES["add_entry"], forking.entry)
    return find_run(database, forking.tenant, forking.run)


def add(database: sqlite3.Connection, starting: Starting, now: int) -> RunRow | None:
    """Add the run, if its id is free; gives the row that has the id."""
    if database.execute(QUERIES["add_run"], {**starting.row, "now": now}).rowcount == 1:
        for blob in starting.blobs:
            database.execute(QUERIES["add_blob"], {**blob, "now": now})
        for entry in starting.entries:
            database.execute(QUERIES["add_entry"], entry)
    return find_run(database, starting.run.tenant, starting.run.id)
