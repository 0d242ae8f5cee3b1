"""A store that can only be read: what writes, claims or tells is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from outlive.model.errors import Refused
from outlive.store.port import Store

if TYPE_CHECKING:
    from outlive.model.ids import Tenant
    from outlive.store.bundles import Bundles

# What the code of an agent, or the engine for it, may ask about a run. `key` is none of them: it makes one.
READS: frozenset[str] = frozenset((
    "window", "entries", "run", "runs", "now", "operations", "operation", "alike", "rollbacks", "unread",
    "divergences", "workers", "approval", "approvals", "business_key", "business_keys", "known_key",
))  # fmt: skip


class _ReadOnly:
    """What reads goes through; what does not is refused by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.name = store.name

    def __getattr__(self, name: str) -> object:
        if name in READS:
            return cast("object", getattr(self._store, name))
        raise Refused(what=f"{name} of {self.name}", why="the store is only read here")

    async def key(self, tenant: Tenant, *, within: object = None) -> bytes:
        """The tenant's key. Refused where it has none: none is made."""
        known = await cast("Bundles", self._store).known_key(tenant)
        if known is None or within is not None:
            raise Refused(what=f"key of tenant {tenant}", why="it has none, and none is made here")
        return known


def read_only(store: Store) -> Store:
    """The same store, for who must not change it. Raises Refused for every call that could."""
    return cast("Store", _ReadOnly(store))
