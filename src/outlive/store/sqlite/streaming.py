"""Text of calls that are being made, in the file: a request of its own, which others may share a commit with."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from outlive.model.ids import RunId, Tenant
from outlive.model.run import Authority
from outlive.store import columns
from outlive.store.sql import load
from outlive.store.sqlite.base import Base
from outlive.store.streaming import Delta, Over

_STATEMENTS = load(Path(__file__).with_name("streaming.sql"))


class SQLiteStreaming(Base):
    """The port's `Streaming`; its contract is there."""

    async def add_deltas(
        self, deltas: Sequence[tuple[Authority, Delta]], over: Sequence[Over], *, now: int | None = None
    ) -> None:
        def add(database: sqlite3.Connection, clock: int) -> None:
            for one in over:
                database.execute(_STATEMENTS["end_deltas"], asdict(one))
            for authority, delta in deltas:
                given = {**columns.delta_parameters(authority, delta), "now": self._at(now, clock)}
                database.execute(_STATEMENTS["add_delta"], given)

        await self._write(add)

    async def deltas(self, tenant: Tenant, run: RunId, *, after: int, limit: int) -> list[Delta]:
        wanted = {"tenant": tenant, "run": run, "after": after, "limit": limit}
        return await self._read(
            lambda database: [Delta(*row) for row in database.execute(_STATEMENTS["find_deltas"], wanted)]
        )

    async def drop_deltas(self, *, older_ms: int, now: int | None = None) -> int:
        def drop(database: sqlite3.Connection, clock: int) -> int:
            given = {"older_ms": older_ms, "now": self._at(now, clock)}
            return database.execute(_STATEMENTS["drop_deltas"], given).rowcount

        return await self._write(drop)
