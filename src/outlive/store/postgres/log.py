"""The log of a run: append, read, and transactions that an append can join."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from outlive.log.entry import Entry
from outlive.model.ids import RunId, Tenant
from outlive.model.run import Head
from outlive.store import columns
from outlive.store.hints import worth_a_hint
from outlive.store.port import Append
from outlive.store.postgres import rows
from outlive.store.postgres.append import prepare
from outlive.store.postgres.base import Base
from outlive.store.postgres.transaction import OwnTransaction
from outlive.store.within import Transaction


class PostgresLog(Base):
    """The port's `Log`; its contract is there."""

    async def append(self, append: Append, *, now: int | None = None) -> Head:
        self._refuse_inside()
        committer = self._connected().committer
        secret = self._keys.get(append.authority.tenant) or await self.key(append.authority.tenant)
        head = await committer.append(prepare(secret, append, self._at(now)))
        if worth_a_hint(append):
            self._hint()
        return head

    async def window(self, tenant: Tenant, run: RunId) -> list[Entry]:
        found = await self._read_tuples(self._sql["window"], {"tenant": tenant, "run": run})
        return [rows.entry(row) for row in found]

    async def entries(self, tenant: Tenant, run: RunId, *, after: int = -1, limit: int = 1000) -> list[Entry]:
        parameters: columns.Parameters = {"tenant": tenant, "run": run, "after": after, "limit": limit}
        return [rows.entry(row) for row in await self._read_tuples(self._sql["entries"], parameters)]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        self._refuse_inside()
        own = OwnTransaction(self._connected().pool, self._place, self._sql, key=self.key, at=self._at, wait=self._wait)
        self._enter(own.is_open)
        try:
            await own.begin()
            yield own
        finally:
            await self._tasks.certainly(own.end())
