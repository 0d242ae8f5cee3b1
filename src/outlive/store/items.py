"""The items port: values that graphs of another library remember across threads, by namespace and key.

A namespace is a text of labels with points between them. An item with a time to live is gone when that is over: for
readers at once, from the table with later writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outlive.model.ids import Tenant


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item; `value` is JSON, times are milliseconds."""

    prefix: str
    key: str
    value: str
    created_at: int
    updated_at: int
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class NewItem:
    """What is put at a key: a value, or None to take the item away."""

    prefix: str
    key: str
    value: str | None
    ttl_ms: int | None


@runtime_checkable
class Items(Protocol):
    """Values by namespace and key."""

    async def put_items(self, tenant: Tenant, items: Sequence[NewItem], *, now: int | None = None) -> None:
        """In one commit; each key once."""
        ...

    async def item(self, tenant: Tenant, prefix: str, key: str, *, now: int | None = None) -> ItemRow | None:
        """One by its key."""
        ...

    async def items_below(
        self, tenant: Tenant, prefix: str, *, offset: int, limit: int, now: int | None = None
    ) -> list[ItemRow]:
        """Those of a namespace and of the ones below it (empty: all), the last written first."""
        ...

    async def item_prefixes(self, tenant: Tenant, *, now: int | None = None) -> list[str]:
        """The namespaces that have items, in order."""
        ...

    async def refresh_items(self, tenant: Tenant, read: Sequence[ItemRow], *, now: int | None = None) -> None:
        """The time to live of these begins anew."""
        ...
