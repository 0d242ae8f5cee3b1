"""Duties, and how ended runs leave the file. What is forgotten is judged inside the transaction that forgets it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from outlive.model.ids import Owner, Tenant
from outlive.model.run import Status
from outlive.store import columns
from outlive.store.keeping import Aged, Ages, DutyRow, Forgotten, judging
from outlive.store.sql import load, woven
from outlive.store.sqlite.base import Base, clock

_STATEMENTS = load(Path(__file__).with_name("keeping.sql"))
_STATEMENTS = {name: woven(text, _STATEMENTS, {}) for name, text in _STATEMENTS.items()}


class SQLiteKeeping(Base):
    """The port's `Duties` and `Forgetting`; their contracts are there."""

    async def enlist(self, names: Sequence[str], *, now: int | None = None) -> None:
        def add(database: sqlite3.Connection, clock: int) -> None:
            for name in sorted(names):
                database.execute(_STATEMENTS["enlist_duty"], {"name": name, "now": self._at(now, clock)})

        await self._write(add)

    async def take_duty(
        self, name: str, *, owner: Owner, token: str, lease_ms: int, now: int | None = None
    ) -> bool:  # fmt: skip
        return await self._changed(
            "take_duty", {"name": name, "owner": owner, "token": token, "lease_ms": lease_ms}, now
        )  # fmt: skip

    async def keep_duty(self, name: str, token: str, *, lease_ms: int, now: int | None = None) -> bool:
        return await self._changed("keep_duty", {"name": name, "token": token, "lease_ms": lease_ms}, now)

    async def leave_duty(
        self, name: str, token: str, *, after_ms: int, report: str, now: int | None = None
    ) -> bool:  # fmt: skip
        parameters: columns.Parameters = {"name": name, "token": token, "after_ms": after_ms, "report": report}
        return await self._changed("leave_duty", parameters, now)

    async def duties(self) -> list[DutyRow]:
        return await self._read(
            lambda database: [DutyRow(*row) for row in database.execute(_STATEMENTS["find_duties"])]
        )  # fmt: skip

    async def aged(
        self, status: Status, *, older_ms: int, after: Aged, limit: int, ages: Ages | None = None,
        now: int | None = None,
    ) -> list[Aged]:  # fmt: skip
        parameters: columns.Parameters = {
            **judging(status, older_ms, ages), "ended_at": after.ended_at, "tenant": after.tenant,
            "run": after.run, "limit": limit,
        }  # fmt: skip

        def find(database: sqlite3.Connection) -> list[Aged]:
            moment = self._at(now, clock(database))
            return [Aged(*row) for row in database.execute(_STATEMENTS["aged"], {**parameters, "now": moment})]

        return await self._read(find)

    async def forget(
        self, status: Status, runs: Sequence[Aged], *, older_ms: int, most: int, ages: Ages | None = None,
        now: int | None = None,
    ) -> Forgotten:  # fmt: skip
        def take_away(database: sqlite3.Connection, clock: int) -> Forgotten:
            common: columns.Parameters = {**judging(status, older_ms, ages), "now": self._at(now, clock)}
            found = Forgotten()
            for one in runs:
                named = {**common, "tenant": one.tenant, "run": one.run, "most": most - found.entries}
                judged = database.execute(_STATEMENTS["lock_forgettable"], named).fetchone()
                if judged is not None and judged["why"] == "":
                    found = _forget(database, one, named, found)
            return found

        return await self._write(take_away)

    async def forget_keys(self, *, older_ms: int, most: int, now: int | None = None) -> int:
        def forget(database: sqlite3.Connection, clock: int) -> int:
            parameters = {"older_ms": older_ms, "most": most, "now": self._at(now, clock)}
            return database.execute(_STATEMENTS["forget_keys"], parameters).rowcount

        return await self._write(forget)

    async def drop_blobs(self, blobs: Sequence[tuple[Tenant, str]]) -> int:
        def drop(database: sqlite3.Connection, _: int) -> int:
            gone = 0
            for tenant, address in blobs:
                parameters = {"tenant": tenant, "address": bytes.fromhex(address)}
                gone += database.execute(_STATEMENTS["drop_blob"], parameters).rowcount
            return gone

        return await self._write(drop)

    async def _changed(self, statement: str, parameters: columns.Parameters, now: int | None) -> bool:
        def change(database: sqlite3.Connection, clock: int) -> bool:
            moment = self._at(now, clock)
            return database.execute(_STATEMENTS[statement], {**parameters, "now": moment}).rowcount == 1

        return await self._write(change)


def _forget(database: sqlite3.Connection, one: Aged, named: columns.Parameters, found: Forgotten) -> Forgotten:
    """Take away one run, or as much of it as `named` says, and add it to what was found before."""
    if named["most"] == 0:
        return replace(found, left=(*found.left, one))
    for kin in database.execute(_STATEMENTS["lineage"], named).fetchall():
        database.execute(_STATEMENTS["begin_with_lineage"], {**named, "kin": kin["id"]})
    first = database.execute(_STATEMENTS["first_left"], named).fetchone()
    bound = {**named, "left": None if first is None else first["seq"]}
    addresses = [row[0] for row in database.execute(_STATEMENTS["blobs_to_drop"], bound)]
    entries = database.execute(_STATEMENTS["forget_entries"], bound).rowcount
    blobs = tuple((Tenant(one.tenant), str(address)) for address in addresses)
    found = replace(found, entries=found.entries + entries, blobs=found.blobs + blobs)
    if first is not None:
        database.execute(_STATEMENTS["begin_to_forget"], named)
        return replace(found, left=(*found.left, one))
    for part in (
        "forget_operations", "forget_messages", "forget_divergences", "forget_deliveries", "forget_notifications",
        "forget_votes", "forget_approvals", "forget_deltas", "forget_run",
    ):  # fmt: skip
        database.execute(_STATEMENTS[part], named)
    return replace(found, runs=found.runs + 1)
