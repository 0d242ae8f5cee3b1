"""Text of calls that are being made, in the schema: in a table that no crash of the server keeps, over the pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from outlive.model.ids import RunId, Tenant
from outlive.model.run import Authority
from outlive.store import columns
from outlive.store.postgres.base import Base, Connection
from outlive.store.sql import load
from outlive.store.streaming import Delta, Over

_STATEMENTS = load(Path(__file__).with_name("streaming.sql"))


class PostgresStreaming(Base):
    """The port's `Streaming`; its contract is there."""

    async def add_deltas(
        self, deltas: Sequence[tuple[Authority, Delta]], over: Sequence[Over], *, now: int | None = None
    ) -> None:
        self._refuse_inside()
        rows = [
            {**columns.delta_parameters(authority, delta), "number": number}
            for number, (authority, delta) in enumerate(deltas)
        ]
        given: columns.Parameters = {"deltas": columns.to_json(rows), "now": self._at(now)}

        async def write(connection: Connection) -> None:
            async with connection.transaction():
                if over:
                    ended: columns.Parameters = {"over": columns.to_json([asdict(one) for one in over])}
                    await connection.execute(self._streaming("end_deltas"), ended, prepare=self._place.direct)
                if rows:
                    await connection.execute(self._streaming("add_delta"), given, prepare=self._place.direct)

        await self._on_connection(write, wrote=True)

    async def deltas(self, tenant: Tenant, run: RunId, *, after: int, limit: int) -> list[Delta]:
        wanted: columns.Parameters = {"tenant": tenant, "run": run, "after": after, "limit": limit}
        return [Delta(*row) for row in await self._read_tuples(self._streaming("find_deltas"), wanted)]

    async def drop_deltas(self, *, older_ms: int, now: int | None = None) -> int:
        given: columns.Parameters = {"older_ms": older_ms, "now": self._at(now)}
        return len(await self._write(self._streaming("drop_deltas"), given))

    def _streaming(self, name: str) -> bytes:
        return self._sql.fill(_STATEMENTS[name]).encode()
