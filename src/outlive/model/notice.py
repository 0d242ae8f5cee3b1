"""Notices: what an append says that somebody has to be told of, and the notifications that stores keep of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from outlive.model.ids import RunId, Tenant

NoticeKind = Literal[
    "blocked",
    "poison",
    "entries lost",
    "unknown operation",
    "duplicate effect",
    "contradiction",
    "question",
    "approval",
    "reminder",
    "deadline near",
    "stalled run",
    "test",
]
NOTICE_KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


@dataclass(frozen=True, slots=True)
class Notice:
    """What the entry at `place` among those of its append has to be told for.

    A fact is the run, that entry and `kind`: it is stored once. `id` is what a receiver dedupes by. `role` is who
    should be told; empty: anybody.
    """

    kind: NoticeKind
    id: str
    place: int = 0
    role: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notification:
    """A notice as it is stored. `agent` is that of its run; `at` is when it was written, by the database's clock."""

    tenant: Tenant
    run: RunId
    agent: str
    seq: int
    kind: str
    id: str
    role: str
    facts: Mapping[str, object]
    at: int
    position: int = 0
