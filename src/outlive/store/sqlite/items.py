"""What graphs remember across threads, in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from outlive.model.ids import Tenant
from outlive.store.items import ItemRow, NewItem
from outlive.store.sql import load
from outlive.store.sqlite.base import Base, clock

_STATEMENTS = load(Path(__file__).with_name("items.sql"))


class SQLiteItems(Base):
    """The port's `Items`; its contract is there."""

    async def put_items(self, tenant: Tenant, items: Sequence[NewItem], *, now: int | None = None) -> None:
        def put(database: sqlite3.Connection, clock: int) -> None:
            named = {"tenant": tenant, "now": self._at(now, clock)}
            database.execute(_STATEMENTS["drop_expired_items"], named)
            for item in items:
                statement = _STATEMENTS["drop_item" if item.value is None else "put_item"]
                database.execute(statement, {**named, **asdict(item)})

        await self._write(put)

    async def item(self, tenant: Tenant, prefix: str, key: str, *, now: int | None = None) -> ItemRow | None:
        found = await self._items("find_item", {"tenant": tenant, "prefix": prefix, "key": key}, now)
        return found[0] if found else None

    async def items_below(
        self, tenant: Tenant, prefix: str, *, offset: int, limit: int, now: int | None = None
    ) -> list[ItemRow]:
        given: dict[str, str | int] = {"tenant": tenant, "prefix": prefix, "offset": offset, "limit": limit}
        return await self._items("find_items", given, now)

    async def item_prefixes(self, tenant: Tenant, *, now: int | None = None) -> list[str]:
        def find(database: sqlite3.Connection) -> list[str]:
            given = {"tenant": tenant, "now": self._at(now, clock(database))}
            return [row[0] for row in database.execute(_STATEMENTS["find_prefixes"], given)]

        return await self._read(find)

    async def refresh_items(self, tenant: Tenant, read: Sequence[ItemRow], *, now: int | None = None) -> None:
        def refresh(database: sqlite3.Connection, clock: int) -> None:
            named = {"tenant": tenant, "now": self._at(now, clock)}
            rows = [{**named, "prefix": one.prefix, "key": one.key} for one in read]
            database.executemany(_STATEMENTS["refresh_item"], rows)

        await self._write(refresh)

    async def _items(self, name: str, given: dict[str, str | int], now: int | None) -> list[ItemRow]:
        def find(database: sqlite3.Connection) -> list[ItemRow]:
            rows = database.execute(_STATEMENTS[name], {**given, "now": self._at(now, clock(database))})
            return [ItemRow(*row) for row in rows]

        return await self._read(find)
