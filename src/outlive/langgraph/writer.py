"""`one_writer`: a compiled graph that holds its thread while it runs, and goes on only where it can.

What it decides from is public: the checkpoint, what is pending on it, and the tasks that the graph makes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import INTERRUPT, TASKS
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, PregelTask, Send, StateSnapshot

from outlive.langgraph.saver import AT_ONCE, HOLD, OutliveSaver
from outlive.langgraph.threads import Hold
from outlive.model.errors import GraphChanged, Refused

AnyPregel = Pregel[Any, Any, Any, Any]
G = TypeVar("G", bound=AnyPregel)

# Channels that lead to a node, as LangGraph names them: one way, and several that are waited for.
_BRANCH, _JOIN = "branch:to:", "join:"


def one_writer(graph: G, *, wait: timedelta = AT_ONCE) -> G:
    """The same graph, each of whose invocations holds its thread.

    Say `graph = one_writer(builder.compile(checkpointer=OutliveSaver(…)))`. While an invocation runs, a second one of
    the same thread, in this process or another, raises ThreadHeld, after `wait` at most; when the process dies that has
    it, the thread is free as soon as the saver's lease has ended. To resume raises GraphChanged where the thread waits
    in a node that the graph does not have any more, and Refused when no interrupt waits for the answer, or when another
    one does than when the answer was given. Refused for a graph without an `OutliveSaver`.
    """
    if not isinstance(graph.checkpointer, OutliveSaver):
        raise Refused(what="a graph without an OutliveSaver", why="compile it with checkpointer=OutliveSaver(…)")
    # One that is wrapped already waits as is said now.
    plain: type[Any] = type(graph)
    if issubclass(plain, _OneWriter):
        plain = plain.__bases__[1]
    kind: type[Any] = type(f"OneWriter{plain.__name__}", (_OneWriter, plain), {"wait": wait})
    held: G = object.__new__(kind)
    held.__dict__.update(graph.__dict__)
    return held


class _OneWriter:
    """All ways to invoke a graph go through `stream` and `astream`: with the thread held."""

    wait = AT_ONCE

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:
        saver, thread, given = self._place(config)
        above: Any = super()
        if thread is None:
            yield from above.stream(input, config, **options)
            return
        before = _stand(saver.get_tuple(given)) if _resumes(input) else None
        hold = saver.hold(thread, wait=self.wait)
        try:
            self._check(saver, thread, given, input, before)
            yield from above.stream(input, _with(config, hold), **options)
        finally:
            saver.leave(hold)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:
        saver, thread, given = self._place(config)
        above: Any = super()
        if thread is None:
            async for one in above.astream(input, config, **options):
                yield one
            return
        before = _stand(await saver.aget_tuple(given)) if _resumes(input) else None
        hold = await saver.ahold(thread, wait=self.wait)
        try:
            await asyncio.to_thread(self._check, saver, thread, given, input, before)
            async for one in above.astream(input, _with(config, hold), **options):
                yield one
        finally:
            await saver.aleave(hold)

    def _place(self, config: RunnableConfig | None) -> tuple[OutliveSaver, str | None, RunnableConfig]:
        """The saver, the thread that is to be taken (None: it is held already, or there is none), and where it is."""
        graph = cast(AnyPregel, self)
        given = merge_configs(graph.config, ensure_config(config))["configurable"]
        thread, hold = given.get("thread_id"), given.get(HOLD)
        taken = isinstance(hold, Hold) and hold.thread == str(thread)
        here: dict[str, Any] = {"thread_id": str(thread), "checkpoint_ns": ""}
        if given.get("checkpoint_id"):
            here["checkpoint_id"] = given["checkpoint_id"]
        wanted = None if thread is None or taken else str(thread)
        return cast(OutliveSaver, graph.checkpointer), wanted, {"configurable": here}

    def _check(
        self, saver: OutliveSaver, thread: str, given: RunnableConfig, input: Any, before: object
    ) -> None:  # fmt: skip
        """Whether the thread can go on with this. With a new input it begins anew, whatever was pending."""
        if input is not None and not isinstance(input, Command):
            return
        saved = saver.get_tuple(given)
        if saved is None:
            return
        if _resumes(input):
            if not _waiting(saved):
                why = "no interrupt waits for one; to go on after a crash, invoke with None"
                raise Refused(what=f"an answer in thread {thread}", why=why)
            if _stand(saved) != before:
                why = "the thread has gone on since it was given: what waits now is something else"
                raise Refused(what=f"an answer in thread {thread}", why=why)
        graph = cast(AnyPregel, self)
        state = graph.get_state(given, subgraphs=True)
        if gone := sorted(_gone(graph, saver, saved, state)):
            raise GraphChanged(thread=thread, nodes=tuple(gone))


def _resumes(input: Any) -> bool:
    return isinstance(input, Command) and input.resume is not None


def _with(config: RunnableConfig | None, hold: Hold) -> RunnableConfig:
    return merge_configs(ensure_config(config), {"configurable": {HOLD: hold}})


def _stand(saved: CheckpointTuple | None) -> object:
    """Where a thread stands, for whoever answers what it asks."""
    return None if saved is None else (saved.checkpoint["id"], _waiting(saved))


def _waiting(saved: CheckpointTuple) -> frozenset[str]:
    """The ids of the interrupts of a checkpoint that were not answered by an end of their task."""
    found: set[str] = set()
    for _, channel, value in saved.pending_writes or ():
        if channel == INTERRUPT:
            each = value if isinstance(value, Sequence) else [value]
            found |= {one.id for one in each if isinstance(one, Interrupt)}
    return frozenset(found)


def _gone(
    graph: AnyPregel, saver: OutliveSaver, saved: CheckpointTuple, state: StateSnapshot
) -> set[str]:  # fmt: skip
    """Nodes that the thread goes on in and that the graph does not have, those of its subgraphs too."""
    values = saved.checkpoint["channel_values"]
    found = {name.removeprefix(_BRANCH) for name in values if name.startswith(_BRANCH)} - graph.nodes.keys()
    for name, value in values.items():
        # One that has been passed is empty.
        if name.startswith(_JOIN) and name not in graph.channels and value:
            found.add(name.rsplit(":", 1)[1])
    found |= {one.node for one in values.get(TASKS) or () if isinstance(one, Send)} - graph.nodes.keys()
    tasks = {task.id: task for task in state.tasks}
    asked = {task for task, channel, _ in saved.pending_writes or () if channel == INTERRUPT}
    if not found and asked - tasks.keys():
        found.add(f"another node than {', '.join(sorted(graph.nodes.keys() - {'__start__'}))}")
    return found.union(*(_gone_inside(graph, saver, task) for task in tasks.values()))


def _gone_inside(graph: AnyPregel, saver: OutliveSaver, task: PregelTask) -> set[str]:
    if not isinstance(task.state, StateSnapshot):
        return set()
    below = dict(graph.get_subgraphs()).get(task.name)
    saved = saver.get_tuple(task.state.config)
    if not isinstance(below, Pregel) or saved is None:
        return set()
    return {f"{task.name}/{name}" for name in _gone(below, saver, saved, task.state)}
