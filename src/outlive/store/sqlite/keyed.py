"""Business keys: read, and waited for."""

from __future__ import annotations

from outlive.model.business import KeyFilter, KeyRow
from outlive.model.ids import RunId, Tenant
from outlive.store import columns
from outlive.store.sqlite.base import Base
from outlive.store.sqlite.connection import QUERIES


class SQLiteKeys(Base):
    """The port's `Keys`; its contract is there."""

    async def business_key(self, tenant: Tenant, key: str) -> KeyRow | None:
        parameters = {"tenant": tenant, "key": key}
        found = await self._read(
            lambda database: database.execute(QUERIES["find_business_key"], parameters).fetchone()
        )  # fmt: skip
        return None if found is None else columns.key_row(found)

    async def business_keys(self, tenant: Tenant, which: KeyFilter) -> list[KeyRow]:
        parameters: columns.Parameters = {
            **columns.key_filter_parameters(which), "tenant": tenant,
            "statuses": columns.to_json(list(which.statuses)),
        }  # fmt: skip
        return await self._read(
            lambda database: [
                columns.key_row(row) for row in database.execute(QUERIES["find_business_keys"], parameters)
            ]
        )

    async def await_key(self, tenant: Tenant, key: str, run: RunId, *, changes: int, now: int | None = None) -> bool:
        parameters: columns.Parameters = {"tenant": tenant, "key": key, "run": run, "changes": changes}
        return await self._write(
            lambda database, _: database.execute(QUERIES["await_key"], parameters).rowcount == 1
        )  # fmt: skip
