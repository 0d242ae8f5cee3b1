"""A thread has one writer: whoever comes second is told so, and what cannot go on says why."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from outlive.errors import GraphChanged, Refused, ThreadHeld
from outlive.langgraph import OutliveSaver, one_writer
from outlive.langgraph.threads import Hold


class State(TypedDict):
    """What was done."""

    done: Annotated[list[str], operator.add]


CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/graphs.db" if request.param == "sqlite" else request.getfixturevalue("postgres")


@pytest.fixture
def saver(url: str) -> Iterator[OutliveSaver]:
    with OutliveSaver(url, lease=timedelta(seconds=2)) as one:
        yield one


@contextmanager
def asked_again(saver: OutliveSaver) -> Iterator[threading.Event]:
    """Set when the next one asks for the thread, having read what it is about to answer."""
    waits, hold = threading.Event(), saver.hold

    def watched(thread: str, *, wait: timedelta) -> Hold:
        waits.set()
        return hold(thread, wait=wait)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(saver, "hold", watched)
        yield waits


def asking(saver: OutliveSaver, *, name: str = "ask", act: Callable[[], None] = lambda: None) -> Any:
    def ask(state: State) -> dict[str, list[str]]:
        answer = interrupt("may I?")
        act()
        return {"done": [str(answer)]}

    built = StateGraph(State)
    built.add_node("before", lambda state: {"done": ["before"]})
    built.add_node(name, ask)
    built.add_edge(START, "before")
    built.add_edge("before", name)
    built.add_edge(name, END)
    return one_writer(built.compile(checkpointer=saver))


def test_it_runs_and_resumes(saver: OutliveSaver) -> None:
    graph = asking(saver)
    assert graph.invoke({"done": []}, CONFIG)["__interrupt__"][0].value == "may I?"
    assert graph.invoke(Command(resume="yes"), CONFIG) == {"done": ["before", "yes"]}
    assert graph.get_state(CONFIG).values == {"done": ["before", "yes"]}


async def test_it_runs_and_resumes_when_awaited(saver: OutliveSaver) -> None:
    graph = asking(saver)
    await graph.ainvoke({"done": []}, CONFIG)
    assert [one async for one in graph.astream(Command(resume="yes"), CONFIG)] == [{"ask": {"done": ["yes"]}}]


def test_of_two_resumes_at_once_one_acts_and_one_is_told(saver: OutliveSaver) -> None:
    acted, inside, go = list[int](), threading.Event(), threading.Event()

    def act() -> None:
        acted.append(1)
        inside.set()
        assert go.wait(20)

    graph = asking(saver, act=act)
    graph.invoke({"done": []}, CONFIG)
    first = threading.Thread(target=graph.invoke, args=(Command(resume="yes"), CONFIG))
    first.start()
    assert inside.wait(20)
    with pytest.raises(ThreadHeld, match="thread t is held by .*, whose lease ends in"):
        graph.invoke(Command(resume="yes"), CONFIG)
    with pytest.raises(ThreadHeld):
        graph.update_state(CONFIG, {"done": ["from outside"]})
    go.set()
    first.join()
    assert acted == [1] and graph.get_state(CONFIG).values == {"done": ["before", "yes"]}


def test_an_answer_that_comes_twice_is_refused_the_second_time(saver: OutliveSaver) -> None:
    graph = asking(saver)
    graph.invoke({"done": []}, CONFIG)
    graph.invoke(Command(resume="yes"), CONFIG)
    with pytest.raises(Refused, match="no interrupt waits for one"):
        graph.invoke(Command(resume="yes"), CONFIG)


def test_an_answer_that_waited_is_not_given_to_another_question(saver: OutliveSaver) -> None:
    inside, go = threading.Event(), threading.Event()

    def ask(state: State) -> dict[str, list[str]]:
        first = interrupt("first?")
        inside.set()
        assert go.wait(20)
        return {"done": [str(first), str(interrupt("second?"))]}

    built = StateGraph(State)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    graph = one_writer(built.compile(checkpointer=saver), wait=timedelta(seconds=20))
    graph.invoke({"done": []}, CONFIG)
    first = threading.Thread(target=graph.invoke, args=(Command(resume="1"), CONFIG))
    first.start()
    assert inside.wait(20)
    told: list[BaseException] = []

    def answer() -> None:
        try:
            graph.invoke(Command(resume="1 again"), CONFIG)
        except Refused as error:
            told.append(error)

    second = threading.Thread(target=answer)
    with asked_again(saver) as waits:
        second.start()
        assert waits.wait(20)
    go.set()
    first.join()
    second.join()
    assert "the thread has gone on since it was given" in str(told[0])
    assert graph.get_state(CONFIG).interrupts[0].value == "second?"


@pytest.mark.parametrize("given", [Command(resume="yes"), None])
def test_a_node_that_was_renamed_while_it_waited_is_an_error(saver: OutliveSaver, given: Any) -> None:
    asking(saver).invoke({"done": []}, CONFIG)
    renamed = asking(saver, name="inquire")
    with pytest.raises(GraphChanged, match="thread t goes on in ask, which this graph does not have"):
        renamed.invoke(given, CONFIG)
    assert asking(saver).invoke(Command(resume="yes"), CONFIG) == {"done": ["before", "yes"]}


async def test_a_node_that_was_renamed_is_an_error_when_awaited(saver: OutliveSaver) -> None:
    await asking(saver).ainvoke({"done": []}, CONFIG)
    with pytest.raises(GraphChanged, match="goes on in ask"):
        await asking(saver, name="inquire").ainvoke(Command(resume="yes"), CONFIG)


def nested(saver: OutliveSaver, name: str) -> Any:
    below = StateGraph(State)
    below.add_node(name, lambda state: {"done": [str(interrupt("below?"))]})
    below.add_edge(START, name)
    built = StateGraph(State)
    built.add_node("sub", below.compile())
    built.add_edge(START, "sub")
    return one_writer(built.compile(checkpointer=saver))


def test_a_node_of_a_subgraph_that_was_renamed_is_an_error(saver: OutliveSaver) -> None:
    nested(saver, "ask").invoke({"done": []}, CONFIG)
    with pytest.raises(GraphChanged, match="goes on in sub/ask"):
        nested(saver, "inquire").invoke(Command(resume="yes"), CONFIG)
    assert nested(saver, "ask").invoke(Command(resume="yes"), CONFIG) == {"done": ["yes"]}


def sending(saver: OutliveSaver, name: str) -> Any:
    built = StateGraph(State)
    built.add_node("plan", lambda state: {"done": ["plan"]})
    built.add_node(name, lambda state: {"done": [str(interrupt("each?"))]})
    built.add_edge(START, "plan")
    built.add_conditional_edges("plan", lambda state: [Send(name, {}), Send(name, {})], [name])
    return one_writer(built.compile(checkpointer=saver))


def test_a_node_that_is_sent_to_and_was_renamed_is_an_error(saver: OutliveSaver) -> None:
    sending(saver, "work").invoke({"done": []}, CONFIG)
    with pytest.raises(GraphChanged, match="goes on in work"):
        sending(saver, "labour").invoke(None, CONFIG)


def joining(saver: OutliveSaver, name: str) -> Any:
    built = StateGraph(State)
    for branch in ("a", "b"):
        built.add_node(branch, lambda state: {"done": ["x"]})
        built.add_edge(START, branch)
    built.add_node(name, lambda state: {"done": [str(interrupt("joined?"))]})
    built.add_edge(["a", "b"], name)
    return one_writer(built.compile(checkpointer=saver))


def test_a_node_that_is_joined_in_and_was_renamed_is_an_error(saver: OutliveSaver) -> None:
    joining(saver, "work").invoke({"done": []}, CONFIG)
    with pytest.raises(GraphChanged, match="goes on in work"):
        joining(saver, "labour").invoke(None, CONFIG)


def test_with_a_new_input_what_was_pending_is_left(saver: OutliveSaver) -> None:
    asking(saver).invoke({"done": []}, CONFIG)
    assert "__interrupt__" in asking(saver, name="inquire").invoke({"done": ["anew"]}, CONFIG)


def test_a_graph_that_is_not_wrapped_is_refused(saver: OutliveSaver, url: str) -> None:
    built = StateGraph(State)
    built.add_node("work", lambda state: {"done": ["work"]})
    built.add_edge(START, "work")
    with pytest.raises(Refused, match=r"wrap the graph: one_writer\(graph\)"):
        built.compile(checkpointer=saver).invoke({"done": []}, CONFIG)
    with pytest.raises(Refused, match="compile it with checkpointer=OutliveSaver"):
        one_writer(built.compile())
    with OutliveSaver(url, any_writer=True) as free:
        assert built.compile(checkpointer=free).invoke({"done": []}, CONFIG) == {"done": ["work"]}


async def test_who_holds_a_thread_keeps_it_for_longer_than_its_lease(saver: OutliveSaver) -> None:
    hold = await saver.ahold("t")
    with pytest.raises(ThreadHeld):
        await saver.ahold("t", wait=timedelta(seconds=5))
    await saver.aleave(hold)
    await saver.aleave(await saver.ahold("t"))


async def test_a_cancelled_invocation_gives_its_thread_up(saver: OutliveSaver) -> None:
    inside = asyncio.Event()

    async def work(state: State) -> dict[str, list[str]]:
        inside.set()
        await asyncio.Event().wait()
        return {"done": []}

    built = StateGraph(State)
    built.add_node("work", work)
    built.add_edge(START, "work")
    graph = one_writer(built.compile(checkpointer=saver))
    running = asyncio.ensure_future(graph.ainvoke({"done": []}, CONFIG))
    await inside.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await saver.aleave(await saver.ahold("t"))


class Two(TypedDict):
    """Two values, of which each step makes one anew."""

    kept: str
    done: int


@pytest.mark.parametrize(
    "way", [lambda saver: saver.delete_thread("t"), lambda saver: saver.prune(["t"], strategy="delete"),
            lambda saver: saver.delete_for_runs(["r"])],
)  # fmt: skip
def test_nothing_is_taken_from_a_thread_that_is_held(saver: OutliveSaver, way: Callable[[OutliveSaver], None]) -> None:
    """Who holds it writes what is new, and nothing else: what was there before would be missing without a word."""
    refused: list[ThreadHeld] = []

    def first(state: Two) -> dict[str, Any]:
        return {"kept": "k" * 1000, "done": 1}

    def second(state: Two) -> dict[str, Any]:
        with pytest.raises(ThreadHeld) as held:
            way(saver)
        refused.append(held.value)
        return {"done": 2}

    builder = StateGraph(Two)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    graph = one_writer(builder.compile(checkpointer=saver))
    config: Any = {"configurable": {"thread_id": "t"}, "metadata": {"run_id": "r"}}
    graph.invoke({"kept": "", "done": 0}, config, durability="sync")
    assert refused
    assert graph.get_state(CONFIG).values == {"kept": "k" * 1000, "done": 2}
    way(saver)
    assert graph.get_state(CONFIG).values == {}


def test_nothing_is_copied_into_a_thread_that_is_held(saver: OutliveSaver) -> None:
    asking(saver).invoke({"done": []}, CONFIG)
    hold = saver.hold("other")
    with pytest.raises(ThreadHeld):
        saver.copy_thread("t", "other")
    saver.leave(hold)
    saver.copy_thread("t", "other")
    assert saver.get_tuple({"configurable": {"thread_id": "other"}}) is not None
