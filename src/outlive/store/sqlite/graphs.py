"""Checkpoints of graphs, in the file: what is written together is one request, which others may share a commit with."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from outlive.model.errors import Refused
from outlive.model.ids import Tenant
from outlive.store import columns
from outlive.store.graphs import (
    Batch,
    CheckpointRow,
    Held,
    Outdated,
    Piece,
    Place,
    Saved,
    ThreadRow,
    WriteRow,
    behind,
    needed,
)
from outlive.store.sql import load
from outlive.store.sqlite.base import Base

_STATEMENTS = load(Path(__file__).with_name("graphs.sql"))
_COPIED = ("copy_checkpoints", "copy_values", "copy_writes", "copy_pieces", "copy_chains", "copy_links")
_DROPPED = tuple(name for name in _STATEMENTS if name.startswith("drop_thread_"))


class SQLiteGraphs(Base):
    """The port's `Graphs`; its contract is there."""

    async def hold_thread(
        self, tenant: Tenant, thread: str, *, token: str, holder: str, lease_ms: int, now: int | None = None
    ) -> Held | None:
        def hold(database: sqlite3.Connection, clock: int) -> Held | None:
            given = {
                "tenant": tenant, "thread": thread, "token": token, "holder": holder, "lease_ms": lease_ms,
                "now": self._at(now, clock),
            }  # fmt: skip
            row = self._graph_thread(database, given)
            if database.execute(_STATEMENTS["take_thread"], given).rowcount:
                return None
            return Held(row.holder, max(0, (row.expires_at or 0) - self._at(now, clock)))

        return await self._write(hold)

    async def keep_threads(
        self, tenant: Tenant, held: Mapping[str, str], *, lease_ms: int, now: int | None = None
    ) -> set[str]:
        def keep(database: sqlite3.Connection, clock: int) -> set[str]:
            given = {"tenant": tenant, "lease_ms": lease_ms, "now": self._at(now, clock)}
            return {
                thread
                for thread, token in held.items()
                if database.execute(
                    _STATEMENTS["keep_thread"], {**given, "thread": thread, "token": token}
                ).rowcount
            }  # fmt: skip

        return await self._write(keep)

    async def leave_thread(self, tenant: Tenant, thread: str, token: str) -> None:
        given = {"tenant": tenant, "thread": thread, "token": token}
        await self._write(lambda database, _: database.execute(_STATEMENTS["leave_thread"], given).rowcount)

    async def put_graph(
        self, tenant: Tenant, thread: str, batch: Batch, *, token: str | None, now: int | None = None
    ) -> str | Held:
        named = {"tenant": tenant, "thread": thread}

        def put(database: sqlite3.Connection, clock: int) -> str | Held:
            moment = self._at(now, clock)
            row = self._graph_thread(database, {**named, "now": moment})
            if (held := row.refuses(token, moment)) is not None:
                return held
            if batch.known is not None and batch.known != row.known:
                raise Outdated
            _put(database, named, batch)
            return row.known

        return await self._write(put)

    async def graph_checkpoint(self, tenant: Tenant, thread: str, ns: str, id: str | None) -> Saved | None:
        named = {"tenant": tenant, "thread": thread, "ns": ns, "id": id}

        def find(database: sqlite3.Connection) -> Saved | None:
            which = "last_checkpoint" if id is None else "find_checkpoint"
            found = database.execute(_STATEMENTS[which], named).fetchone()
            if found is None:
                return None
            row = CheckpointRow(*found)
            of = {**named, "id": row.id, "versions": row.versions}
            values = database.execute(_STATEMENTS["find_values"], of).fetchall()
            writes = database.execute(_STATEMENTS["find_writes"], of).fetchall()
            known = database.execute(_STATEMENTS["find_thread"], named).fetchone()
            return Saved(row, {one[0]: one[1] for one in values}, tuple(WriteRow(*one) for one in writes), known[0])

        return await self._read(find)

    async def graph_checkpoints(
        self, tenant: Tenant, thread: str | None, ns: str | None, *, before: str | None, after: CheckpointRow | None,
        limit: int,
    ) -> list[CheckpointRow]:  # fmt: skip
        given = {
            "tenant": tenant, "thread": thread, "ns": ns, "before": before, "limit": limit, **behind(after),
        }  # fmt: skip
        statement = _STATEMENTS["find_all_checkpoints" if thread is None else "find_checkpoints"]
        return await self._read(lambda database: [CheckpointRow(*row) for row in database.execute(statement, given)])

    async def graph_pieces(self, tenant: Tenant, thread: str, digests: Sequence[str]) -> dict[str, Piece]:
        given = {"tenant": tenant, "thread": thread, "digests": columns.to_json(list(digests))}
        return await self._read(
            lambda database: {
                digest: Piece(kind, body) for digest, kind, body in database.execute(_STATEMENTS["find_pieces"], given)
            }
        )

    async def graph_links(self, tenant: Tenant, thread: str, chain: str, length: int) -> list[str]:
        given = {"tenant": tenant, "thread": thread, "chain": chain, "length": length}
        return await self._read(
            lambda database: [row[0] for row in database.execute(_STATEMENTS["find_links"], given)]
        )  # fmt: skip

    async def graph_runs(self, tenant: Tenant, runs: Sequence[str]) -> list[tuple[str, Place]]:
        given = {"tenant": tenant, "runs": columns.to_json(list(runs))}
        return await self._read(
            lambda database: [
                (thread, Place(ns, id))
                for thread, ns, id in database.execute(_STATEMENTS["find_run_checkpoints"], given)
            ]
        )

    async def copy_graph(self, tenant: Tenant, source: str, target: str) -> Held | None:
        def copy(database: sqlite3.Connection, clock: int) -> Held | None:
            moment = self._at(None, clock)
            given = {"tenant": tenant, "thread": target, "now": moment}
            wanted = {**given, "ns": None, "before": None, "limit": 1, **behind(None)}
            if database.execute(_STATEMENTS["find_checkpoints"], wanted).fetchone() is not None:
                raise Refused(what=f"a copy into thread {target}", why="it has checkpoints of its own")
            if (held := self._graph_thread(database, given).refuses(None, moment)) is not None:
                return held
            for name in _COPIED:
                database.execute(_STATEMENTS[name], {"tenant": tenant, "thread": source, "target": target})
            return None

        return await self._write(copy)

    async def sweep_graph(
        self, tenant: Tenant, thread: str, gone: Sequence[Place], *, while_held: bool = False
    ) -> Held | None:
        named = {"tenant": tenant, "thread": thread}

        def sweep(database: sqlite3.Connection, clock: int) -> Held | None:
            moment = self._at(None, clock)
            row = self._graph_thread(database, {**named, "now": moment})
            if not while_held and (held := row.refuses(None, moment)) is not None:
                return held
            for place in gone:
                of = {**named, **asdict(place)}
                database.execute(_STATEMENTS["drop_checkpoint_writes"], of)
                database.execute(_STATEMENTS["drop_checkpoint"], of)
            database.execute(_STATEMENTS["drop_values"], named)
            shapes = [row[0] for row in database.execute(_STATEMENTS["find_shapes"], named)]
            bases = {row[0]: (row[1], row[2]) for row in database.execute(_STATEMENTS["find_bases"], named)}
            pieces, lengths = needed(shapes, bases)
            for chain in bases:
                of = {**named, "chain": chain, "length": lengths.get(chain, 0)}
                database.execute(_STATEMENTS["drop_links"], of)
                database.execute(_STATEMENTS["cut_chain" if chain in lengths else "drop_chain"], of)
            database.execute(_STATEMENTS["drop_pieces"], {**named, "digests": columns.to_json(sorted(pieces))})
            database.execute(_STATEMENTS["know_anew"], {**named, "fresh": self._clock.token()})
            return None

        return await self._write(sweep)

    async def delete_graph(self, tenant: Tenant, thread: str) -> Held | None:
        named = {"tenant": tenant, "thread": thread}

        def delete(database: sqlite3.Connection, clock: int) -> Held | None:
            moment = self._at(None, clock)
            row = self._graph_thread(database, {**named, "now": moment})
            if (held := row.refuses(None, moment)) is not None:
                return held
            for name in _DROPPED:
                database.execute(_STATEMENTS[name], named)
            database.execute(_STATEMENTS["know_anew"], {**named, "fresh": self._clock.token()})
            database.execute(_STATEMENTS["drop_thread"], {**named, "now": moment})
            return None

        return await self._write(delete)

    def _graph_thread(self, database: sqlite3.Connection, given: Mapping[str, object]) -> ThreadRow:
        """The row of a thread, which is made if it is not there."""
        found = database.execute(_STATEMENTS["lock_thread"], given).fetchone()
        if found is None:
            database.execute(_STATEMENTS["add_thread"], {**given, "fresh": self._clock.token()})
            found = database.execute(_STATEMENTS["lock_thread"], given).fetchone()
        return ThreadRow(*found)


def _put(database: sqlite3.Connection, named: Mapping[str, str], batch: Batch) -> None:
    """The rows of a batch. A chain that has grown meanwhile is Outdated, and takes all of it back."""
    for chain in batch.chains:
        row = {
            **named, "id": chain.id, "base": chain.base, "shared": chain.shared, "at": chain.at,
            "length": chain.at + len(chain.digests),
        }  # fmt: skip
        if not database.execute(_STATEMENTS["grow_chain"], row).rowcount:
            raise Outdated
        database.executemany(
            _STATEMENTS["add_link"],
            [
                {**named, "chain": chain.id, "place": chain.at + place, "digest": digest}
                for place, digest in enumerate(chain.digests)
            ],
        )
    pieces = [{**named, "digest": digest, **asdict(piece)} for digest, piece in batch.pieces.items()]
    database.executemany(_STATEMENTS["add_piece"], pieces)
    database.executemany(_STATEMENTS["put_value"], [{**named, **asdict(value)} for value in batch.values])
    if batch.checkpoint is not None:
        database.execute(_STATEMENTS["put_checkpoint"], {**asdict(batch.checkpoint), **named})
    writing = _STATEMENTS["put_write" if batch.replace else "add_write"]
    database.executemany(writing, [{**named, **asdict(write)} for write in batch.writes])
