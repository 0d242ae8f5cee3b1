"""`OutliveSaver`: LangGraph's checkpointer on our store, for graphs that are awaited and for those that are not.

All of it is done on an event loop in a thread of its own, so that leases are renewed while a node blocks its caller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from outlive.app.given import check_texts
from outlive.app.outlive import Outlive
from outlive.app.sync import Client
from outlive.langgraph.threads import At, Hold, Threads
from outlive.model.clock import SystemClock
from outlive.model.errors import BadArguments, Refused
from outlive.store.graphs import CheckpointRow

R = TypeVar("R")
Page = tuple[list[CheckpointTuple], CheckpointRow | None]

# In a config: who invokes. The second is what LangGraph itself has there while a graph runs, and at no other time.
HOLD, RUNNING = "__outlive_hold", "__pregel_runtime"
LEASE = timedelta(seconds=30)
AT_ONCE = timedelta(0)


class OutliveSaver(BaseCheckpointSaver[str]):
    """A checkpointer: `graph = one_writer(builder.compile(checkpointer=OutliveSaver("sqlite:///graphs.db")))`.

    `store` is a URL, or an application, whose store it opens a second time, at the first use; `close` ends that. Use
    it from any thread and from any event loop, not across a fork. `lease` is for how long a thread stays held when the
    process that holds it dies. With `any_writer` a graph is also run that is not wrapped in `one_writer`: two
    invocations of one thread at once then do what they do with other checkpointers.
    """

    def __init__(
        self, store: str | Outlive[Any], *, tenant: str = "default", serde: SerializerProtocol | None = None,
        lease: timedelta = LEASE, any_writer: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(serde=serde)
        self._client = Client(Outlive(store) if isinstance(store, str) else store)
        self._clock = SystemClock()
        self._threads = Threads(self._client, tenant, lease, self._clock)
        self._any_writer = any_writer

    def close(self) -> None:
        """End what the first use began. The next use begins it again; what is held ends with its lease."""
        self._threads.end()
        self._client.close()

    def __enter__(self) -> OutliveSaver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> OutliveSaver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    # ---- holding a thread

    def hold(self, thread_id: str, *, wait: timedelta = AT_ONCE) -> Hold:
        """Take a thread for this process. Raises ThreadHeld when somebody else has it after `wait` still."""
        return self._do(self._threads.hold(thread_id, wait))

    async def ahold(self, thread_id: str, *, wait: timedelta = AT_ONCE) -> Hold:
        """As `hold`."""
        return await self._ado(self._threads.hold(thread_id, wait))

    def leave(self, hold: Hold) -> None:
        """Give a thread up."""
        self._do(self._threads.leave(hold))

    async def aleave(self, hold: Hold) -> None:
        """As `leave`."""
        await asyncio.shield(self._ado(self._threads.leave(hold)))

    # ---- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint, or the last of a thread. Refused to a graph that runs without holding its thread."""
        return self._do(self._threads.get(self._asked(config), self.serde))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await self._ado(self._threads.get(self._asked(config), self.serde))

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:  # fmt: skip
        """Checkpoints, newest first, whose metadata has what `filter` has."""
        pages = _Pages(config, filter, before, limit)
        while pages.more:
            yield from pages.take(self._do(self._page(pages)))

    async def alist(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:  # fmt: skip
        """As `list`."""
        pages = _Pages(config, filter, before, limit)
        while pages.more:
            for one in pages.take(await self._ado(self._page(pages))):
                yield one

    def _page(self, pages: _Pages) -> Coroutine[Any, Any, Page]:
        return self._threads.page(
            pages.at, pages.every, pages.wanted, pages.before, pages.after, pages.left, self.serde
        )

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What channels are rebuilt from, along the parents of a checkpoint."""
        return self._do(self._threads.history(_at(config), channels, self.serde))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As `get_delta_channel_history`."""
        return await self._ado(self._threads.history(_at(config), channels, self.serde))

    # ---- writing

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """Store a checkpoint. Raises ThreadHeld, with nothing stored, when its thread is somebody else's."""
        return self._do(self._put(config, checkpoint, metadata, new_versions))

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """As `put`."""
        return await self._ado(self._put(config, checkpoint, metadata, new_versions))

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, new: ChannelVersions
    ) -> Coroutine[Any, Any, RunnableConfig]:
        described = get_checkpoint_metadata(config, metadata)
        return self._threads.put(_at(config), checkpoint, described, new, self.serde)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task has written. Raises ThreadHeld, with nothing stored, as `put` does."""
        self._do(self._threads.put_writes(_at(config), writes, task_id, task_path, self.serde))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `put_writes`."""
        await self._ado(self._threads.put_writes(_at(config), writes, task_id, task_path, self.serde))

    # ---- taking away, copying

    def delete_thread(self, thread_id: str) -> None:
        """Take a thread away with all that it has. Raises ThreadHeld while an invocation holds it."""
        self._do(self._threads.delete(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._ado(self._threads.delete(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Take away what these runs of graphs have stored. Raises ThreadHeld at one whose thread is held."""
        self._do(self._threads.delete_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await self._ado(self._threads.delete_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all that a thread has into one that has no checkpoints yet (else Refused) and that nobody holds."""
        self._do(self._threads.copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await self._ado(self._threads.copy(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest`: leave the last checkpoint of each namespace and what it is rebuilt from; `delete`: nothing."""
        self._do(self._prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await self._ado(self._prune(thread_ids, strategy))

    async def _prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete"):
            raise BadArguments(function="prune", why=f"there is no strategy {strategy!r}; say keep_latest or delete")
        for thread in thread_ids:
            if strategy == "delete":
                await self._threads.delete(thread)
            else:
                await self._threads.keep_latest(thread, self.serde)

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """Versions grow, and those of two branches differ."""
        number = int(str(current).split(".")[0]) if current is not None else 0
        return f"{number + 1:010}.{self._clock.token()[:8]}"

    # ---- of all

    def _asked(self, config: RunnableConfig) -> At:
        at, given = _at(config), config["configurable"]
        if RUNNING in given and not self._any_writer and (at.hold is None or at.hold.thread != at.thread):
            why = "two of them at once would do everything twice; wrap the graph: one_writer(graph)"
            raise Refused(what=f"an invocation of thread {at.thread} that does not hold it", why=why)
        return at

    def _do(self, work: Coroutine[Any, Any, R]) -> R:
        return self._client.submit(work).result()

    async def _ado(self, work: Coroutine[Any, Any, R]) -> R:
        return await asyncio.wrap_future(self._client.submit(work))


class _Pages:
    """Where a listing is."""

    def __init__(
        self, config: RunnableConfig | None, wanted: dict[str, Any] | None, before: RunnableConfig | None,
        limit: int | None,
    ) -> None:  # fmt: skip
        self.at = _at(config) if config is not None else None
        self.every = config is None or "checkpoint_ns" not in config["configurable"]
        self.wanted, self.left, self.more = wanted, limit, limit is None or limit > 0
        self.before = get_checkpoint_id(before) if before is not None else None
        self.after: CheckpointRow | None = None

    def take(self, page: Page) -> Iterator[CheckpointTuple]:
        """What is wanted of a page."""
        found, self.after = page
        yield from found[: self.left]
        if self.left is not None:
            self.left = max(0, self.left - len(found))
        self.more = self.after is not None and self.left != 0


def _at(config: RunnableConfig) -> At:
    given = config["configurable"]
    hold = given.get(HOLD)
    ns = given.get("checkpoint_ns") or ""
    at = At(str(given["thread_id"]), ns, get_checkpoint_id(config), hold if isinstance(hold, Hold) else None)
    check_texts("a checkpointer", [("thread", at.thread), ("namespace", at.ns), ("checkpoint", at.id or "")])
    return at
