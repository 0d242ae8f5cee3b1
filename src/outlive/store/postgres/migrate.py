"""Brings a schema to this release's form, in two stages, so that two releases can run side by side.

`NNNN_what.pre.sql` only adds: the release before goes on with it, and every open applies it. `NNNN_what.post.sql`
takes away what that release needed: it is applied on request, when no worker of it is left, and is what makes a schema
too new. A file that was applied is never edited: its digest is kept in the database and compared at every open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import psycopg
from psycopg.rows import TupleRow

from outlive.model.errors import SchemaTooNew, StoreUnavailable
from outlive.store.postgres.connection import HERE, Place, Statements

Stage = Literal["pre", "post"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    stage: Stage
    name: str
    text: str
    sha256: str


def migrations(folder: Path = HERE / "migrations") -> list[Migration]:
    """All files of a folder, in order: a number's pre before its post."""
    found = []
    for path in folder.glob("[0-9][0-9][0-9][0-9]_*.sql"):
        data, stage = path.read_bytes(), cast(Stage, path.suffixes[-2].removeprefix("."))
        found.append(Migration(int(path.name[:4]), stage, path.name, data.decode(), hashlib.sha256(data).hexdigest()))
    return sorted(found, key=lambda one: (one.number, one.stage == "post"))


async def migrate(
    connection: psycopg.AsyncConnection[TupleRow],
    place: Place,
    sql: Statements,
    known: list[Migration],
    *,
    finish: bool = False,
) -> None:
    """Apply what is missing: with `finish` also what the release before cannot go on with.

    A schema that is up to date is only read. Raises SchemaTooNew, StoreUnavailable, and what the driver raises.
    """
    wanted = [one for one in known if finish or one.stage == "pre"]
    if not await _missing(connection, place, sql, known, wanted):
        return
    async with connection.transaction():
        await connection.execute(sql["lock_migrations"], {"schema": place.schema})
        if not await _holds(connection, sql["has_schema"], {"schema": place.schema}):
            await connection.execute(sql["create_schema"])
        if not await _holds(connection, sql["has_migrations"], {"table": f'"{place.schema}".migration'}):
            await connection.execute(sql["create_migration"])
        # Another process may have been faster.
        for one in await _missing(connection, place, sql, known, wanted):
            await connection.execute(sql.fill(one.text).encode())
            await connection.execute(
                sql["record_migration"],
                {"number": one.number, "stage": one.stage, "name": one.name, "sha256": one.sha256, "now": None},
            )


async def _missing(
    connection: psycopg.AsyncConnection[TupleRow],
    place: Place,
    sql: Statements,
    known: list[Migration],
    wanted: list[Migration],
) -> list[Migration]:
    applied: dict[tuple[int, str], tuple[str, str]] = {}
    if await _holds(connection, sql["has_migrations"], {"table": f'"{place.schema}".migration'}):
        rows = await (await connection.execute(sql["migrations"])).fetchall()
        applied = {(number, stage): (name, sha256) for number, stage, name, sha256 in rows}
    newest = max((one.number for one in known), default=0)
    ended = max((number for number, stage in applied if stage == "post"), default=0)
    if ended > newest:
        raise SchemaTooNew(store=place.name, found=ended, known=newest)
    for one in known:
        name, sha256 = applied.get((one.number, one.stage), (one.name, one.sha256))
        if sha256 != one.sha256:
            raise StoreUnavailable(
                store=place.name, why=f"migration {name} was applied with another content than {one.name} has now"
            )
    return [one for one in wanted if (one.number, one.stage) not in applied]


async def _holds(connection: psycopg.AsyncConnection[TupleRow], query: bytes, parameters: dict[str, str]) -> bool:
    row = await (await connection.execute(query, parameters)).fetchone()
    return row is not None and bool(row[0])


def unsafe_settings(settings: Mapping[str, str]) -> list[str]:
    """Settings of the server that may lose acknowledged commits; empty is good."""
    found = [f"{name} = off" for name in ("fsync", "full_page_writes") if settings.get(name) == "off"]
    level, standbys = settings.get("synchronous_commit"), settings.get("synchronous_standby_names")
    if level == "off":
        found.append("synchronous_commit = off")
    elif level == "local" and standbys:
        found.append("synchronous_commit = local with synchronous standbys")
    return found
