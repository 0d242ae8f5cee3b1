"""Business keys: read, and waited for."""

from __future__ import annotations

from outlive.model.business import KeyFilter, KeyRow
from outlive.model.ids import RunId, Tenant
from outlive.store import columns
from outlive.store.postgres.base import Base


class PostgresKeys(Base):
    """The port's `Keys`; its contract is there."""

    async def business_key(self, tenant: Tenant, key: str) -> KeyRow | None:
        found = await self._read(self._sql["find_business_key"], {"tenant": tenant, "key": key})
        return columns.key_row(found[0]) if found else None

    async def business_keys(self, tenant: Tenant, which: KeyFilter) -> list[KeyRow]:
        parameters: columns.Parameters = {
            **columns.key_filter_parameters(which), "tenant": tenant, "statuses": list(which.statuses),
        }  # fmt: skip
        return [columns.key_row(row) for row in await self._read(self._sql["find_business_keys"], parameters)]

    async def await_key(self, tenant: Tenant, key: str, run: RunId, *, changes: int, now: int | None = None) -> bool:
        parameters: columns.Parameters = {
            "tenant": tenant, "key": key, "run": run, "changes": changes, "now": self._at(now),
        }  # fmt: skip
        return bool(await self._write(self._sql["await_key"], parameters))
