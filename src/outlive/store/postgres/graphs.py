"""Checkpoints of graphs, in the schema: one transaction for what is written together, with the thread locked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import psycopg
from psycopg.rows import TupleRow

from outlive.model.errors import Refused
from outlive.model.ids import Tenant
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
from outlive.store.postgres.base import Base, Connection
from outlive.store.postgres.transaction import IDLE_MS, begin
from outlive.store.sql import load

T = TypeVar("T")
Named = Mapping[str, object]
Cursor = psycopg.AsyncCursor[TupleRow]

_STATEMENTS = load(Path(__file__).with_name("graphs.sql"))
_COPIED = ("copy_checkpoints", "copy_values", "copy_writes", "copy_pieces", "copy_chains", "copy_links")
_DROPPED = tuple(name for name in _STATEMENTS if name.startswith("drop_thread_"))


class PostgresGraphs(Base):
    """The port's `Graphs`; its contract is there."""

    async def hold_thread(
        self, tenant: Tenant, thread: str, *, token: str, holder: str, lease_ms: int, now: int | None = None
    ) -> Held | None:
        given = {
            "tenant": tenant, "thread": thread, "token": token, "holder": holder, "lease_ms": lease_ms,
            "now": self._at(now),
        }  # fmt: skip

        async def hold(cursor: Cursor) -> Held | None:
            row, moment = await self._graph_thread(cursor, given)
            if (await cursor.execute(self._graph("take_thread"), given)).rowcount:
                return None
            return Held(row.holder, max(0, (row.expires_at or 0) - moment))

        return await self._together(hold)

    async def keep_threads(
        self, tenant: Tenant, held: Mapping[str, str], *, lease_ms: int, now: int | None = None
    ) -> set[str]:
        async def keep(cursor: Cursor) -> set[str]:
            kept = set()
            # In one order everywhere, so that two of these wait for each other, and not crosswise.
            for thread, token in sorted(held.items()):
                given = {"tenant": tenant, "thread": thread, "token": token, "lease_ms": lease_ms}
                await cursor.execute(self._graph("keep_thread"), {**given, "now": self._at(now)})
                if cursor.rowcount:
                    kept.add(thread)
            return kept

        return await self._together(keep)

    async def leave_thread(self, tenant: Tenant, thread: str, token: str) -> None:
        given = {"tenant": tenant, "thread": thread, "token": token}

        async def leave(cursor: Cursor) -> None:
            await cursor.execute(self._graph("leave_thread"), given)

        await self._together(leave)

    async def put_graph(
        self, tenant: Tenant, thread: str, batch: Batch, *, token: str | None, now: int | None = None
    ) -> str | Held:
        named = {"tenant": tenant, "thread": thread}

        async def put(cursor: Cursor) -> str | Held:
            row, moment = await self._graph_thread(cursor, {**named, "now": self._at(now)})
            if (held := row.refuses(token, moment)) is not None:
                return held
            if batch.known is not None and batch.known != row.known:
                raise Outdated
            await self._put_batch(cursor, named, batch)
            return row.known

        return await self._together(put)

    async def graph_checkpoint(self, tenant: Tenant, thread: str, ns: str, id: str | None) -> Saved | None:
        named = {"tenant": tenant, "thread": thread, "ns": ns, "id": id}

        async def find(cursor: Cursor) -> Saved | None:
            which = "last_checkpoint" if id is None else "find_checkpoint"
            found = await self._graph_rows(cursor, which, named)
            if not found:
                return None
            row = CheckpointRow(*found[0])
            of = {**named, "id": row.id, "versions": row.versions}
            values = await self._graph_rows(cursor, "find_values", of)
            writes = await self._graph_rows(cursor, "find_writes", of)
            [known] = await self._graph_rows(cursor, "find_thread", named)
            return Saved(row, {one[0]: one[1] for one in values}, tuple(WriteRow(*one) for one in writes), known[0])

        return await self._looking(find)

    async def graph_checkpoints(
        self, tenant: Tenant, thread: str | None, ns: str | None, *, before: str | None, after: CheckpointRow | None,
        limit: int,
    ) -> list[CheckpointRow]:  # fmt: skip
        given = {"tenant": tenant, "thread": thread, "ns": ns, "before": before, "limit": limit, **behind(after)}
        name = "find_all_checkpoints" if thread is None else "find_checkpoints"

        async def find(cursor: Cursor) -> list[CheckpointRow]:
            return [CheckpointRow(*row) for row in await self._graph_rows(cursor, name, given)]

        return await self._looking(find)

    async def graph_pieces(self, tenant: Tenant, thread: str, digests: Sequence[str]) -> dict[str, Piece]:
        given = {"tenant": tenant, "thread": thread, "digests": list(digests)}

        async def find(cursor: Cursor) -> dict[str, Piece]:
            rows = await self._graph_rows(cursor, "find_pieces", given)
            return {digest: Piece(kind, bytes(body)) for digest, kind, body in rows}

        return await self._looking(find)

    async def graph_links(self, tenant: Tenant, thread: str, chain: str, length: int) -> list[str]:
        given = {"tenant": tenant, "thread": thread, "chain": chain, "length": length}

        async def find(cursor: Cursor) -> list[str]:
            return [row[0] for row in await self._graph_rows(cursor, "find_links", given)]

        return await self._looking(find)

    async def graph_runs(self, tenant: Tenant, runs: Sequence[str]) -> list[tuple[str, Place]]:
        given = {"tenant": tenant, "runs": list(runs)}

        async def find(cursor: Cursor) -> list[tuple[str, Place]]:
            rows = await self._graph_rows(cursor, "find_run_checkpoints", given)
            return [(thread, Place(ns, id)) for thread, ns, id in rows]

        return await self._looking(find)

    async def copy_graph(self, tenant: Tenant, source: str, target: str) -> Held | None:
        async def copy(cursor: Cursor) -> Held | None:
            given = {"tenant": tenant, "thread": target, "now": self._at(None)}
            row, moment = await self._graph_thread(cursor, given)
            if (held := row.refuses(None, moment)) is not None:
                return held
            wanted = {**given, "ns": None, "before": None, "limit": 1, **behind(None)}
            if await self._graph_rows(cursor, "find_checkpoints", wanted):
                raise Refused(what=f"a copy into thread {target}", why="it has checkpoints of its own")
            for name in _COPIED:
                await cursor.execute(self._graph(name), {"tenant": tenant, "thread": source, "target": target})
            return None

        return await self._together(copy)

    async def sweep_graph(
        self, tenant: Tenant, thread: str, gone: Sequence[Place], *, while_held: bool = False
    ) -> Held | None:
        named = {"tenant": tenant, "thread": thread}

        async def sweep(cursor: Cursor) -> Held | None:
            row, moment = await self._graph_thread(cursor, {**named, "now": self._at(None)})
            if not while_held and (held := row.refuses(None, moment)) is not None:
                return held
            places = [{**named, **asdict(place)} for place in gone]
            await cursor.executemany(self._graph("drop_checkpoint_writes"), places)
            await cursor.executemany(self._graph("drop_checkpoint"), places)
            await cursor.execute(self._graph("drop_values"), named)
            shapes = [row[0] for row in await self._graph_rows(cursor, "find_shapes", named)]
            bases = {row[0]: (row[1], row[2]) for row in await self._graph_rows(cursor, "find_bases", named)}
            pieces, lengths = needed(shapes, bases)
            chains = [{**named, "chain": chain, "length": lengths.get(chain, 0)} for chain in bases]
            await cursor.executemany(self._graph("drop_links"), chains)
            await cursor.executemany(self._graph("cut_chain"), [one for one in chains if one["chain"] in lengths])
            await cursor.executemany(self._graph("drop_chain"), [one for one in chains if one["chain"] not in lengths])
            await cursor.execute(self._graph("drop_pieces"), {**named, "digests": sorted(pieces)})
            await cursor.execute(self._graph("know_anew"), {**named, "fresh": self._clock.token()})
            return None

        return await self._together(sweep)

    async def delete_graph(self, tenant: Tenant, thread: str) -> Held | None:
        named = {"tenant": tenant, "thread": thread}

        async def delete(cursor: Cursor) -> Held | None:
            row, moment = await self._graph_thread(cursor, {**named, "now": self._at(None)})
            if (held := row.refuses(None, moment)) is not None:
                return held
            for name in _DROPPED:
                await cursor.execute(self._graph(name), named)
            await cursor.execute(self._graph("know_anew"), {**named, "fresh": self._clock.token()})
            await cursor.execute(self._graph("drop_thread"), {**named, "now": self._at(None)})
            return None

        return await self._together(delete)

    async def _put_batch(self, cursor: Cursor, named: Mapping[str, str], batch: Batch) -> None:
        """The rows of a batch. A chain that has grown meanwhile is Outdated, and takes all of it back."""
        links = []
        for chain in batch.chains:
            row = {
                **named, "id": chain.id, "base": chain.base, "shared": chain.shared, "at": chain.at,
                "length": chain.at + len(chain.digests),
            }  # fmt: skip
            if not (await cursor.execute(self._graph("grow_chain"), row)).rowcount:
                raise Outdated
            links += [
                {**named, "chain": chain.id, "place": chain.at + place, "digest": digest}
                for place, digest in enumerate(chain.digests)
            ]
        await cursor.executemany(self._graph("add_link"), links)
        pieces = [{**named, "digest": digest, **asdict(piece)} for digest, piece in batch.pieces.items()]
        await cursor.executemany(self._graph("add_piece"), pieces)
        await cursor.executemany(self._graph("put_value"), [{**named, **asdict(value)} for value in batch.values])
        if batch.checkpoint is not None:
            await cursor.execute(self._graph("put_checkpoint"), {**asdict(batch.checkpoint), **named})
        writing = self._graph("put_write" if batch.replace else "add_write")
        await cursor.executemany(writing, [{**named, **asdict(write)} for write in batch.writes])

    async def _graph_thread(self, cursor: Cursor, given: Named) -> tuple[ThreadRow, int]:
        """The row of a thread, locked, which is made if it is not there; and the time."""
        found = await self._graph_rows(cursor, "lock_thread", given)
        if not found:
            await cursor.execute(self._graph("add_thread"), {**given, "fresh": self._clock.token()})
            found = await self._graph_rows(cursor, "lock_thread", given)
        known, holder, token, expires_at, moment = found[0]
        return ThreadRow(known, holder, token, expires_at), moment

    async def _graph_rows(self, cursor: Cursor, name: str, given: Named) -> list[TupleRow]:
        await cursor.execute(self._graph(name), given)
        return await cursor.fetchall()

    async def _together(self, work: Callable[[Cursor], Awaitable[T]]) -> T:
        """Several statements that commit together; what is raised takes them back."""
        self._refuse_inside()

        async def do(connection: Connection) -> T:
            await begin(connection, self._sql, wait=self._wait, idle_ms=IDLE_MS)
            async with connection.cursor() as cursor:
                done = await work(cursor)
            await connection.execute(self._sql["commit"])
            return done

        return await self._on_connection(do, wrote=True)

    async def _looking(self, work: Callable[[Cursor], Awaitable[T]]) -> T:
        async def look(connection: Connection) -> T:
            async with connection.cursor() as cursor:
                return await work(cursor)

        return await self._on_connection(look, wrote=False)

    def _graph(self, name: str) -> bytes:
        return self._sql.fill(_STATEMENTS[name]).encode()
