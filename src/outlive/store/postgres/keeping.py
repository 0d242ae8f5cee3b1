"""Duties, and how ended runs leave the schema. What is forgotten is judged with its row locked, in the transaction that
forgets it; blobs are locked before it is asked whether an entry names them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Set
from pathlib import Path
from typing import TypeVar

from psycopg.rows import DictRow, dict_row

from outlive.model.ids import Owner, Tenant
from outlive.model.run import Status
from outlive.store import columns
from outlive.store.keeping import Aged, Ages, DutyRow, Forgotten, judging
from outlive.store.postgres.base import Base, Connection
from outlive.store.postgres.transaction import IDLE_MS, begin
from outlive.store.sql import load, woven

T = TypeVar("T")

# Executes a statement of keeping.sql and returns its rows.
Execute = Callable[[str, columns.Parameters], Awaitable[list[DictRow]]]

_STATEMENTS = load(Path(__file__).with_name("keeping.sql"))
_STATEMENTS = {name: woven(text, _STATEMENTS, {}) for name, text in _STATEMENTS.items()}


class PostgresKeeping(Base):
    """The port's `Duties` and `Forgetting`; their contracts are there."""

    async def enlist(self, names: Sequence[str], *, now: int | None = None) -> None:
        await self._changed("enlist_duty", {"names": list(names)}, now)

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
        return [DutyRow(*row) for row in await self._read_tuples(self._keeping("find_duties"), {})]

    async def aged(
        self, status: Status, *, older_ms: int, after: Aged, limit: int, ages: Ages | None = None,
        now: int | None = None,
    ) -> list[Aged]:  # fmt: skip
        parameters: columns.Parameters = {
            **judging(status, older_ms, ages), "ended_at": after.ended_at, "tenant": after.tenant,
            "run": after.run, "limit": limit, "now": self._at(now),
        }  # fmt: skip
        return [Aged(*row) for row in await self._read_tuples(self._keeping("aged"), parameters)]

    async def forget(
        self, status: Status, runs: Sequence[Aged], *, older_ms: int, most: int, ages: Ages | None = None,
        now: int | None = None,
    ) -> Forgotten:  # fmt: skip
        wanted: columns.Parameters = {
            **judging(status, older_ms, ages), "now": self._at(now), "runs": _named(runs), "most": most,
        }  # fmt: skip

        async def take_away(execute: Execute) -> Forgotten:
            held = {(row["tenant"], row["id"]) for row in await execute("lineage", wanted)}
            locked = await execute("lock_forgettable", wanted)
            free = {
                (row["tenant"], row["id"]): Aged(row["tenant"], row["id"], row["ended_at"])
                for row in locked
                if row["why"] == "" and all((row["tenant"], kin) in held for kin in row["lineage"])
            }
            given: columns.Parameters = {"runs": _named(list(free.values())), "most": most}
            kin = {
                (row["tenant"], one) for row in locked for one in row["lineage"] if (row["tenant"], row["id"]) in free
            }
            if others := kin - free.keys():
                await execute("begin_with_lineage", {"kin": _named([Aged(*one) for one in sorted(others)])})
            gone = await execute("forget_entries", given) if free else []
            begun = {(row["tenant"], row["run_id"]) for row in gone}
            given["runs"] = _named(list(free.values()), begun)
            after = await execute("forget_runs", given) if free else []
            left = [free[row["tenant"], row["run"]] for row in after if row["has_left"]]
            blobs = {(Tenant(row["tenant"]), str(row["blob"])) for row in gone if row["blob"] is not None}
            return Forgotten(len(after) - len(left), len(gone), tuple(left), tuple(sorted(blobs)))

        return await self._in_transaction(take_away)

    async def forget_keys(self, *, older_ms: int, most: int, now: int | None = None) -> int:
        parameters: columns.Parameters = {"older_ms": older_ms, "most": most, "now": self._at(now)}
        return len(await self._write(self._keeping("forget_keys"), parameters))

    async def drop_blobs(self, blobs: Sequence[tuple[Tenant, str]]) -> int:
        given: columns.Parameters = {
            "blobs": columns.to_json([{"tenant": tenant, "address": address} for tenant, address in blobs])
        }  # fmt: skip

        async def drop(execute: Execute) -> int:
            await execute("lock_blobs", given)
            return len(await execute("drop_blob", given))

        return await self._in_transaction(drop)

    async def _in_transaction(self, work: Callable[[Execute], Awaitable[T]]) -> T:
        """Several statements that commit together. They may be sent again when they met another one crosswise."""
        self._refuse_inside()

        async def do(connection: Connection) -> T:
            await begin(connection, self._sql, wait=self._wait, idle_ms=IDLE_MS)
            cursor = connection.cursor(row_factory=dict_row)

            async def execute(statement: str, parameters: columns.Parameters) -> list[DictRow]:
                await cursor.execute(self._keeping(statement), parameters)
                return await cursor.fetchall() if cursor.description is not None else []

            done = await work(execute)
            await connection.execute(self._sql["commit"])
            return done

        return await self._on_connection(do, wrote=True)

    async def _changed(self, statement: str, parameters: columns.Parameters, now: int | None) -> bool:
        return bool(await self._write(self._keeping(statement), {**parameters, "now": self._at(now)}))

    def _keeping(self, name: str) -> bytes:
        return self._sql.fill(_STATEMENTS[name]).encode()


def _named(runs: Sequence[Aged], begun: Set[tuple[str, str]] = frozenset()) -> str:
    named = [{"tenant": one.tenant, "run": one.run, "begun": (one.tenant, one.run) in begun} for one in runs]
    return columns.to_json(named)
