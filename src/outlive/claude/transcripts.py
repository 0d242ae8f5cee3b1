"""`OutliveSessionStore`: the transcripts of the Claude Agent SDK, on our store.

A write is folded into the summary that the SDK keeps, and both are set in one commit that names the write before it.
Whoever was overtaken looks again at which lines are new and folds these alone: a retry changes nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar, cast

from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry, fold_session_summary
from claude_agent_sdk.types import SessionListSubkeysKey, SessionStoreListEntry, SessionSummaryEntry

from outlive.app.outlive import Outlive
from outlive.app.sync import Client
from outlive.model.clock import SystemClock
from outlive.model.errors import NotSerialisable, Refused
from outlive.model.ids import Tenant
from outlive.store.transcripts import Head, Line, Part, Transcripts

T = TypeVar("T")
_AT_ONCE = 100


class OutliveSessionStore(SessionStore):
    """What the SDK's agents have said: `ClaudeAgentOptions(session_store=OutliveSessionStore("sqlite:///claude.db"))`.

    `store` is a URL, or an application, whose store it opens a second time, at the first use; `close` ends that. It may
    be used from any event loop and thread. `keep` is for how long a transcript is kept after it was last written: those
    of the tenant that are older go with the next write. Without it they stay until they are deleted.
    """

    def __init__(
        self, store: str | Outlive[Any], *, tenant: str = "default", keep: timedelta | None = None
    ) -> None:  # fmt: skip
        if keep is not None and keep <= timedelta(0):
            raise Refused(what=f"keep={keep}", why="a transcript has to live for some time; without keep= it stays")
        self._client = Client(Outlive(store) if isinstance(store, str) else store)
        self._tenant, self._keep, self._clock = Tenant(tenant), keep, SystemClock()

    def close(self) -> None:
        """End what the first use began. The next use begins it again."""
        self._client.close()

    async def __aenter__(self) -> OutliveSessionStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add lines. One whose `uuid` the transcript has already is left out, also when it comes from elsewhere.

        Raises StoreUnavailable and its kin when it cannot be said that all is stored: to append the same again is safe
        for what has a `uuid`, and may write twice what has none.
        """
        if entries:
            lines = [_line(key, entry) for entry in entries]
            await self._do(self._append(key, list(zip(lines, entries, strict=True))))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All lines in their order; None for what was never written, or was deleted."""
        found = await self._do(self._load(_part(key)))
        return [cast(SessionStoreEntry, json.loads(one)) for one in found] or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The main transcripts of a project, by the time of their last write on the database's clock."""
        rows = await self._do(self._list(project_key))
        return [{"session_id": one.name, "mtime": one.updated_at} for one in rows]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What the SDK has folded of each of them."""
        rows = await self._do(self._list(project_key))
        return [
            {"session_id": one.name, "mtime": one.updated_at, "data": json.loads(one.summary)}
            for one in rows
            if one.summary is not None
        ]

    async def delete(self, key: SessionKey) -> None:
        """Take a transcript away: the main one with those of its subagents, or the one of a `subpath`."""
        await self._do(self._drop(_part(key)))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths that have lines."""
        return await self._do(self._parts(Part(key["project_key"], key["session_id"], "")))

    async def _append(self, key: SessionKey, given: Sequence[tuple[Line, SessionStoreEntry]]) -> None:
        store, part = self._store(), _part(key)
        uuids = [line.uuid for line, _ in given if line.uuid is not None]
        while True:
            head = await store.transcript_head(self._tenant, part, uuids)
            new = _new(given, head)
            if not new:
                return
            written = await store.extend_transcript(
                self._tenant, part, [line for line, _ in new], after=head, token=self._clock.token(),
                summary=_folded(key, head, [entry for _, entry in new]),
            )  # fmt: skip
            if written:
                break
        if self._keep is not None:
            kept = round(self._keep.total_seconds() * 1000)
            await store.drop_old_transcripts(self._tenant, kept_ms=kept, limit=_AT_ONCE)

    async def _load(self, part: Part) -> list[str]:
        return await self._store().transcript_lines(self._tenant, part)

    async def _list(self, project: str) -> Sequence[Any]:
        return await self._store().transcripts(self._tenant, project)

    async def _drop(self, part: Part) -> None:
        await self._store().drop_transcript(self._tenant, part)

    async def _parts(self, part: Part) -> list[str]:
        return await self._store().transcript_parts(self._tenant, part.project, part.name)

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._client.submit(work))

    def _store(self) -> Transcripts:
        store = self._client.app.opened
        if not isinstance(store, Transcripts):
            raise Refused(what="transcripts on this store", why="it keeps none")
        return store


def _part(key: SessionKey) -> Part:
    subpath = key.get("subpath")
    if subpath == "":
        raise Refused(what="an empty subpath", why="the main transcript has none at all")
    return Part(key["project_key"], key["session_id"], subpath or "")


def _line(key: SessionKey, entry: SessionStoreEntry) -> Line:
    try:
        text = json.dumps(entry, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise NotSerialisable(what="a line of a transcript", where=key["session_id"], why=str(error)) from error
    uuid = entry.get("uuid")
    return Line(json.dumps(uuid)[1:-1] if isinstance(uuid, str) and uuid else None, text)


def _new(
    given: Sequence[tuple[Line, SessionStoreEntry]], head: Head | None
) -> list[tuple[Line, SessionStoreEntry]]:  # fmt: skip
    """What is not there yet, each uuid once."""
    known = set(head.known) if head is not None else set()
    new = []
    for line, entry in given:
        if line.uuid is None or line.uuid not in known:
            new.append((line, entry))
        if line.uuid is not None:
            known.add(line.uuid)
    return new


def _folded(key: SessionKey, head: Head | None, entries: list[SessionStoreEntry]) -> str | None:
    """The summary of the main transcript with these lines; subagents have none."""
    if key.get("subpath") is not None:
        return None
    before: SessionSummaryEntry | None = None
    if head is not None and head.summary is not None:
        before = {"session_id": key["session_id"], "mtime": 0, "data": json.loads(head.summary)}
    return json.dumps(fold_session_summary(before, key, entries)["data"])
