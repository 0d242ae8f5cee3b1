"""The bundle port: a run as rows, read as of one moment and stored elsewhere in one commit.

Leases and tokens stay behind: nobody owns a run that arrives, and one that had not ended arrives paused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Literal, Protocol, TypeAlias

from outlive.log.entry import Entry, seal
from outlive.log.kinds import ClaimedBy, Paused, draft
from outlive.model.errors import RunExists
from outlive.model.ids import RunId, Tenant
from outlive.model.run import Head

Kind = Literal["run", "entry", "operation", "message", "divergence"]
KINDS: tuple[Kind, ...] = ("run", "entry", "operation", "message", "divergence")

# Columns by name; bytes are hex.
Columns: TypeAlias = Mapping[str, str | int | None]
Part: TypeAlias = tuple[Kind, Columns]

PAGE = 100
# In which a run can stand still.
_Still: TypeAlias = Literal["ready", "waiting", "blocked"]
_STANDS: tuple[_Still, ...] = ("ready", "waiting", "blocked")


class Bundles(Protocol):
    """Runs on their way out and in."""

    def parts(self, tenant: Tenant, run: RunId) -> AsyncIterator[Part]:
        """The run's row, then its entries with payloads, its operations, its inbox, its divergences, each in order.

        As of one moment, a page at a time. Raises UnknownRun.
        """
        ...

    async def known_key(self, tenant: Tenant) -> bytes | None:
        """The tenant's digest key, if it has one; none is made."""
        ...

    async def put_run(self, tenant: Tenant, parts: Iterator[Part], secret: bytes, *, now: int | None = None) -> bool:
        """Store a run in one commit; False if it is there with this log, or with one that goes on from it.

        A tenant without a key gets `secret`; Refused if it has another one. `parts` is read to its end before anything
        is committed, and what it raises leaves the store as it was. Raises RunExists for an id with another log.
        """
        ...


def arriving(secret: bytes, row: Columns, now: int) -> tuple[dict[str, str | int | None], tuple[Entry, ...]]:
    """The row as it is stored where it arrives, and what has to be added to its log.

    A run that had not ended is paused, and its log says so; one that was driven is taken out of its owner's hands, and
    is *ready* when somebody resumes it.
    """
    arrived = {**row, "imported_at": now}
    if row["ended_at"] is not None or row["paused_at"] is not None:
        return arrived, ()
    status: _Still = next((one for one in _STANDS if one == row["status"]), "ready")
    head, epoch = Head(int(row["next_seq"] or 0), bytes.fromhex(str(row["head"]))), int(row["epoch"] or 0) + 1
    facts = (ClaimedBy(owner="import", why="control"), Paused(who="import", why="it was imported", status=status))
    sealed = seal(secret, head, epoch, [draft(fact, at=now) for fact in facts])
    arrived |= {
        "status": status, "ready_at": now if status == "ready" else None, "paused_at": now, "epoch": epoch,
        "next_seq": sealed.head.seq, "head": sealed.head.digest.hex(),
    }  # fmt: skip
    return arrived, sealed.entries


def entry_columns(entry: Entry) -> dict[str, str | int | None]:
    """An entry as a part of a bundle has it."""
    return {
        "seq": entry.seq, "epoch": entry.epoch, "kind": entry.kind, "version": entry.version, "at": entry.at,
        "scope": entry.scope, "key": entry.key, "body": entry.body, "payload": entry.payload, "blob": entry.blob,
        "data_class": entry.data_class, "key_id": entry.key_id, "digest": entry.digest.hex(),
    }  # fmt: skip


def same_log(run: str, row: Columns, digest: bytes | None, phase: str) -> None:
    """Raises RunExists unless the log that is there, whose entry at the other's end has `digest`, goes on from it."""
    if phase == "forgetting":
        raise RunExists(run=run, differs="what is left of it: it is just being forgotten")
    if digest is None or digest.hex() != row["head"]:
        raise RunExists(run=run, differs="log")
