"""What agents of another library have said, in the schema."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from psycopg import AsyncCursor
from psycopg.rows import TupleRow

from outlive.model.ids import Tenant
from outlive.store.columns import Parameters, check_text
from outlive.store.postgres.base import Base, Connection
from outlive.store.postgres.transaction import IDLE_MS, begin
from outlive.store.sql import load
from outlive.store.transcripts import Head, Line, Part, TranscriptRow

_STATEMENTS = load(Path(__file__).with_name("transcripts.sql"))


class PostgresTranscripts(Base):
    """The port's `Transcripts`; its contract is there."""

    async def transcript_head(self, tenant: Tenant, at: Part, uuids: Sequence[str]) -> Head | None:
        check_text(asdict(at), "a transcript")
        given: Parameters = {"tenant": tenant, **asdict(at), "uuids": list(uuids)}
        rows = await self._read_tuples(self._transcript("find_transcript_head"), given)
        return Head(rows[0][0], rows[0][1], rows[0][2], frozenset(json.loads(rows[0][3]))) if rows else None

    async def extend_transcript(
        self, tenant: Tenant, at: Part, lines: Sequence[Line], *, after: Head | None, token: str, summary: str | None,
        now: int | None = None,
    ) -> bool:  # fmt: skip
        self._refuse_inside()
        begun = after.length if after is not None else 0
        which = {"tenant": tenant, **asdict(at)}
        head = {
            "token": token, "length": begun + len(lines), "summary": summary, "now": self._at(now),
            "after": after.token if after is not None else "",
        }  # fmt: skip
        rows = [{**which, "place": begun + place, **asdict(line)} for place, line in enumerate(lines)]
        name = "begin_transcript" if after is None else "extend_transcript"

        async def extend(connection: Connection) -> bool:
            await begin(connection, self._sql, wait=self._wait, idle_ms=IDLE_MS)
            async with connection.cursor() as cursor:
                await cursor.execute(self._transcript(name), {**which, **head})
                first = cursor.rowcount == 1
                if first:
                    await cursor.executemany(self._transcript("add_transcript_line"), rows)
            await connection.execute(self._sql["commit"])
            return first

        return await self._on_connection(extend, wrote=True)

    async def transcript_lines(self, tenant: Tenant, at: Part) -> list[str]:
        given: Parameters = {"tenant": tenant, **asdict(at)}
        return [row[0] for row in await self._read_tuples(self._transcript("find_transcript_lines"), given)]

    async def transcripts(self, tenant: Tenant, project: str) -> list[TranscriptRow]:
        given: Parameters = {"tenant": tenant, "project": project}
        return [TranscriptRow(*row) for row in await self._read_tuples(self._transcript("find_transcripts"), given)]

    async def transcript_parts(self, tenant: Tenant, project: str, name: str) -> list[str]:
        given: Parameters = {"tenant": tenant, "project": project, "name": name}
        return [row[0] for row in await self._read_tuples(self._transcript("find_transcript_parts"), given)]

    async def drop_transcript(self, tenant: Tenant, at: Part) -> None:
        await self._drop_transcripts([{"tenant": tenant, **asdict(at)}], at_any_age=True)

    async def drop_old_transcripts(self, tenant: Tenant, *, kept_ms: int, limit: int, now: int | None = None) -> int:
        given: Parameters = {"tenant": tenant, "kept_ms": kept_ms, "limit": limit, "now": self._at(now), "part": ""}
        found = await self._read_tuples(self._transcript("find_old_transcripts"), given)
        # In one order everywhere, so that two of these wait for each other, and not crosswise.
        old = [{**given, "project": project, "name": name} for project, name in sorted(found)]
        return await self._drop_transcripts(old, at_any_age=False) if old else 0

    async def _drop_transcripts(self, which: Sequence[Parameters], *, at_any_age: bool) -> int:
        """In one commit; how many there were."""
        self._refuse_inside()

        async def drop(connection: Connection) -> int:
            await begin(connection, self._sql, wait=self._wait, idle_ms=IDLE_MS)
            async with connection.cursor() as cursor:
                count = 0
                for given in which:
                    count += await self._drop_one(cursor, given, at_any_age=at_any_age)
            await connection.execute(self._sql["commit"])
            return count

        return await self._on_connection(drop, wrote=True)

    async def _drop_one(self, cursor: AsyncCursor[TupleRow], given: Parameters, *, at_any_age: bool) -> bool:
        if not at_any_age:
            await cursor.execute(self._transcript("lock_transcript"), given)
            if any(young for (young,) in await cursor.fetchall()):
                return False
        await cursor.execute(self._transcript("drop_transcript"), given)
        gone = [{**given, "part": part} for (part,) in await cursor.fetchall()]
        await cursor.executemany(self._transcript("drop_transcript_lines"), gone)
        return bool(gone)

    def _transcript(self, name: str) -> bytes:
        return self._sql.fill(_STATEMENTS[name]).encode()
