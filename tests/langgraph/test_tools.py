"""Tool calls of a graph are operations: recorded before they are sent, known again, and never repeated blindly."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from outlive import Outlive
from outlive.errors import Refused, RunExists
from outlive.langgraph import OutliveSaver, ToolNode, one_writer
from tests.langgraph import shop

CONFIG: Any = {"configurable": {"thread_id": "t"}}
HELLO = {"messages": [HumanMessage("hello", id="h")]}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/graphs.db" if request.param == "sqlite" else request.getfixturevalue("postgres")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shop.LEDGER, str(tmp_path / "ledger"))
    (tmp_path / "ledger").touch()


@pytest.fixture
async def served(url: str, ledger: None) -> AsyncIterator[tuple[Outlive[None], OutliveSaver, ToolNode]]:
    app = shop.application(url)
    tools: Any = list(app.registry.tools.values())
    node = ToolNode(tools, app=app)
    saver = OutliveSaver(app)
    async with app, app.worker():
        yield app, saver, node
    node.close()
    saver.close()


def answers(state: dict[str, Any]) -> list[tuple[str, object]]:
    return [(one.status, one.content) for one in state["messages"] if isinstance(one, ToolMessage)]


LINE = {"article": "book"}


async def test_calls_are_recorded_and_answered(served: Any, ledger: None) -> None:
    app, saver, node = served
    says = shop.asks(("charge", {"customer": "anna", "line": LINE}), ("look_up", {"customer": "bert"}))
    state = await shop.graph(saver, node, says).ainvoke(HELLO, CONFIG)
    assert answers(state) == [("success", "charged anna"), ("success", '{"orders":4}')]
    assert shop.done() == "charge anna book 100\n"


async def test_what_is_recorded_is_not_done_again(served: Any, ledger: None) -> None:
    _, saver, node = served
    graph = shop.graph(saver, node, shop.asks(("charge", {"customer": "anna", "line": LINE})))
    await graph.ainvoke(HELLO, CONFIG)
    before = [one async for one in graph.aget_state_history(CONFIG) if one.next == ("tools",)][0]
    state = await graph.ainvoke(None, before.config)
    assert answers(state) == [("success", "charged anna")]
    assert shop.done() == "charge anna book 100\n"


async def test_another_message_with_the_same_call_id_is_another_call(served: Any, ledger: None) -> None:
    _, saver, node = served
    for message in ("m1", "m2"):
        says = shop.asks(("charge", {"customer": "anna", "line": LINE}), message=message)
        await shop.graph(saver, node, says).ainvoke({"messages": [HumanMessage("again", id=f"h{message}")]}, CONFIG)
    assert shop.done() == "charge anna book 100\n" * 2


async def test_the_same_call_with_other_arguments_is_an_error(served: Any, ledger: None) -> None:
    _, saver, node = served
    asked: Any = ("charge", {"customer": "anna", "line": LINE})
    await shop.graph(saver, node, shop.asks(asked)).ainvoke(HELLO, CONFIG)
    await saver.adelete_thread("t")
    other: Any = ("charge", {"customer": "bert", "line": LINE})
    with pytest.raises(RunExists):
        await shop.graph(saver, node, shop.asks(other)).ainvoke(HELLO, CONFIG)
    assert shop.done() == "charge anna book 100\n"


class Numbered(TypedDict):
    """Messages without ids, as a reducer leaves them that gives none."""

    messages: Annotated[list[AnyMessage], operator.add]


def saying(asked: AIMessage, saver: OutliveSaver, node: ToolNode) -> Any:
    """A graph whose model says this."""

    def model(state: Numbered) -> dict[str, list[AIMessage]]:
        return {"messages": [asked]}

    builder = StateGraph(Numbered)
    builder.add_node("model", model)
    builder.add_node("tools", node)
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return one_writer(builder.compile(checkpointer=saver))


@pytest.mark.parametrize("message, call", [(None, "c0"), ("m1", None), ("m1", "")])
async def test_a_call_that_could_not_be_told_from_a_later_one_is_refused(
    served: Any, ledger: None, message: str | None, call: str | None
) -> None:
    """A model that numbers its calls anew in each message asks for something else each time."""
    _, saver, node = served
    asked = AIMessage("", id=message, tool_calls=[{"name": "look_up", "args": {"customer": "anna"}, "id": call}])
    graph = saying(asked, saver, node)
    with pytest.raises(Refused, match="has no id" if message is None else "no thread or no id"):
        await graph.ainvoke(HELLO, CONFIG)


@pytest.mark.parametrize("odd", ["\0", "\ud800"])
async def test_arguments_that_cannot_be_stored_are_told_to_the_model(served: Any, ledger: None, odd: str) -> None:
    _, saver, node = served
    says = shop.asks(("look_up", {"customer": f"an{odd}na"}), ("look_up", {"customer": "anna"}))
    state = await shop.graph(saver, node, says).ainvoke(HELLO, CONFIG)
    misfit, found = answers(state)
    assert misfit[0] == "error" and "cannot be stored" in str(misfit[1])
    assert found == ("success", '{"orders":4}')


@pytest.mark.parametrize("odd", ["\0", "\ud800", "\n\x1f/é", "x" * 5000])
async def test_the_id_of_a_call_may_be_anything(served: Any, ledger: None, odd: str) -> None:
    _, saver, node = served
    asked = AIMessage("", id="m", tool_calls=[{"name": "look_up", "args": {"customer": "anna"}, "id": f"c{odd}"}])
    state = await saying(asked, saver, node).ainvoke(HELLO, CONFIG)
    assert answers(state) == [("success", '{"orders":4}')]


async def test_a_known_failure_is_told_to_the_model(served: Any, ledger: None) -> None:
    _, saver, node = served
    says = shop.asks(("charge", {"customer": "poor", "line": LINE}), ("charge", {"customer": 7}), ("fly", {}))
    state = await shop.graph(saver, node, says).ainvoke(HELLO, CONFIG)
    declined, misfit, unknown = answers(state)
    assert declined == ("error", "CardDeclined: no money")
    assert misfit[0] == "error" and "line" in str(misfit[1])
    assert unknown[0] == "error" and "fly is not a valid tool" in str(unknown[1])


async def test_what_waits_for_a_person_interrupts_the_graph(served: Any, ledger: None) -> None:
    app, saver, node = served
    graph = shop.graph(saver, node, shop.asks(("pay_out", {"customer": "anna"})))
    [asked] = (await graph.ainvoke(HELLO, CONFIG))["__interrupt__"]
    assert asked.value["tool"] == "pay_out" and asked.value["status"] == "waiting"
    [again] = (await graph.ainvoke(Command(resume="?"), CONFIG))["__interrupt__"]
    assert again.value["run"] == asked.value["run"] and shop.done() == ""
    [approval] = await app.approvals.list()
    await app.approvals.approve(approval.id, who="maria", role="boss")
    state = await graph.ainvoke(Command(resume="?"), CONFIG)
    assert answers(state) == [("success", "paid")] and shop.done() == "pay anna\n"


async def test_a_graph_that_is_not_awaited_is_served_too(served: Any, ledger: None) -> None:
    _, saver, node = served
    graph = shop.graph(saver, node, shop.asks(("charge", {"customer": "anna", "line": LINE})))
    state = await asyncio.to_thread(graph.invoke, HELLO, CONFIG)
    assert answers(state) == [("success", "charged anna")]


def test_what_would_not_be_recorded_is_refused(url: str, ledger: None) -> None:
    @tool
    def plain(x: int) -> int:
        """Plain."""
        return x

    app = shop.application(url)
    unknown: Any = [plain]
    with pytest.raises(Refused, match=r"register the function with @app.tool\(effect=…\)"):
        ToolNode(unknown, app=app)
    known: Any = [app.registry.tools["charge"]]
    node = ToolNode(known, app=app)
    with pytest.raises(Refused, match="only outlive.langgraph.ToolNode records it"):
        node.tools_by_name["charge"].invoke({"customer": "x", "line": LINE})
