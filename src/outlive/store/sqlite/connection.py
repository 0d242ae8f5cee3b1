"""Connections to the database file: how they are set up, what durability they give, and the one place where errors of
the driver become errors of ours.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from outlive.model.errors import StoreBusy, StoreError, StoreFull, StoreUnavailable
from outlive.model.ids import Tenant
from outlive.store.sql import load, woven
from outlive.store.sqlite.turnstile import Turnstile

Synchronous = Literal["full", "off"]

HERE = Path(__file__).parent
SETUP = load(HERE / "connection.sql")
QUERIES = load(HERE / "queries.sql")
_NOW = {":now": f"coalesce(:now, ({QUERIES['clock']}))"}
_EACH_SERVED = {f":{one}": f"served.{one}" for one in ("agent", "code", "queue", "priority")} | {":limit": "1"}
QUERIES |= {name: woven(QUERIES[name], {"timed": QUERIES["timed"]}, {}) for name in ("next_due", "look")}
QUERIES["look"] = woven(QUERIES["look"], QUERIES, _NOW | _EACH_SERVED)
SIGN_AND_LOOK = f"{woven(QUERIES['see_worker'], {}, _NOW)}\nreturning {QUERIES['look'].removeprefix('select')}"

# Strict tables (3.37) keep a column to its type.
OLDEST = (3, 37, 0)

_SHARED = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "fuse.sshfs", "fuse.glusterfs")


def connect(path: Path, *, wait: float, create: bool = False) -> sqlite3.Connection:
    """Open the file, with autocommit and rows that know their columns. Raises what the driver raises."""
    mode = "rwc" if create else "rw"
    database = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=wait, isolation_level=None, cached_statements=256
    )
    database.row_factory = sqlite3.Row
    return database


def connect_writer(
    path: Path, turnstile: Turnstile, *, wait: float, synchronous: Synchronous, create: bool = False
) -> sqlite3.Connection:
    """A connection that commits durably."""
    database = connect(path, wait=wait, create=create)
    try:
        database.execute(SETUP[f"use_synchronous_{synchronous}"])
        if journal_mode(database) != "wal":
            # The change needs the file for itself and does not wait for it.
            with turnstile.held():
                database.execute(SETUP["use_pages"])
                database.execute(SETUP["use_wal"])
    except BaseException:
        database.close()
        raise
    return database


def connect_reader(path: Path, *, wait: float) -> sqlite3.Connection:
    """A connection that sees what is committed and cannot write."""
    database = connect(path, wait=wait)
    try:
        database.execute(SETUP["use_read_only"])
    except BaseException:
        database.close()
        raise
    return database


def unsafe_settings(database: sqlite3.Connection, path: Path) -> list[str]:
    """Settings of this connection that may lose acknowledged commits; empty is good."""
    journal = journal_mode(database)
    level = int(database.execute(SETUP["synchronous"]).fetchone()[0])
    found = [] if journal == "wal" else [f"journal_mode = {journal}"]
    if level < 2:
        found.append(f"synchronous = {('off', 'normal')[level]}")
    if shared := _network_filesystem(path):
        found.append(f"a file on {shared} (locks and shared memory work on a local disk only)")
    return found


def journal_mode(database: sqlite3.Connection) -> str:
    """The journal mode in force."""
    return str(database.execute(SETUP["journal_mode"]).fetchone()[0])


def translated(error: sqlite3.Error, store: str) -> StoreError:
    """What an error of the driver means to a caller. In every case the statement's transaction is not committed."""
    code = getattr(error, "sqlite_errorcode", 0)
    if is_busy(error):
        return StoreBusy(store=store, why=str(error))
    # Shared memory that cannot grow has no error of its own for a full device.
    if code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFull(store=store)
    return StoreUnavailable(store=store, why=f"{getattr(error, 'sqlite_errorname', 'error')}: {error}")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds the lock."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _network_filesystem(path: Path) -> str:
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in mounts:
        before, _, after = line.partition(" - ")
        point = before.split()[4]
        if len(point) >= len(best) and path.is_relative_to(point):
            best, kind = point, after.split()[0]
    return kind if kind in _SHARED else ""


def file_identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another that later has its name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def find_key(database: sqlite3.Connection, tenant: Tenant) -> bytes | None:
    """The tenant's key, if it has one already."""
    row = database.execute(QUERIES["find_key"], {"tenant": tenant}).fetchone()
    return None if row is None else bytes(row[0])
