"""The part of the store port that business keys are read and waited for by. Appends take them, and say what became of
them: see `Append.take` and `Append.marks`.
"""

from __future__ import annotations

from typing import Protocol

from outlive.model.business import KeyFilter, KeyRow
from outlive.model.ids import RunId, Tenant


class Keys(Protocol):
    """Business keys: one action of a tenant each, whichever run does it."""

    async def business_key(self, tenant: Tenant, key: str) -> KeyRow | None:
        """One by its digest, or None."""
        ...

    async def business_keys(self, tenant: Tenant, which: KeyFilter) -> list[KeyRow]:
        """Those that match, in the order of their digests."""
        ...

    async def await_key(self, tenant: Tenant, key: str, run: RunId, *, changes: int, now: int | None = None) -> bool:
        """Have the run sent a message (topic `KEY`) in the commit of the key's next change. Once, however often asked.

        False, with nothing written, where it has changed since it was read (`changes`), or is settled or free.
        """
        ...
