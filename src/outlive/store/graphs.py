"""The graphs port: checkpoints of graphs that another library runs, a thread of them at a time, written by one holder.

What it stores is opaque: bytes of the other library's serializer, under keyed digests. A value is stored once in its
thread; a list that grows is a *chain* of links to values, of which a checkpoint names the first so many. So bytes grow
with the content, whatever the number of checkpoints. `known` is what a thread's values were known under when a batch
was made: it changes when values are taken away, and a batch that builds on them is then refused, for its caller to
make anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from outlive.model.ids import Tenant


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint of a thread, in one namespace of it."""

    ns: str
    id: str


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint without the values of its channels. `versions` is a JSON object of channels; `kind` and
    `metadata_kind` say how the bytes are read.
    """

    thread: str
    ns: str
    id: str
    parent: str | None
    versions: str
    kind: str
    body: bytes
    metadata_kind: str
    metadata: bytes
    run: str | None


@dataclass(frozen=True, slots=True)
class ValueRow:
    """The value of a channel at a version: its shape, see `named`."""

    ns: str
    channel: str
    version: str
    shape: str


@dataclass(frozen=True, slots=True)
class WriteRow:
    """What a task has written on top of a checkpoint."""

    ns: str
    checkpoint: str
    task: str
    place: int
    channel: str
    path: str
    shape: str


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a value, and how they are read."""

    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain with what is new of it: `digests` from place `at` on. Before `shared` it has the links of `base`."""

    id: str
    base: str | None
    shared: int
    at: int
    digests: tuple[str, ...]


@dataclass(slots=True)
class Batch:
    """What is written in one commit. `replace`: what a task wrote before at the same place gives way."""

    checkpoint: CheckpointRow | None = None
    values: list[ValueRow] = field(default_factory=list)
    writes: list[WriteRow] = field(default_factory=list)
    replace: bool = False
    pieces: dict[str, Piece] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)
    known: str | None = None


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint as it is stored, its values by channel, its writes in their order, and what the thread is known
    under.
    """

    row: CheckpointRow
    values: Mapping[str, str]
    writes: tuple[WriteRow, ...]
    known: str


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a thread, and for how many milliseconds more (nobody knows whether they live)."""

    holder: str
    for_ms: int


class Outdated(Exception):
    """The batch builds on values that were taken away, or on the end of a chain that has grown: make it anew."""


def named(shape: str) -> Iterator[tuple[str, str, int]]:
    """What a shape names: pieces, `("p", digest, 0)`, and links, `("c", chain, how many)`.

    A shape is JSON: `["p", digest]`, `["c", chain, length]`, `["b", kind, base64]` for few bytes, and of shapes
    `["l", [...]]` for a list and `["d", {key: ...}]` for a dict.
    """
    yield from _named(json.loads(shape))


def _named(shape: Sequence[object]) -> Iterator[tuple[str, str, int]]:
    match shape:
        case ["p", str(digest)]:
            yield "p", digest, 0
        case ["c", str(chain), int(length)]:
            yield "c", chain, length
        case ["l", list(parts)]:
            for part in parts:
                yield from _named(part)
        case ["d", dict(parts)]:
            for part in parts.values():
                yield from _named(part)
        case _:
            return


def needed(
    shapes: Iterable[str], bases: Mapping[str, tuple[str | None, int]]
) -> tuple[set[str], dict[str, int]]:  # fmt: skip
    """The pieces that shapes name, and how many links of which chains, those of their bases counted in."""
    pieces: set[str] = set()
    lengths: dict[str, int] = {}
    for shape in shapes:
        for sort, name, length in named(shape):
            if sort == "p":
                pieces.add(name)
            else:
                lengths[name] = max(length, lengths.get(name, 0))
    waiting = list(lengths)
    while waiting:
        chain = waiting.pop()
        base, shared = bases.get(chain, (None, 0))
        upto = min(shared, lengths[chain])
        if base is not None and upto > lengths.get(base, 0):
            lengths[base] = upto
            waiting.append(base)
    return pieces, lengths


def behind(row: CheckpointRow | None) -> dict[str, str | None]:
    """Where a page of checkpoints begins, for a statement."""
    after = (None, None, None) if row is None else (row.id, row.thread, row.ns)
    return dict(zip(("after_id", "after_thread", "after_ns"), after, strict=True))


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread as it is stored, at a time by the database's clock."""

    known: str
    holder: str
    token: str | None
    expires_at: int | None

    def refuses(self, token: str | None, now: int) -> Held | None:
        """Who has it, if not this token. Without a token anybody may write while no lease is running."""
        left = max(0, (self.expires_at or 0) - now)
        if token is not None:
            return None if self.token == token else Held(self.holder if self.token else "", left)
        return Held(self.holder, left) if self.token is not None and left else None


@runtime_checkable
class Graphs(Protocol):
    """Checkpoints of graphs, in threads."""

    async def hold_thread(
        self, tenant: Tenant, thread: str, *, token: str, holder: str, lease_ms: int, now: int | None = None
    ) -> Held | None:
        """Take the thread for a holder, unless another one's lease has not ended: None, or who has it."""
        ...

    async def keep_threads(
        self, tenant: Tenant, held: Mapping[str, str], *, lease_ms: int, now: int | None = None
    ) -> set[str]:
        """Extend the leases of threads by their tokens; those that are still held by them."""
        ...

    async def leave_thread(self, tenant: Tenant, thread: str, token: str) -> None:
        """Give it up, if it is still held by this token."""
        ...

    async def put_graph(
        self, tenant: Tenant, thread: str, batch: Batch, *, token: str | None, now: int | None = None
    ) -> str | Held:
        """Write the batch if the thread is held by this token, or, for None, by nobody: what it is known under then.

        Otherwise nothing is written, and who holds it is returned (with an empty name if it was given up). Raises
        Outdated.
        """
        ...

    async def graph_checkpoint(self, tenant: Tenant, thread: str, ns: str, id: str | None) -> Saved | None:
        """One checkpoint, or the last of a namespace."""
        ...

    async def graph_checkpoints(
        self, tenant: Tenant, thread: str | None, ns: str | None, *, before: str | None, after: CheckpointRow | None,
        limit: int,
    ) -> list[CheckpointRow]:  # fmt: skip
        """Those of a thread and namespace (None: of all), newest first by their ids: before an id, and behind one that
        was listed.
        """
        ...

    async def graph_pieces(self, tenant: Tenant, thread: str, digests: Sequence[str]) -> dict[str, Piece]:
        """Values by their digests; what is not there is left out."""
        ...

    async def graph_links(self, tenant: Tenant, thread: str, chain: str, length: int) -> list[str]:
        """The digests of the first `length` links of a chain, in order."""
        ...

    async def graph_runs(self, tenant: Tenant, runs: Sequence[str]) -> list[tuple[str, Place]]:
        """The checkpoints, with their threads, that runs of these ids have made."""
        ...

    async def copy_graph(self, tenant: Tenant, source: str, target: str) -> Held | None:
        """Copy all that a thread has to another one: None, or who holds that. Raises Refused for one that has
        checkpoints of its own.
        """
        ...

    async def sweep_graph(
        self, tenant: Tenant, thread: str, gone: Sequence[Place], *, while_held: bool = False
    ) -> Held | None:
        """In one commit: take these checkpoints away with their writes, and what no other one of the thread names.

        None, or who holds the thread; `while_held` does it all the same, which is good for what no holder builds on.
        """
        ...

    async def delete_graph(self, tenant: Tenant, thread: str) -> Held | None:
        """Take a thread away with all that it has: None, or who holds it, and would go on without its values."""
        ...
