"""Runs on their way out of the file and into it: read on a connection of their own, stored in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

from outlive.model.errors import Refused, UnknownRun
from outlive.model.ids import RunId, Tenant
from outlive.store import columns
from outlive.store.bundles import PAGE, Columns, Kind, Part, arriving, entry_columns, same_log
from outlive.store.sql import load
from outlive.store.sqlite.base import Base
from outlive.store.sqlite.connection import QUERIES, SETUP, connect_reader, find_key, translated

_STATEMENTS = load(Path(__file__).with_name("bundle.sql"))
_PAGED: tuple[tuple[Kind, str], ...] = (("operation", "operation_parts"), ("message", "message_parts"))
_BYTES = ("head", "digest")


class SQLiteBundles(Base):
    """The port's `Bundles`; its contract is there."""

    async def parts(self, tenant: Tenant, run: RunId) -> AsyncIterator[Part]:
        self._connected()
        try:
            with closing(connect_reader(self._path, wait=self._wait)) as database:
                database.execute(SETUP["begin_read"])
                for part in _parts(database, {"tenant": tenant, "run": run, "limit": PAGE}):
                    yield part
        except sqlite3.Error as error:
            raise translated(error, self.name) from error

    async def known_key(self, tenant: Tenant) -> bytes | None:
        return await self._read(lambda database: find_key(database, tenant))

    async def put_run(self, tenant: Tenant, parts: Iterator[Part], secret: bytes, *, now: int | None = None) -> bool:
        def put(database: sqlite3.Connection, clock: int) -> bool:
            return _put(database, tenant, parts, secret, self._at(now, clock))

        added = await self._write(put)
        if added:
            self._hint()
        return added


def _parts(database: sqlite3.Connection, named: columns.Parameters) -> Iterator[Part]:
    row = database.execute(_STATEMENTS["run_part"], named).fetchone()
    if row is None or row["phase"] == "forgetting":
        raise UnknownRun(run=str(named["run"]))
    yield "run", {name: row[name] for name in row.keys() if name != "phase"}
    after = -1
    while page := database.execute(_STATEMENTS["entry_parts"], {**named, "after": after}).fetchall():
        yield from (("entry", dict(one)) for one in page)
        after = page[-1]["seq"]
    for kind, statement in _PAGED:
        place = -1
        while page := database.execute(_STATEMENTS[statement], {**named, "after": place}).fetchall():
            yield from ((kind, {name: one[name] for name in one.keys() if name != "place"}) for one in page)
            place = page[-1]["place"]
    yield from (("divergence", dict(one)) for one in database.execute(_STATEMENTS["divergence_parts"], named))


def _put(database: sqlite3.Connection, tenant: Tenant, parts: Iterator[Part], secret: bytes, now: int) -> bool:
    _, row = next(parts)
    named: columns.Parameters = {"tenant": tenant, "run": row["id"], "now": now}
    there = database.execute(_STATEMENTS["run_part"], named).fetchone()
    if there is not None:
        last = database.execute(_STATEMENTS["digest_at"], {**named, "seq": int(row["next_seq"] or 0) - 1}).fetchone()
        same_log(str(row["id"]), row, None if last is None else bytes(last[0]), there["phase"])
        for _ in parts:
            pass
        return False
    database.execute(QUERIES["add_key"], {"tenant": tenant, "key": secret, "now": now})
    if find_key(database, tenant) != secret:
        raise Refused(what=f"a run of another key in tenant {tenant}", why="digests of a tenant are made with one key")
    arrived, more = arriving(secret, row, now)
    database.execute(_STATEMENTS["put_run"], {"ready_at": None, **_stored(arrived), "tenant": tenant})
    for kind, one in parts:
        _put_part(database, kind, {**_stored(one), **named})
    for entry in more:
        _put_part(database, "entry", {**_stored(entry_columns(entry)), **named})
    return True


def _put_part(database: sqlite3.Connection, kind: Kind, one: columns.Parameters) -> None:
    if kind == "entry" and one["blob"] is not None:
        one["address"] = one["blob"] = bytes.fromhex(str(one["blob"]))
        database.execute(_STATEMENTS["put_blob"], one)
        one["payload"] = None
    database.execute(_STATEMENTS[f"put_{kind}"], one)


def _stored(row: Columns) -> columns.Parameters:
    return {
        name: bytes.fromhex(str(value)) if name in _BYTES and _is_hex(name, row) else value
        for name, value in row.items()
    }


def _is_hex(name: str, row: Columns) -> bool:
    # The digest of an operation is a text; that of an entry, which has a body, is bytes.
    return name == "head" or "body" in row and "seq" in row
