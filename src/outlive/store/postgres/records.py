"""What people and other processes read and write beside the log."""

from __future__ import annotations

from dataclasses import replace

from outlive.model.errors import NotSerialisable, UnknownRun
from outlive.model.ids import OperationId, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import RunFilter, RunRow
from outlive.store import columns
from outlive.store.port import Divergence, Message
from outlive.store.postgres import rows
from outlive.store.postgres.base import Base
from outlive.store.postgres.identity import unsafe_failover
from outlive.store.postgres.migrate import unsafe_settings

_PAGE = 500


class PostgresRecords(Base):
    """The port's `Records`; its contract is there."""

    async def now(self) -> int:
        found, manual = await self._read_tuples(self._sql["clock"], {}), self._at(None)
        return int(found[0][0]) if manual is None else manual

    async def run(self, tenant: Tenant, run: RunId) -> RunRow | None:
        found = await self._read(self._sql["find_run"], {"tenant": tenant, "run": run})
        return columns.run_row(found[0]) if found else None

    async def runs(self, tenant: Tenant, which: RunFilter) -> list[RunRow]:
        parameters: columns.Parameters = {
            "tenant": tenant,
            "statuses": list(which.statuses),
            "agent": which.agent,
            "reason": which.reason,
            "paused": which.paused,
            "labels": columns.to_json(which.labels),
            "limit": which.limit,
            **columns.place_parameters(which),
        }
        try:
            found = await self._read(self._sql["find_runs"], parameters)
        except NotSerialisable:
            if not which.labels:
                raise
            return await self._compared(tenant, which)
        return [columns.run_row(row) for row in found]

    async def _compared(self, tenant: Tenant, which: RunFilter) -> list[RunRow]:
        """The same where the server cannot read the labels of some run: they are compared here, page by page."""
        found, page = list[RunRow](), replace(which, labels={}, limit=_PAGE)
        while len(found) < which.limit and (rows := await self.runs(tenant, page)):
            found += [row for row in rows if row.damaged or which.labels.items() <= row.labels.items()]
            page = replace(page, behind=(rows[-1].created_at, rows[-1].id))
        return found[: which.limit]

    async def operations(self, tenant: Tenant, run: RunId) -> list[OperationRow]:
        found = await self._read(self._sql["find_operations"], {"tenant": tenant, "run": run})
        return [columns.operation_row(row) for row in found]

    async def operation(self, tenant: Tenant, operation: OperationId) -> OperationRow | None:
        found = await self._read(self._sql["find_operation"], {"tenant": tenant, "operation": operation})
        return columns.operation_row(found[0]) if found else None

    async def alike(self, tenant: Tenant, origin: RunId, *, tool: str, digest: str, key: str) -> list[OperationRow]:
        parameters: columns.Parameters = {
            "tenant": tenant, "origin": origin, "tool": tool, "digest": digest, "key": key,
        }  # fmt: skip
        return [columns.operation_row(row) for row in await self._read(self._sql["find_alike"], parameters)]

    async def rollbacks(self, tenant: Tenant, run: RunId) -> list[RunRow]:
        found = await self._read(self._sql["find_rollbacks"], {"tenant": tenant, "run": run})
        return [columns.run_row(row) for row in found]

    async def post(self, message: Message, *, now: int | None = None) -> bool:
        parameters: columns.Parameters = {
            "tenant": message.tenant,
            "run": message.run,
            "topic": message.topic,
            "sender_key": message.sender_key,
            "body": message.body,
            "now": self._at(now),
        }
        columns.check_text(parameters, f"a message to run {message.run}")
        if await self._write(self._sql["add_message"], parameters):
            self._hint()
            return True
        if not (await self._read_tuples(self._sql["run_exists"], parameters))[0][0]:
            raise UnknownRun(run=message.run)
        return False

    async def unread(self, tenant: Tenant, run: RunId) -> list[Message]:
        found = await self._read(self._sql["unread"], {"tenant": tenant, "run": run})
        return [rows.message(tenant, run, row) for row in found]

    async def divergences(self, tenant: Tenant, run: RunId) -> list[Divergence]:
        found = await self._read_tuples(self._sql["find_divergences"], {"tenant": tenant, "run": run})
        return [Divergence(code, report) for code, report in found]

    async def durability(self) -> list[str]:
        settings: dict[str, str] = dict(await self._read_tuples(self._sql["settings"], {}))
        [(replicas,)] = await self._read_tuples(self._sql["replicas"], {})
        return [*unsafe_settings(settings), *unsafe_failover(settings, int(replicas))]
