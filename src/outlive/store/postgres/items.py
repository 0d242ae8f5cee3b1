"""What graphs remember across threads, in the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from outlive.model.ids import Tenant
from outlive.store.columns import Parameters
from outlive.store.items import ItemRow, NewItem
from outlive.store.postgres.base import Base, Connection
from outlive.store.postgres.transaction import IDLE_MS, begin
from outlive.store.sql import load

_STATEMENTS = load(Path(__file__).with_name("items.sql"))


class PostgresItems(Base):
    """The port's `Items`; its contract is there."""

    async def put_items(self, tenant: Tenant, items: Sequence[NewItem], *, now: int | None = None) -> None:
        # In one order everywhere, so that two of these wait for each other, and not crosswise.
        rows = [asdict(item) for item in sorted(items, key=lambda item: (item.prefix, item.key))]
        await self._write_items(
            tenant,
            now,
            ("drop_expired_items", [{}]),
            ("drop_item", [row for row in rows if row["value"] is None]),
            ("put_item", [row for row in rows if row["value"] is not None]),
        )

    async def item(self, tenant: Tenant, prefix: str, key: str, *, now: int | None = None) -> ItemRow | None:
        given: Parameters = {"tenant": tenant, "prefix": prefix, "key": key, "now": self._at(now)}
        rows = await self._read_tuples(self._item("find_item"), given)
        return ItemRow(*rows[0]) if rows else None

    async def items_below(
        self, tenant: Tenant, prefix: str, *, offset: int, limit: int, now: int | None = None
    ) -> list[ItemRow]:
        given: Parameters = {
            "tenant": tenant, "prefix": prefix, "offset": offset, "limit": limit, "now": self._at(now),
        }  # fmt: skip
        return [ItemRow(*row) for row in await self._read_tuples(self._item("find_items"), given)]

    async def item_prefixes(self, tenant: Tenant, *, now: int | None = None) -> list[str]:
        given: Parameters = {"tenant": tenant, "now": self._at(now)}
        return [row[0] for row in await self._read_tuples(self._item("find_prefixes"), given)]

    async def refresh_items(self, tenant: Tenant, read: Sequence[ItemRow], *, now: int | None = None) -> None:
        rows = sorted((one.prefix, one.key) for one in read)
        named: list[dict[str, object]] = [{"prefix": prefix, "key": key} for prefix, key in rows]
        await self._write_items(tenant, now, ("refresh_item", named))

    async def _write_items(
        self, tenant: Tenant, now: int | None, *statements: tuple[str, Sequence[dict[str, object]]]
    ) -> None:
        self._refuse_inside()
        named = {"tenant": tenant, "now": self._at(now)}

        async def write(connection: Connection) -> None:
            await begin(connection, self._sql, wait=self._wait, idle_ms=IDLE_MS)
            async with connection.cursor() as cursor:
                for name, rows in statements:
                    await cursor.executemany(self._item(name), [{**named, **row} for row in rows])
            await connection.execute(self._sql["commit"])

        await self._on_connection(write, wrote=True)

    def _item(self, name: str) -> bytes:
        return self._sql.fill(_STATEMENTS[name]).encode()
