"""LangGraph: a run is a thread of a graph whose node is taken again and again, `durability="sync"`. It has no workers:
who is told to start a run drives it.
"""

from __future__ import annotations

import concurrent.futures
import operator
import os
import sqlite3
import traceback
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from bench.peers import speech

GIVEN = speech.options()
POSTGRES = GIVEN["store"].startswith("postgresql:")


class State(TypedDict):
    """What the graph carries; the answers are kept as its documentation keeps messages."""

    file: str
    number: int
    steps: int
    answers: Annotated[list[dict[str, Any]], operator.add]


def step(state: State) -> dict[str, Any]:
    return {"answers": [speech.answer(state["file"], state["number"])], "number": state["number"] + 1}


def wait(state: State) -> dict[str, Any]:
    interrupt("go")
    return {"number": state["number"] - 1 + speech.AFTER}


def again(state: State) -> str:
    return "step" if state["number"] < state["steps"] else END


def saver() -> Any:
    if POSTGRES:
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        words = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        return PostgresSaver(ConnectionPool(GIVEN["store"], kwargs=words, max_size=12, open=True))
    from langgraph.checkpoint.sqlite import SqliteSaver

    return SqliteSaver(sqlite3.connect(GIVEN["store"].removeprefix("sqlite:///"), check_same_thread=False))


SAVER = saver()


def loop() -> Any:
    built = StateGraph(State)
    built.add_node("step", step)
    built.add_edge(START, "step")
    built.add_conditional_edges("step", again)
    return built.compile(checkpointer=SAVER)


def waits() -> Any:
    built = StateGraph(State)
    built.add_node("before", step)
    built.add_node("wait", wait)
    built.add_node("after", step)
    for one, other in ((START, "before"), ("before", "wait"), ("wait", "after"), ("after", END)):
        built.add_edge(one, other)
    return built.compile(checkpointer=SAVER)


WORKS, HEARS = loop(), waits()
pool = concurrent.futures.ThreadPoolExecutor(GIVEN["slots"])


def invoke(graph: Any, given: Any, run: str) -> None:
    config = {"configurable": {"thread_id": run}, "recursion_limit": 100_000}
    try:
        graph.invoke(given, config, durability="sync")
    except BaseException:  # noqa: BLE001 - a thread would end in silence
        traceback.print_exc()
        os._exit(1)


def beside(*words: Any) -> dict[str, float]:
    began = speech.moment()
    pool.submit(invoke, *words)
    return began


def begun(number: int, steps: int, file: str) -> dict[str, Any]:
    return {"file": file, "number": number, "steps": steps, "answers": []}


def start(run: str, steps: int, file: str) -> dict[str, float]:
    return beside(WORKS, begun(0, steps, file), run)


def resume(run: str, steps: int, file: str) -> dict[str, float]:
    return beside(WORKS, None, run)


def hear(first: int, count: int, file: str) -> None:
    for number in range(first, first + count):
        invoke(HEARS, begun(number, 0, file), f"hears-{number}")


def send(number: int) -> dict[str, float]:
    return beside(HEARS, Command(resume="now"), f"hears-{number}")


def about() -> dict[str, str]:
    name = "langgraph-checkpoint-postgres" if POSTGRES else "langgraph-checkpoint-sqlite"
    return speech.versions("langgraph", name)


if __name__ == "__main__":
    verbs: dict[str, Callable[..., Any]] = {"about": about, "setup": SAVER.setup, "serve": lambda: None,
                                            "start": start, "resume": resume, "hear": hear, "send": send}  # fmt: skip
    speech.speak(verbs)
