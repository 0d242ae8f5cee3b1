"""The part of the store port that a `transactional` tool writes through: its own SQL, and the append that joins it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outlive.model.business import KeyMark, KeyRow
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import Head
from outlive.store.port import Append


class Transaction(Protocol):
    """A transaction of the user's own on the run's database, that an append can join."""

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Run one statement inside the transaction and return its rows.

        Raises what the driver raises: it is the user's SQL. Refused after a statement that has ended the transaction by
        itself (its error is the driver's): what it had written is gone, and nothing more joins it.
        """
        ...

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        """As `Records.alike`, and nobody else is told before this transaction has ended: who asks for an origin waits.

        Call it first of all: what the transaction has locked before, others may wait for crosswise.
        """
        ...

    async def take_key(self, tenant: Tenant, mark: KeyMark, *, now: int | None = None) -> KeyRow | None:
        """Take a business key within the transaction, as an append with `take` does. None: it is ours if this commits.

        Else the row of whoever has it: nothing was taken, and the transaction is good for nothing but to be left. Who
        asks for one that another transaction is taking waits for the end of that.
        """
        ...

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        """Join the append to the transaction and commit both. Raises as `Log.append`; then neither is stored.

        Refused when the transaction's own SQL has ended it, or left something that its commit would not allow.
        """
        ...
