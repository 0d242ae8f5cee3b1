"""What the saver does on its own event loop: checkpoints to and from the store, and who holds a thread.

A thread is written by one holder at a time. A write names the token of its hold and is refused when the thread is
another's by now; a write without a hold (an update from outside) only happens while nobody holds the thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakValueDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from outlive.app.given import check_texts
from outlive.app.sync import Client
from outlive.langgraph.pieces import Head, Heads, Shaper, chains_in, joined
from outlive.model.clock import Clock
from outlive.model.errors import GraphIncomplete, Refused, StoreError, StoreUnavailable, ThreadHeld
from outlive.model.ids import Tenant
from outlive.store.graphs import (
    CheckpointRow,
    Graphs,
    Held,
    Outdated,
    Piece,
    Place,
    Saved,
    ValueRow,
    WriteRow,
    named,
)

log = logging.getLogger("outlive.langgraph")

_PAGE = 50
_MOST_KNOWN = 256
_LEAST_WAIT, _MOST_WAIT = 0.05, 1.0


@dataclass(slots=True, weakref_slot=True)
class Hold:
    """The right to write to a thread, until it is given up or lost."""

    thread: str
    token: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class At:
    """Where in a thread: a namespace, and a checkpoint of it (None: the last one). `hold` is the caller's."""

    thread: str
    ns: str
    id: str | None
    hold: Hold | None = None

    @property
    def token(self) -> str | None:
        return self.hold.token if self.hold is not None and self.hold.thread == self.thread else None

    def config(self, id: str | None) -> RunnableConfig:
        """As LangGraph names a checkpoint."""
        return {"configurable": {"thread_id": self.thread, "checkpoint_ns": self.ns, "checkpoint_id": id}}


class Threads:
    """Threads of one tenant. All methods but the constructor run on the client's event loop."""

    def __init__(self, client: Client, tenant: str, lease: timedelta, clock: Clock) -> None:
        self._client, self._tenant, self._clock = client, Tenant(tenant), clock
        self._lease = lease
        self._heads: OrderedDict[str, Heads] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._held: dict[str, Hold] = {}
        self._renewing: Future[None] | None = None
        self._me = f"{socket.gethostname()}:{os.getpid()}"

    # ---- holding

    async def hold(self, thread: str, wait: timedelta) -> Hold:
        """Take the thread. Raises ThreadHeld when somebody else has it after `wait` still."""
        check_texts("hold", [("thread", thread)])
        store, hold = self._store(), Hold(thread, self._clock.token())
        until, pause = self._clock.boottime() + wait.total_seconds(), _LEAST_WAIT
        while (held := await self._take(store, hold)) is not None:
            left = until - self._clock.boottime()
            if left <= 0:
                raise _held(thread, held)
            await self._clock.sleep(min(pause, left, held.for_ms / 1000 + 0.01))
            pause = min(2 * pause, _MOST_WAIT)
        self._held[thread] = hold
        if self._renewing is None or self._renewing.done():
            self._renewing = self._client.submit(self._renew())
        return hold

    async def _take(self, store: Graphs, hold: Hold) -> Held | None:
        return await store.hold_thread(
            self._tenant, hold.thread, token=hold.token, holder=self._me, lease_ms=self._lease_ms(),
            now=self._clock.now(),
        )  # fmt: skip

    async def leave(self, hold: Hold) -> None:
        """Give it up. One that cannot be given up ends with its lease: what was done is done all the same."""
        if self._held.get(hold.thread) is hold:
            del self._held[hold.thread]
        try:
            await self._store().leave_thread(self._tenant, hold.thread, hold.token)
        except StoreError as error:
            log.warning("thread %s stays held until its lease ends: %s", hold.thread, error)

    def end(self) -> None:
        """Stop renewing; what is held ends with its lease."""
        if self._renewing is not None:
            self._renewing.cancel()

    async def _renew(self) -> None:
        while self._held:
            await self._clock.sleep(self._lease.total_seconds() / 3)
            asked = dict(self._held)
            try:
                kept = await self._store().keep_threads(
                    self._tenant, {thread: hold.token for thread, hold in asked.items()}, lease_ms=self._lease_ms(),
                    now=self._clock.now(),
                )  # fmt: skip
            except StoreError:
                continue
            for thread in asked.keys() - kept:
                if self._held.get(thread) is asked[thread]:
                    self._held.pop(thread).lost = True

    # ---- writing

    async def put(
        self, at: At, checkpoint: Checkpoint, metadata: CheckpointMetadata, new: ChannelVersions,
        serde: SerializerProtocol,
    ) -> RunnableConfig:  # fmt: skip
        """Write a checkpoint on top of `at.id`, with the values of the channels that are new."""
        body: dict[str, Any] = {
            key: value
            for key, value in checkpoint.items()
            if key not in ("id", "channel_values", "channel_versions")
        }  # fmt: skip
        kind, bare = serde.dumps_typed(body)
        metadata_kind, described = serde.dumps_typed(metadata)
        run = metadata.get("run_id")
        row = CheckpointRow(
            at.thread, at.ns, checkpoint["id"], at.id, json.dumps(checkpoint["channel_versions"]), kind, bytes(bare),
            metadata_kind, bytes(described), str(run) if run else None,
        )  # fmt: skip

        def fill(shaper: Shaper) -> None:
            shaper.batch.checkpoint = row
            for channel, version in new.items():
                if channel in checkpoint["channel_values"]:
                    shape = shaper.shape(checkpoint["channel_values"][channel], f"{at.ns}\n{channel}")
                    shaper.batch.values.append(ValueRow(at.ns, channel, str(version), shape))

        await self._write(at, fill, serde)
        return at.config(checkpoint["id"])

    async def put_writes(
        self, at: At, writes: Sequence[tuple[str, Any]], task: str, path: str, serde: SerializerProtocol
    ) -> None:
        """Write what a task has written on top of a checkpoint. What stands there stays, but for special channels."""

        def fill(shaper: Shaper) -> None:
            shaper.batch.replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
            for number, (channel, value) in enumerate(writes):
                place = WRITES_IDX_MAP.get(channel, number)
                shape = shaper.shape(value, f"{at.ns}\n{channel}")
                shaper.batch.writes.append(WriteRow(at.ns, at.id or "", task, place, channel, path, shape))

        await self._write(at, fill, serde)

    async def _write(self, at: At, fill: Callable[[Shaper], None], serde: SerializerProtocol) -> None:
        """Make a batch and write it; anew, from nothing known, when what it builds on has changed."""
        store = self._store()
        key = await self._client.app.opened.key(self._tenant)
        turn = self._turns.setdefault(at.thread, asyncio.Lock())
        async with turn:
            for _ in range(3):
                shaper = Shaper(serde, key, self._heads.get(at.thread), self._clock.token)
                fill(shaper)
                try:
                    known = await store.put_graph(
                        self._tenant, at.thread, shaper.batch, token=at.token, now=self._clock.now()
                    )
                except Outdated:
                    self._heads.pop(at.thread, None)
                    continue
                if isinstance(known, Held):
                    if at.hold is not None and at.token is not None:
                        at.hold.lost = True
                    raise _held(at.thread, known)
                self._learn(at.thread, known, shaper)
                return
        why = f"thread {at.thread} was pruned again and again while it was written to"
        raise StoreUnavailable(store=self._client.app.opened.name, why=why)

    def _learn(self, thread: str, known: str, shaper: Shaper) -> None:
        heads = self._known_as(thread, known)
        for path, head in shaper.grown:
            heads.add(path, head)

    def _known_as(self, thread: str, known: str) -> Heads:
        heads = self._heads.get(thread)
        if heads is None or heads.known != known:
            heads = self._heads[thread] = Heads(known)
        self._heads.move_to_end(thread)
        while len(self._heads) > _MOST_KNOWN:
            self._heads.popitem(last=False)
        return heads

    # ---- reading

    async def get(self, at: At, serde: SerializerProtocol) -> CheckpointTuple | None:
        """A checkpoint with its values and what was written on top of it."""
        store = self._store()
        # What is pruned between two reads is looked for once more: it may be another checkpoint that is the last now.
        for again in (True, False):
            saved = await store.graph_checkpoint(self._tenant, at.thread, at.ns, at.id)
            if saved is None:
                return None
            try:
                return await self._tuple(store, saved, serde)
            except KeyError as error:
                if not again:
                    raise GraphIncomplete(thread=at.thread, checkpoint=saved.row.id, what=str(error)) from error
        return None

    async def _tuple(
        self, store: Graphs, saved: Saved, serde: SerializerProtocol, cached: dict[str, Piece] | None = None
    ) -> CheckpointTuple:
        row = saved.row
        read = await self._load(
            store, row.thread, [*saved.values.values(), *(one.shape for one in saved.writes)], cached
        )
        for channel, shape in saved.values.items():
            self._seen(row, channel, shape, saved.known, read[1])
        checkpoint = serde.loads_typed((row.kind, row.body))
        checkpoint["id"] = row.id
        checkpoint["channel_versions"] = json.loads(row.versions)
        checkpoint["channel_values"] = {
            channel: joined(shape, serde, *read) for channel, shape in saved.values.items()
        }  # fmt: skip
        at = At(row.thread, row.ns, row.id)
        return CheckpointTuple(
            config=at.config(row.id),
            checkpoint=checkpoint,
            metadata=serde.loads_typed((row.metadata_kind, row.metadata)),
            parent_config=at.config(row.parent) if row.parent else None,
            pending_writes=[(one.task, one.channel, joined(one.shape, serde, *read)) for one in saved.writes],
        )

    def _seen(
        self, row: CheckpointRow, channel: str, shape: str, known: str, links: Mapping[tuple[str, int], list[str]]
    ) -> None:
        """Lists of the value are what later ones can go on from: those that end where their chains end."""
        for path, chain, length in chains_in(shape, f"{row.ns}\n{channel}"):
            heads = self._known_as(row.thread, known)
            if all(head.chain != chain for head in heads.by_path.get(path, [])):
                heads.add(path, Head(chain, links[chain, length]))

    async def _load(
        self, store: Graphs, thread: str, shapes: Sequence[str], cached: dict[str, Piece] | None
    ) -> tuple[dict[str, Piece], dict[tuple[str, int], list[str]]]:
        """What shapes name. What is not there is left out."""
        wanted = [one for shape in shapes for one in named(shape)]
        links = {}
        for chain, length in {(name, length) for sort, name, length in wanted if sort == "c"}:
            found = await store.graph_links(self._tenant, thread, chain, length)
            if len(found) == length:
                links[chain, length] = found
        pieces = {} if cached is None else cached
        digests = {name for sort, name, _ in wanted if sort == "p"}.union(*links.values()) - pieces.keys()
        if digests:
            pieces.update(await store.graph_pieces(self._tenant, thread, sorted(digests)))
        return pieces, links

    async def page(
        self, at: At | None, every: bool, wanted: Mapping[str, Any] | None, before: str | None,
        after: CheckpointRow | None, most: int | None, serde: SerializerProtocol,
    ) -> tuple[list[CheckpointTuple], CheckpointRow | None]:  # fmt: skip
        """The next checkpoints whose metadata has what is wanted, and where to go on (None: that was all).

        With `every` those of all namespaces; without `at` those of all threads.
        """
        store = self._store()
        if at is not None and at.id is not None:
            one = await self.get(at, serde)
            return ([one] if one is not None and _matches(one.metadata, wanted) else []), None
        limit = _PAGE if most is None or wanted else min(most, _PAGE)
        thread = at.thread if at is not None else None
        ns = at.ns if at is not None and not every else None
        rows = await store.graph_checkpoints(self._tenant, thread, ns, before=before, after=after, limit=limit)
        found, cached = [], dict[str, Piece]()
        for row in rows:
            if not _matches(serde.loads_typed((row.metadata_kind, row.metadata)), wanted):
                continue
            saved = await store.graph_checkpoint(self._tenant, row.thread, row.ns, row.id)
            if saved is not None:
                found.append(await self._tuple(store, saved, serde, cached if thread is not None else None))
        return found, rows[-1] if len(rows) == limit else None

    async def history(
        self, at: At, channels: Sequence[str], serde: SerializerProtocol
    ) -> dict[str, DeltaChannelHistory]:  # fmt: skip
        """For each channel what was written on the way to a checkpoint, from where its value was last stored."""
        store = self._store()
        writes: dict[str, list[WriteRow]] = {channel: [] for channel in channels}
        seeds: dict[str, str] = {}
        here = await store.graph_checkpoint(self._tenant, at.thread, at.ns, at.id) if channels else None
        while here is not None and here.row.parent and len(seeds) < len(writes):
            here = await store.graph_checkpoint(self._tenant, at.thread, at.ns, here.row.parent)
            if here is None:
                break
            for one in reversed(here.writes):
                if one.channel in writes and one.channel not in seeds:
                    writes[one.channel].append(one)
            seeds.update({name: here.values[name] for name in writes.keys() - seeds.keys() if name in here.values})
        shapes = [one.shape for rows in writes.values() for one in rows]
        read = await self._load(store, at.thread, [*shapes, *seeds.values()], None)
        found: dict[str, DeltaChannelHistory] = {}
        for channel, rows in writes.items():
            found[channel] = {
                "writes": [(one.task, one.channel, joined(one.shape, serde, *read)) for one in reversed(rows)]
            }  # fmt: skip
            if channel in seeds:
                found[channel]["seed"] = joined(seeds[channel], serde, *read)
        return found

    # ---- taking away

    async def delete(self, thread: str) -> None:
        check_texts("delete_thread", [("thread", thread)])
        self._heads.pop(thread, None)
        _unless(thread, await self._store().delete_graph(self._tenant, thread))

    async def copy(self, source: str, target: str) -> None:
        check_texts("copy_thread", [("thread", source), ("thread", target)])
        _unless(target, await self._store().copy_graph(self._tenant, source, target))

    async def delete_runs(self, runs: Sequence[str]) -> None:
        """What these runs of the graph have made. Raises nothing for one that is not known."""
        check_texts("delete_for_runs", [("run", run) for run in runs])
        store = self._store()
        by_thread: dict[str, list[Place]] = {}
        for thread, place in await store.graph_runs(self._tenant, runs):
            by_thread.setdefault(thread, []).append(place)
        for thread, places in by_thread.items():
            self._heads.pop(thread, None)
            _unless(thread, await store.sweep_graph(self._tenant, thread, places))

    async def keep_latest(self, thread: str, serde: SerializerProtocol) -> None:
        """Leave the last checkpoint of each namespace, and those that its delta channels are rebuilt from."""
        check_texts("prune", [("thread", thread)])
        store, rows, after = self._store(), list[CheckpointRow](), None
        while page := await store.graph_checkpoints(
            self._tenant, thread, None, before=None, after=after, limit=_PAGE
        ):  # fmt: skip
            rows += page
            after = page[-1]
        kept: set[Place] = set()
        for ns in {row.ns for row in rows}:
            last = next(row for row in rows if row.ns == ns)
            kept |= await self._rebuilt_from(store, last, serde)
        gone = [place for row in rows if (place := Place(row.ns, row.id)) not in kept]
        self._heads.pop(thread, None)
        # Whoever holds the thread builds on the last ones, which stay.
        await store.sweep_graph(self._tenant, thread, gone, while_held=True)

    async def _rebuilt_from(self, store: Graphs, last: CheckpointRow, serde: SerializerProtocol) -> set[Place]:
        metadata = serde.loads_typed((last.metadata_kind, last.metadata))
        missing = set(metadata.get("counters_since_delta_snapshot") or ())
        kept, id = set[Place](), str(last.id)
        while (saved := await store.graph_checkpoint(self._tenant, last.thread, last.ns, id)) is not None:
            kept.add(Place(last.ns, id))
            missing -= saved.values.keys()
            if not missing or not saved.row.parent:
                break
            id = saved.row.parent
        return kept

    # ---- of all

    def _store(self) -> Graphs:
        store = self._client.app.opened
        if not isinstance(store, Graphs):
            raise Refused(what="a saver of graphs on this store", why="it keeps no graphs")
        return store

    def _lease_ms(self) -> int:
        return int(self._lease.total_seconds() * 1000)


def _matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    return all(metadata.get(key) == value for key, value in (wanted or {}).items())


def _held(thread: str, held: Held) -> ThreadHeld:
    return ThreadHeld(thread=thread, holder=held.holder, seconds=held.for_ms / 1000)


def _unless(thread: str, held: Held | None) -> None:
    """Raises ThreadHeld when somebody has it: nothing was done."""
    if held is not None:
        raise _held(thread, held)
