"""Runs that a graph of LangGraph makes of its tool calls: with a checkpointer, and an approval amid it.

The graph has an event loop and a clock of its own, as where it is used; a worker of the application serves it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage
from langgraph.types import Command

from outlive import Outlive
from outlive.app.approvals import Approvals
from outlive.langgraph import OutliveSaver, ToolNode
from outlive.model.ids import DEFAULT_TENANT
from outlive.model.run import RunFilter
from tests.corpus import agents
from tests.corpus.deck import World, file_of
from tests.langgraph import shop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.corpus.scenes import Stage

CONFIG: Any = {"configurable": {"thread_id": "t"}}
ASKED = shop.asks(
    ("bill", {"customer": "anna", "line": {"article": "book"}}), ("count_orders", {"customer": "bert"}),
    ("bill", {"customer": "poor", "line": {"article": "pen"}}), ("pay_out", {"customer": "carl"}),
)  # fmt: skip
NAMES = ("graph_bills", "graph_counts", "graph_is_declined", "graph_pays")


async def invoke(stage: Stage) -> None:
    """Let the graph call its tools, approve the last of them, and take the runs of all."""

    @asynccontextmanager
    async def deps() -> AsyncIterator[World]:
        yield stage.world

    place = stage.deck.place
    app: Outlive[World] = Outlive(f"sqlite:///{file_of(place)}" if isinstance(place, Path) else place, deps=deps)
    app.registry = agents.app.registry
    saver, node = OutliveSaver(app), ToolNode(agents.OF_GRAPHS, app=app)
    graph = shop.graph(saver, node, ASKED)
    try:
        async with app, app.worker():
            state = await graph.ainvoke({"messages": [HumanMessage("hello", id="h")]}, CONFIG)
            assert "__interrupt__" in state, state
            await stage.take("live/graph_waits_for_approval", run=await _run_of(stage, "call_3"))
            approvals = Approvals(lambda: app.opened, app._clock, app.registry, None)
            [one] = await approvals.list()
            await approvals.approve(one.id, who="ada", role="boss", why="it is owed")
            await graph.ainvoke(Command(resume="decided"), CONFIG)
    finally:
        node.close()
        saver.close()
    for number, name in enumerate(NAMES):
        await stage.take(name, run=await _run_of(stage, f"call_{number}"))


async def _run_of(stage: Stage, call: str) -> str:
    [row] = await stage.deck.store.runs(DEFAULT_TENANT, RunFilter(labels={"tool_call": call}, limit=9))
    return row.id
