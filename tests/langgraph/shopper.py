"""A process with a worker that invokes a graph of several tool calls: `python -m tests.langgraph.shopper URL`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from typing import Any

from langchain_core.messages import HumanMessage

from outlive.langgraph import OutliveSaver, ToolNode
from tests.langgraph import shop

CONFIG: Any = {"configurable": {"thread_id": "t"}}
CALLS = shop.asks(
    ("charge", {"customer": "anna", "line": {"article": "book"}}), ("ship", {"customer": "anna"}),
    ("charge", {"customer": "bert", "line": {"article": "pen"}}),
)  # fmt: skip


async def main(url: str) -> None:
    app = shop.application(url)
    tools: Any = list(app.registry.tools.values())
    graph = shop.graph(OutliveSaver(app, lease=timedelta(seconds=2)), ToolNode(tools, app=app), CALLS)
    async with app, app.worker():
        await graph.ainvoke({"messages": [HumanMessage("hello", id="h")]}, CONFIG)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
