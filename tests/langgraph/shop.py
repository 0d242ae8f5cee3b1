"""An application with tools, and a graph that calls them: what the tools have done is in a file, a line each."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import tools_condition
from pydantic import BaseModel

from outlive import Operation, Outlive
from outlive.approvals import Approval
from outlive.langgraph import OutliveSaver, ToolNode, one_writer
from tests.langgraph.waiting import until

LEDGER = "OUTLIVE_TEST_LEDGER"


class CardDeclined(Exception):
    """The customer has no money."""


class Line(BaseModel):
    """What is charged for."""

    article: str
    cents: int = 100


def wrote(what: str) -> None:
    with Path(os.environ[LEDGER]).open("a") as ledger:
        ledger.write(f"{what}\n")


def done() -> str:
    """What was done."""
    return Path(os.environ[LEDGER]).read_text()


def application(url: str) -> Outlive[None]:
    """Tools and all."""
    app: Outlive[None] = Outlive(url)
    app.tool(effect="idempotent", raises=(CardDeclined,))(charge)
    app.tool(effect="read")(look_up)
    app.tool(approval=Approval(role="boss"))(pay_out)
    app.tool()(ship)
    return app


async def charge(op: Operation, customer: str, line: Line) -> str:
    """Charge a customer."""
    op.guard()
    if customer == "poor":
        raise CardDeclined("no money")
    wrote(f"charge {customer} {line.article} {line.cents}")
    return f"charged {customer}"


async def look_up(op: Operation, customer: str) -> dict[str, int]:
    """Look a customer up."""
    return {"orders": len(customer)}


async def pay_out(op: Operation, customer: str) -> str:
    """Pay a customer."""
    op.guard()
    wrote(f"pay {customer}")
    return "paid"


async def ship(op: Operation, customer: str) -> str:
    """Ship to a customer, which takes until there is a file that says so; nobody can be asked whether it happened."""
    op.guard()
    wrote(f"ship {customer}")
    await asyncio.to_thread(until, Path(f"{os.environ[LEDGER]}-shipped").exists, "it is shipped")
    return "shipped"


class Chat(TypedDict):
    """What was said."""

    messages: Annotated[list[BaseMessage], add_messages]


def asks(*calls: tuple[str, dict[str, object]], message: str = "m1") -> AIMessage:
    """What a model would say that wants these tools called."""
    each: Any = [{"name": name, "args": args, "id": f"call_{number}"} for number, (name, args) in enumerate(calls)]
    return AIMessage("", tool_calls=each, id=message)


def graph(saver: OutliveSaver, node: ToolNode, says: AIMessage) -> Any:
    def model(state: Chat) -> dict[str, list[BaseMessage]]:
        answered = not isinstance(state["messages"][-1], HumanMessage)
        return {"messages": [AIMessage("done", id="end") if answered else says]}

    built = StateGraph(Chat)
    built.add_node("model", model)
    built.add_node("tools", node)
    built.add_edge(START, "model")
    built.add_conditional_edges("model", tools_condition)
    built.add_edge("tools", "model")
    return one_writer(built.compile(checkpointer=saver))
