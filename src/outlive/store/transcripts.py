"""The transcripts port: what an agent of another library has said, line by line, mirrored by whoever runs it.

A transcript has a project, a name and parts; its main part is the empty one. Lines are opaque JSON. A part is written
by comparing and setting: a writer says after which write of it (`token`) its own comes, and is refused when there was
another one meanwhile. So a summary that is folded from lines has each of them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outlive.model.ids import Tenant


@dataclass(frozen=True, slots=True)
class Part:
    """Where lines belong. The main part is `""`."""

    project: str
    name: str
    part: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line, as JSON. Of one `uuid` a part has one line; a line without is never the same as another."""

    uuid: str | None
    value: str


@dataclass(frozen=True, slots=True)
class Head:
    """A part as its last write has left it: how many lines, their summary, and which of the uuids asked for it has."""

    token: str
    length: int
    summary: str | None
    known: frozenset[str]


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """A main part: when it was written, in milliseconds, and its summary."""

    name: str
    updated_at: int
    summary: str | None


@runtime_checkable
class Transcripts(Protocol):
    """Lines by project, name and part."""

    async def transcript_head(self, tenant: Tenant, at: Part, uuids: Sequence[str]) -> Head | None:
        """What the next write goes by; None for a part that has no lines."""
        ...

    async def extend_transcript(
        self, tenant: Tenant, at: Part, lines: Sequence[Line], *, after: Head | None, token: str, summary: str | None,
        now: int | None = None,
    ) -> bool:  # fmt: skip
        """Add lines behind those there are, and set the summary, in one commit. False: it was written meanwhile."""
        ...

    async def transcript_lines(self, tenant: Tenant, at: Part) -> list[str]:
        """The lines of a part in their order."""
        ...

    async def transcripts(self, tenant: Tenant, project: str) -> list[TranscriptRow]:
        """The main parts of a project."""
        ...

    async def transcript_parts(self, tenant: Tenant, project: str, name: str) -> list[str]:
        """The parts of a transcript without the main one."""
        ...

    async def drop_transcript(self, tenant: Tenant, at: Part) -> None:
        """Take a part away with its lines; the main part, and all others of its name with it."""
        ...

    async def drop_old_transcripts(self, tenant: Tenant, *, kept_ms: int, limit: int, now: int | None = None) -> int:
        """Take away up to `limit` transcripts of which no part was written for so long; how many it were."""
        ...
