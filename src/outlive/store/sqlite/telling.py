"""Notifications and their deliveries in the file; each delivery is a commit of its own, so that little is repeated."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from outlive.model.ids import RunId, Tenant
from outlive.model.notice import Notice, Notification
from outlive.store import columns
from outlive.store.sql import load
from outlive.store.sqlite.base import Base, clock
from outlive.store.telling import Delivery, Due, Nearing, RouteState, Standstill, Told, Unrouted, Untold

_STATEMENTS = load(Path(__file__).with_name("telling.sql"))


class SQLiteTelling(Base):
    """The port's `Telling`; its contract is there."""

    async def nearing(self, *, lead_ms: int, limit: int, now: int | None = None) -> list[Nearing]:
        found = await self._find("nearing", {"lead_ms": lead_ms, "limit": limit}, now)
        return [Nearing(*row) for row in found]

    async def has_deadlines(self) -> bool:
        return bool(await self._find("has_deadlines", {}, None))

    async def standstills(self, *, limit: int, now: int | None = None) -> list[Standstill]:
        found = await self._find("standstills", {"limit": limit}, now)
        return [Standstill(*[*row[:6], bool(row[6]), row[7]]) for row in found]

    async def tell(self, tenant: Tenant, run: RunId, notice: Notice, *, now: int | None = None) -> bool:
        parameters = {**columns.notice_parameters(notice, 0), "tenant": tenant, "run": run}
        columns.check_text(parameters, f"run {run}")
        return await self._set("tell", parameters, now)

    async def unrouted(self, state: Unrouted, *, after: int, limit: int) -> list[Notification]:
        found = await self._find("unrouted", {"state": state, "after": after, "limit": limit}, None)
        return [columns.notification(row) for row in found]

    async def assign(self, routes: Sequence[tuple[Notification, Sequence[str]]], *, now: int | None = None) -> None:
        def add(database: sqlite3.Connection, clock: int) -> None:
            for one, taken in routes:
                given: columns.Parameters = {"position": one.position, "now": self._at(now, clock)}
                for route in taken:
                    database.execute(_STATEMENTS["assign"], {**given, "route": route})
                database.execute(_STATEMENTS["set_state"], {**given, "state": None if taken else "kept"})

        await self._write(add)

    async def due_deliveries(self, route: str, *, limit: int, now: int | None = None) -> list[Due]:
        found = await self._find("due_deliveries", {"route": route, "limit": limit}, now)
        return [Due(columns.notification(row), row["attempts"], row["failing_ms"]) for row in found]

    async def next_delivery(self, routes: Sequence[str], *, now: int | None = None) -> int | None:
        found = [row[0] for route in routes for row in await self._find("next_delivery", {"route": route}, now)]
        return min((one for one in found if one is not None), default=None)

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
        return bool(await self._find("is_moot", {"notification": notification.position}, now))

    async def drop_delivery(
        self, notification: Notification, route: str, *, why: str, now: int | None = None
    ) -> None:  # fmt: skip
        parameters: columns.Parameters = {"notification": notification.position, "route": route, "error": why}
        await self._set("drop_delivery", parameters, now)

    async def notifications(self, tenant: Tenant, *, undelivered: bool, limit: int) -> list[Told]:
        def find(database: sqlite3.Connection) -> list[Told]:
            wanted = {"tenant": tenant, "undelivered": undelivered, "limit": limit}
            told: list[Told] = []
            for row in database.execute(_STATEMENTS["find_notifications"], wanted):
                ways = database.execute(_STATEMENTS["find_deliveries"], {"notification": row["position"]})
                told.append(Told(columns.notification(row), tuple(Delivery(*way) for way in ways)))
            return told

        return await self._read(find)

    async def routes(self) -> list[RouteState]:
        return [RouteState(*row) for row in await self._find("routes", {}, None)]

    async def untold(self) -> Untold:
        [row] = await self._find("untold", {}, None)
        return Untold(*row)

    async def _find(self, statement: str, parameters: columns.Parameters, now: int | None) -> list[sqlite3.Row]:
        def find(database: sqlite3.Connection) -> list[sqlite3.Row]:
            moment = self._at(now, clock(database))
            return list(database.execute(_STATEMENTS[statement], {**parameters, "now": moment}))

        return await self._read(find)

    async def _set(self, statement: str, parameters: columns.Parameters, now: int | None) -> bool:
        def change(database: sqlite3.Connection, clock: int) -> bool:
            moment = self._at(now, clock)
            return database.execute(_STATEMENTS[statement], {**parameters, "now": moment}).rowcount > 0

        return await self._write(change)
