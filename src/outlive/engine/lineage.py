"""Lineage: the runs of one origin, a run and its forks. What has one of them done that another is about to do?

Asked before an operation is sent, and again when its intent is there: of two that send at the same time at least one
sees the other. A run that has no others asks nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from outlive.engine.attempt import Attempt
from outlive.engine.calls import Asked
from outlive.engine.failures import writable
from outlive.log.canonical import digest
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import OPEN, OperationRow, OperationStatus
from outlive.model.run import RunRow
from outlive.store.port import Store

log = logging.getLogger("outlive.run")

# What may have acted. Of what was abandoned nobody knows.
ACTED: frozenset[OperationStatus] = OPEN | {"succeeded", "abandoned"}


class Source(Protocol):
    """Who is asked: the store, or a transaction on it."""

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        """See the port."""
        ...


@dataclass(frozen=True, slots=True)
class Standing:
    """How an operation stands in its lineage: `theirs` has done the same, or may have. `key` goes with it."""

    key: str
    theirs: OperationRow | None = None


def has_forks(row: RunRow) -> bool:
    """Whether there is, or was, another run of the origin."""
    return row.forked or row.fork_of is not None


def keys_of(attempt: Attempt, scope: str, key: str) -> tuple[str, str, str]:
    """Of a call: the operation's id, its idempotency key, and the key for doing it once more on purpose.

    All are stable over re-sends and a lost commit, and silent about the arguments. The key is that of the same call in
    every run of the origin; the other two are this run's own.
    """
    row, window = attempt.journal.row, str(attempt.fold.window)

    def named(what: bytes, run: RunId) -> str:
        return digest(attempt.key, what, *(part.encode() for part in (run, window, scope, key)))

    return f"op-{named(b'operation', row.id)[:20]}", named(b"operation", row.origin), named(b"once more", row.id)


async def standing(
    attempt: Attempt, scope: str, key: str, asked: Asked, arguments: str, *, again: bool = False,
    source: Source | None = None,
) -> Standing:  # fmt: skip
    """Ask, patiently: nothing is sent before it is known. `again`: a person has decided that it is done once more."""
    row = attempt.journal.row
    id, common, own = keys_of(attempt, scope, key)
    if not has_forks(row):
        return Standing(common)
    if again or row.repeat_effects:
        return Standing(own)

    async def known() -> Standing:
        bounds = await _shared(attempt.kit.store, row)
        found: list[OperationRow] = []
        # Another run may have done it when the tool had another name.
        for name in sorted({asked.name, *attempt.agent.former(asked.name)}):
            found += await (source or attempt.kit.store).alike(
                row.tenant, row.origin, tool=name, digest=asked.digest, key=common
            )
        return judge(found, Place(row.id, id, asked.digest, arguments, common, own), bounds)

    # Inside a transaction it is the transaction that is tried again.
    return await (known() if source is not None else attempt.patiently(known, "what other runs have done"))


@dataclass(frozen=True, slots=True)
class Place:
    """An operation that is about to be sent: whose it is, its id and arguments, and the keys that it may have."""

    run: RunId
    id: str
    digest: str
    arguments: str
    key: str
    own: str

    def meets(self, row: OperationRow) -> bool:
        """Whether a record has the same arguments; at the same place, the id of its run in them does not count."""
        if row.digest == self.digest:
            return True
        return row.key == self.key and row.arguments.replace(row.run, self.run) == self.arguments


def judge(found: Iterable[OperationRow], call: Place, shared: Mapping[RunId, int]) -> Standing:
    """How a call stands. `shared` says up to which entry the logs of other runs are the history of this one.

    The same call of another run counts first; then calls with the same arguments, as often as this run has not met
    them yet. A key that another run has used for other arguments, or for what was compensated, is not used again.
    """
    rows = [row for row in found if row.id != call.id]
    alike = [row for row in rows if call.meets(row) and _acted(row)]
    theirs = [
        row for row in alike if row.run != call.run and row.how != "reuse" and row.seq > shared.get(row.run, -1)
    ]  # fmt: skip
    mine = [row for row in alike if row.run == call.run]
    free = call.own if any(row.key == call.key and _spoilt(row, call) for row in rows) else call.key
    same = next((row for row in theirs if row.key == call.key), None)
    if same is not None:
        return Standing(free, same)
    matched = {row.key for row in theirs} & {row.key for row in mine}
    left = [row for row in theirs if row.key not in matched]
    met = [row for row in mine if row.key not in matched]
    return Standing(free, left[len(met)] if len(left) > len(met) else None)


def _acted(row: OperationRow) -> bool:
    return row.status in ACTED or (row.duplicates > 0 and row.status != "compensated")


def _spoilt(row: OperationRow, call: Place) -> bool:
    """Whether the other side would answer under its key with something else than what is asked for now."""
    return row.digest != call.digest or row.status == "compensated"


async def _shared(store: Store, row: RunRow) -> dict[RunId, int]:
    """Up to which entry the log of each ancestor is this run's history."""
    found: dict[RunId, int] = {}
    bound: int | None = None
    at: RunRow | None = row
    while at is not None and at.fork_of is not None and at.fork_seq is not None:
        bound = at.fork_seq if bound is None else min(bound, at.fork_seq)
        found[at.fork_of] = bound
        at = await store.run(row.tenant, at.fork_of)
    return found


def told(theirs: OperationRow, shown: str) -> str:
    """The detail of a run that is blocked because of it."""
    may = "has" if theirs.status == "succeeded" else "may have"
    return writable(f"run {theirs.run} {may} done {shown} as operation {theirs.id}: {theirs.status}")
