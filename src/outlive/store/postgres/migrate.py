"""Brings a schema to this release's form, in two stages, so that two releases can run side by side.

Every open applies the *pre* files; the *post* files are applied on request, when no live worker of an older release is
left. Each file is a transaction of its own under one lock: killed in the middle, it leaves all of a file or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow, dict_row

from outlive.model.errors import NotAStore, StoreBusy, StoreUnavailable
from outlive.store import upkeep
from outlive.store.columns import worker_row
from outlive.store.port import WorkerRow
from outlive.store.postgres.connection import HERE, Place, Statements
from outlive.store.postgres.transaction import IDLE_MS
from outlive.store.upkeep import Applied, Migration, Told

Connection = psycopg.AsyncConnection[TupleRow]

# Tables of the first release, by which a store is known.
_OURS = ("migration", "run", "entry", "operation")

# How long a file may wait for a table. While it waits, everybody else who wants the table waits behind it.
_TABLE_MS = 2_000

# How long a worker that gives no sign of life counts as alive: it may renew as seldom as a third of its lease.
_ALIVE_MS = 300_000


def migrations(folder: Path = HERE / "migrations") -> list[Migration]:
    """The files of this release, or those of a folder, in order: a number's pre before its post."""
    return upkeep.migrations(folder)


async def examine(connection: Connection, place: Place, sql: Statements) -> tuple[Applied, ...] | None:
    """What was applied to the schema, None if it is not there or has no tables. Raises NotAStore, changes nothing."""
    found = await (await connection.execute(sql["tables"], {"schema": place.schema})).fetchall()
    names = [str(row[0]) for row in found]
    if not names:
        return None
    if not {*_OURS} <= {*names}:
        raise NotAStore(store=place.name, why=f"schema {place.schema} has {upkeep.tables(names)}")
    rows = await (await connection.execute(sql["migrations"])).fetchall()
    return tuple(Applied(number, stage, name, sha256) for number, stage, name, sha256 in rows)


async def expect(connection: Connection, place: Place, sql: Statements, known: Sequence[Migration]) -> None:
    """See that this release can work on the schema as it is. Raises StoreUnavailable, NotAStore, SchemaTooNew."""
    applied = await examine(connection, place, sql)
    if applied is None:
        why = f"there is no store in schema {place.schema} yet; the first start makes it, or `outlive db init`"
        raise StoreUnavailable(store=place.name, why=why)
    if upkeep.required(upkeep.missing(known, applied, store=place.name)):
        raise upkeep.outdated(place.name)


async def migrate(
    connection: Connection,
    place: Place,
    sql: Statements,
    known: Sequence[Migration],
    *,
    finish: bool = False,
    wait: float = 10.0,
    told: Told = upkeep.silent,
) -> list[WorkerRow]:
    """Apply what is missing: with `finish` also the *post* files, as far as no live worker of an older release is left.

    Returns those workers. A schema that is up to date is only read. One without tables gets everything in one
    transaction, for no older release can be at work in it. `wait` is in seconds, for another process that migrates.
    Raises NotAStore, SchemaTooNew, StoreUnavailable, StoreBusy, and what the driver raises.
    """
    await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
    await connection.set_read_only(False)
    older: list[WorkerRow] = []
    while not older and _next(known, await examine(connection, place, sql), place, finish=finish):
        older = await _step(connection, place, sql, known, finish=finish, wait=wait, told=told)
    return older


async def _step(
    connection: Connection,
    place: Place,
    sql: Statements,
    known: Sequence[Migration],
    *,
    finish: bool,
    wait: float,
    told: Told,
) -> list[WorkerRow]:
    """One transaction. Returns the workers that a *post* file has to wait for."""
    async with connection.transaction():
        await _lock(connection, place, sql, wait)
        applied = await examine(connection, place, sql)
        # Another process may have been faster.
        step = _next(known, applied, place, finish=finish)
        if applied is not None and step and step[0].stage == "post":
            older = await older_workers(connection, sql, step[0].number)
            if older:
                return older
        try:
            if applied is None:
                await _make(connection, place, sql)
            for one in step:
                told(one.name, "applying")
                await _apply(connection, place, sql, one)
        except psycopg.errors.InsufficientPrivilege as error:
            first = str(error).splitlines()[0]
            why = f"schema {place.schema} has to be {'made' if applied is None else 'brought up to date'}, and {first}"
            verb = "init" if applied is None else "upgrade"
            raise StoreUnavailable(
                store=place.name, why=f"{why}; let `outlive db {verb}` do it as a user who may"
            ) from error
    for one in step:
        told(one.name, "applied")
    return []


def _next(
    known: Sequence[Migration], applied: Sequence[Applied] | None, place: Place, *, finish: bool
) -> list[Migration]:
    """What one transaction applies: the next file, or all of them where there is nothing yet."""
    if applied is None:
        return [*known]
    left = upkeep.missing(known, applied, store=place.name)
    return (left if finish else upkeep.required(left))[:1]


async def _lock(connection: Connection, place: Place, sql: Statements, wait: float) -> None:
    limits = {"wait_ms": str(round(wait * 1000)), "idle_ms": str(IDLE_MS)}
    await connection.execute(sql["set_up"], limits)
    try:
        await connection.execute(sql["lock_migrations"], {"schema": place.schema})
    except psycopg.errors.LockNotAvailable as error:
        why = f"another process has been migrating it for more than {wait:g} s"
        raise StoreBusy(store=place.name, why=why) from error
    await connection.execute(sql["set_up"], {**limits, "wait_ms": str(_TABLE_MS)})


async def _make(connection: Connection, place: Place, sql: Statements) -> None:
    found = await (await connection.execute(sql["has_schema"], {"schema": place.schema})).fetchone()
    if found is None or not found[0]:
        await connection.execute(sql["create_schema"])
    await connection.execute(sql["create_migration"])


async def _apply(connection: Connection, place: Place, sql: Statements, one: Migration) -> None:
    try:
        await connection.execute(sql.fill(one.text).encode())
    except psycopg.errors.LockNotAvailable as error:
        why = f"{one.name} needs a table that a transaction has held for more than {_TABLE_MS // 1000} s"
        raise StoreBusy(store=place.name, why=why) from error
    except psycopg.errors.InsufficientPrivilege:
        raise
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError) as error:
        why = f"{one.name} cannot be applied: {str(error).splitlines()[0]}"
        raise StoreUnavailable(store=place.name, why=why) from error
    record = {"number": one.number, "stage": one.stage, "name": one.name, "sha256": one.sha256, "now": None}
    await connection.execute(sql["record_migration"], record)


async def older_workers(connection: Connection, sql: Statements, number: int) -> list[WorkerRow]:
    """Live workers that do not know the migration of this number."""
    parameters = {"number": number, "within_ms": _ALIVE_MS, "now": None}
    found = await connection.cursor(row_factory=dict_row).execute(sql["older_workers"], parameters)
    return [worker_row(row) for row in await found.fetchall()]


def unsafe_settings(settings: Mapping[str, str]) -> list[str]:
    """Settings of the server that may lose acknowledged commits; empty is good."""
    found = [f"{name} = off" for name in ("fsync", "full_page_writes") if settings.get(name) == "off"]
    level, standbys = settings.get("synchronous_commit"), settings.get("synchronous_standby_names")
    if level == "off":
        found.append("synchronous_commit = off")
    elif level == "local" and standbys:
        found.append("synchronous_commit = local with synchronous standbys")
    return found
