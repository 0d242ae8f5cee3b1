"""Runs on their way out of the schema and into it: read in one snapshot, stored in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import chain, groupby, islice
from pathlib import Path

import psycopg
from psycopg.rows import DictRow, dict_row

from outlive.model.errors import Refused, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.store import columns
from outlive.store.bundles import PAGE, Kind, Part, arriving, entry_columns, same_log
from outlive.store.postgres.base import Base, Connection
from outlive.store.postgres.connection import translated
from outlive.store.postgres.transaction import begin
from outlive.store.sql import load

_STATEMENTS = load(Path(__file__).with_name("bundle.sql"))
_PAGED: tuple[tuple[Kind, str], ...] = (
    ("entry", "entry_parts"), ("operation", "operation_parts"), ("message", "message_parts"),
)  # fmt: skip
# A bundle may come through a pipe, whose other end takes its time.
_IDLE_MS = 120_000


class PostgresBundles(Base):
    """The port's `Bundles`; its contract is there."""

    async def parts(self, tenant: Tenant, run: RunId) -> AsyncIterator[Part]:
        named: columns.Parameters = {"tenant": tenant, "run": run, "limit": PAGE}
        try:
            async with self._borrowed(self._connected().pool) as connection:
                await connection.execute(self._bundle("begin_snapshot"))
                async for part in self._read_parts(connection, named):
                    yield part
                await connection.execute(self._sql["rollback"])
        except psycopg.Error as error:
            raise translated(error, self.name) from error

    async def known_key(self, tenant: Tenant) -> bytes | None:
        found = await self._read(self._sql["find_key"], {"tenant": tenant})
        return bytes(found[0]["key"]) if found else None

    async def put_run(self, tenant: Tenant, parts: Iterator[Part], secret: bytes, *, now: int | None = None) -> bool:
        self._refuse_inside()

        async def put(connection: Connection) -> bool:
            try:
                await begin(connection, self._sql, wait=self._wait, idle_ms=_IDLE_MS)
                added = await self._put(connection, tenant, parts, secret, now)
                await connection.execute(self._sql["commit"])
            except psycopg.Error as error:
                # Not to be done once more: what was read of the parts is gone.
                raise translated(error, self.name, wrote=True) from error
            return added

        added = await self._on_connection(put, wrote=True)
        if added:
            self._hint()
        return added

    async def _read_parts(self, connection: Connection, named: columns.Parameters) -> AsyncIterator[Part]:
        rows = await self._all(connection, "run_part", named)
        if not rows or rows[0].pop("phase") == "forgetting":
            raise UnknownRun(run=str(named["run"]))
        yield "run", rows[0]
        for kind, statement in _PAGED:
            after = -1
            while page := await self._all(connection, statement, {**named, "after": after}):
                after = page[-1]["seq" if kind == "entry" else "place"]
                for one in page:
                    one.pop("place", None)
                    yield kind, one
        for one in await self._all(connection, "divergence_parts", named):
            yield "divergence", one

    async def _put(
        self, connection: Connection, tenant: Tenant, parts: Iterator[Part], secret: bytes, now: int | None
    ) -> bool:
        _, row = next(parts)
        named: columns.Parameters = {"tenant": tenant, "run": row["id"], "now": await self._moment(connection, now)}
        if there := await self._all(connection, "run_part", named):
            last = await self._all(connection, "digest_at", {**named, "seq": int(row["next_seq"] or 0) - 1})
            same_log(str(row["id"]), row, bytes(last[0]["digest"]) if last else None, there[0]["phase"])
            for _ in parts:
                pass
            return False
        await connection.execute(self._sql["add_key"], {**named, "key": secret})
        [key] = await self._fetch(connection, self._sql["find_key"], named)
        if bytes(key["key"]) != secret:
            why = "digests of a tenant are made with one key"
            raise Refused(what=f"a run of another key in tenant {tenant}", why=why)
        arrived, more = arriving(secret, row, int(str(named["now"])))
        if not await self._all(connection, "put_run", {"ready_at": None, **arrived, "tenant": tenant}):
            same_log(str(row["id"]), row, None, "")
        added: Iterator[Part] = (("entry", entry_columns(entry)) for entry in more)
        for kind, group in groupby(chain(parts, added), key=lambda part: part[0]):
            while page := [dict(one) for _, one in islice(group, PAGE)]:
                await self._put_page(connection, kind, page, named)
        return True

    async def _put_page(
        self, connection: Connection, kind: Kind, page: list[dict[str, str | int | None]], named: columns.Parameters
    ) -> None:
        blobs = [{**one, "address": one["blob"]} for one in page if kind == "entry" and one["blob"] is not None]
        if blobs:
            await self._all(connection, "put_blob", {**named, "rows": columns.to_json(blobs)})
        for place, one in enumerate(page):
            one["place"] = place
            if one.get("blob") is not None:
                one["payload"] = None
        await self._all(connection, f"put_{kind}", {**named, "rows": columns.to_json(page)})

    async def _moment(self, connection: Connection, now: int | None) -> int:
        given = self._at(now)
        if given is not None:
            return given
        [row] = await self._fetch(connection, self._sql["clock"], {})
        return int(next(iter(row.values())))

    async def _all(self, connection: Connection, name: str, parameters: columns.Parameters) -> list[DictRow]:
        return await self._fetch(connection, self._bundle(name), parameters)

    async def _fetch(
        self, connection: Connection, statement: bytes, parameters: columns.Parameters
    ) -> list[DictRow]:  # fmt: skip
        cursor = await connection.cursor(row_factory=dict_row).execute(statement, parameters)
        return await cursor.fetchall() if cursor.description is not None else []

    def _bundle(self, name: str) -> bytes:
        return self._sql.fill(_STATEMENTS[name]).encode()
