"""Notifications and their deliveries in the schema, each call one statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from psycopg.rows import DictRow, TupleRow

from outlive.model.ids import RunId, Tenant
from outlive.model.notice import Notice, Notification
from outlive.store import columns
from outlive.store.postgres.base import Base
from outlive.store.sql import load
from outlive.store.telling import Delivery, Due, Nearing, RouteState, Standstill, Told, Unrouted, Untold

_STATEMENTS = load(Path(__file__).with_name("telling.sql"))


class PostgresTelling(Base):
    """The port's `Telling`; its contract is there."""

    async def nearing(self, *, lead_ms: int, limit: int, now: int | None = None) -> list[Nearing]:
        return [Nearing(*row) for row in await self._tuples("nearing", {"lead_ms": lead_ms, "limit": limit}, now)]

    async def has_deadlines(self) -> bool:
        return bool(await self._rows("has_deadlines", {}, None))

    async def standstills(self, *, limit: int, now: int | None = None) -> list[Standstill]:
        found = await self._tuples("standstills", {"limit": limit}, now)
        return [Standstill(*[*row[:6], bool(row[6]), row[7]]) for row in found]

    async def tell(self, tenant: Tenant, run: RunId, notice: Notice, *, now: int | None = None) -> bool:
        parameters = {**columns.notice_parameters(notice, 0), "tenant": tenant, "run": run}
        columns.check_text(parameters, f"run {run}")
        return bool(await self._set("tell", parameters, now))

    async def unrouted(self, state: Unrouted, *, after: int, limit: int) -> list[Notification]:
        found = await self._rows("unrouted", {"state": state, "after": after, "limit": limit}, None)
        return [columns.notification(row) for row in found]

    async def assign(self, routes: Sequence[tuple[Notification, Sequence[str]]], *, now: int | None = None) -> None:
        nobody: Sequence[str | None] = [None]
        assigned = [{"position": one.position, "route": way} for one, taken in routes for way in taken or nobody]
        await self._set("assign", {"assigned": columns.to_json(assigned)}, now)

    async def due_deliveries(self, route: str, *, limit: int, now: int | None = None) -> list[Due]:
        found = await self._rows("due_deliveries", {"route": route, "limit": limit}, now)
        return [Due(columns.notification(row), row["attempts"], row["failing_ms"]) for row in found]

    async def next_delivery(self, routes: Sequence[str], *, now: int | None = None) -> int | None:
        [row] = await self._rows("next_delivery", {"routes": list(routes)}, now)
        found: int | None = row["due_ms"]
        return found

    async def delivered(self, notification: Notification, route: str, *, now: int | None = None) -> None:
        await self._set("delivered", {"notification": notification.position, "route": route}, now)

    async def undelivered(
        self, notification: Notification, route: str, *, error: str, after_ms: int | None, now: int | None = None
    ) -> None:  # fmt: skip
        parameters: columns.Parameters = {
            "notification": notification.position, "tenant": notification.tenant, "run": notification.run,
            "route": route, "error": error, "after_ms": after_ms,
        }  # fmt: skip
        await self._set("give_up" if after_ms is None else "postpone", parameters, now)

    async def is_moot(self, notification: Notification, *, now: int | None = None) -> bool:
        return bool(await self._rows("is_moot", {"notification": notification.position}, now))

    async def drop_delivery(
        self, notification: Notification, route: str, *, why: str, now: int | None = None
    ) -> None:  # fmt: skip
        parameters: columns.Parameters = {"notification": notification.position, "route": route, "error": why}
        await self._set("drop_delivery", parameters, now)

    async def notifications(self, tenant: Tenant, *, undelivered: bool, limit: int) -> list[Told]:
        wanted: columns.Parameters = {"tenant": tenant, "undelivered": undelivered, "limit": limit}
        found = [columns.notification(row) for row in await self._rows("find_notifications", wanted, None)]
        ways: defaultdict[int, list[Delivery]] = defaultdict(list)
        given: columns.Parameters = {"notifications": [one.position for one in found]}
        for position, *row in await self._tuples("find_deliveries", given, None):
            ways[position].append(Delivery(*row))
        return [Told(one, tuple(ways[one.position])) for one in found]

    async def routes(self) -> list[RouteState]:
        return [RouteState(*row) for row in await self._tuples("routes", {}, None)]

    async def untold(self) -> Untold:
        [row] = await self._tuples("untold", {}, None)
        return Untold(*row)

    async def _rows(self, statement: str, parameters: columns.Parameters, now: int | None) -> list[DictRow]:
        return await self._read(self._telling(statement), {**parameters, "now": self._at(now)})

    async def _tuples(self, statement: str, parameters: columns.Parameters, now: int | None) -> list[TupleRow]:
        return await self._read_tuples(self._telling(statement), {**parameters, "now": self._at(now)})

    async def _set(self, statement: str, parameters: columns.Parameters, now: int | None) -> list[DictRow]:
        return await self._write(self._telling(statement), {**parameters, "now": self._at(now)})

    def _telling(self, name: str) -> bytes:
        return self._sql.fill(_STATEMENTS[name]).encode()
