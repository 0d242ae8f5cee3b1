"""What agents of another library have said, in the file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from outlive.model.ids import Tenant
from outlive.store.columns import check_text
from outlive.store.sql import load
from outlive.store.sqlite.base import Base, clock
from outlive.store.transcripts import Head, Line, Part, TranscriptRow

_STATEMENTS = load(Path(__file__).with_name("transcripts.sql"))


class SQLiteTranscripts(Base):
    """The port's `Transcripts`; its contract is there."""

    async def transcript_head(self, tenant: Tenant, at: Part, uuids: Sequence[str]) -> Head | None:
        check_text(asdict(at), "a transcript")
        given = {"tenant": tenant, **asdict(at), "uuids": json.dumps(list(uuids))}

        def find(database: sqlite3.Connection) -> Head | None:
            row = database.execute(_STATEMENTS["find_transcript_head"], given).fetchone()
            return Head(row[0], row[1], row[2], frozenset(json.loads(row[3]))) if row is not None else None

        return await self._read(find)

    async def extend_transcript(
        self, tenant: Tenant, at: Part, lines: Sequence[Line], *, after: Head | None, token: str, summary: str | None,
        now: int | None = None,
    ) -> bool:  # fmt: skip
        begun = after.length if after is not None else 0
        which = {"tenant": tenant, **asdict(at)}
        head = {"token": token, "length": begun + len(lines), "summary": summary}
        rows = [{**which, "place": begun + place, **asdict(line)} for place, line in enumerate(lines)]
        name = "begin_transcript" if after is None else "extend_transcript"

        def extend(database: sqlite3.Connection, clock: int) -> bool:
            given = {**which, **head, "after": after.token if after is not None else "", "now": self._at(now, clock)}
            if not database.execute(_STATEMENTS[name], given).rowcount:
                return False
            database.executemany(_STATEMENTS["add_transcript_line"], rows)
            return True

        return await self._write(extend)

    async def transcript_lines(self, tenant: Tenant, at: Part) -> list[str]:
        found = await self._transcript_rows("find_transcript_lines", {"tenant": tenant, **asdict(at)})
        return [str(row[0]) for row in found]

    async def transcripts(self, tenant: Tenant, project: str) -> list[TranscriptRow]:
        found = await self._transcript_rows("find_transcripts", {"tenant": tenant, "project": project})
        return [TranscriptRow(*row) for row in found]

    async def transcript_parts(self, tenant: Tenant, project: str, name: str) -> list[str]:
        given = {"tenant": tenant, "project": project, "name": name}
        return [str(row[0]) for row in await self._transcript_rows("find_transcript_parts", given)]

    async def drop_transcript(self, tenant: Tenant, at: Part) -> None:
        await self._write(lambda database, _: _drop(database, tenant, at))

    async def drop_old_transcripts(self, tenant: Tenant, *, kept_ms: int, limit: int, now: int | None = None) -> int:
        def find(database: sqlite3.Connection, clock: int) -> list[tuple[str, str]]:
            given = {"tenant": tenant, "kept_ms": kept_ms, "limit": limit, "now": self._at(now, clock)}
            return database.execute(_STATEMENTS["find_old_transcripts"], given).fetchall()

        def drop(database: sqlite3.Connection, clock: int) -> int:
            found = find(database, clock)
            for project, name in found:
                _drop(database, tenant, Part(project, name, ""))
            return len(found)

        # Mostly there are none: a look does not wait for its turn to write.
        if not await self._read(lambda database: find(database, clock(database))):
            return 0
        return await self._write(drop)

    async def _transcript_rows(self, name: str, given: dict[str, str]) -> list[tuple[str, int, str | None]]:
        return await self._read(lambda database: database.execute(_STATEMENTS[name], given).fetchall())


def _drop(database: sqlite3.Connection, tenant: Tenant, at: Part) -> None:
    given = {"tenant": tenant, **asdict(at)}
    gone = database.execute(_STATEMENTS["drop_transcript"], given).fetchall()
    database.executemany(_STATEMENTS["drop_transcript_lines"], [{**given, "part": row[0]} for row in gone])
