"""The plan as a graph with a node per call, kept by its PostgreSQL saver; a person is asked by interrupt()."""

from __future__ import annotations

import importlib.metadata
import operator
import os
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from conformance.adapters import common

INBOX = common.HOME / "inbox"


class State(TypedDict):
    """What the graph carries: what was done so far, and how many turns."""

    run: str
    output: Annotated[list[dict[str, Any]], operator.add]
    turn: int


def node_of(call: dict[str, Any]) -> Callable[[State], dict[str, Any]]:
    def node(state: State) -> dict[str, Any]:
        if call.get("approval"):
            interrupt({"approval": call["call"], "args": call["args"]})
        run = state["run"]
        key = f"{run}:{call['call']}:{state['turn']}" if common.MODE == "keys" else ""
        receipt = common.act(run, call["act"], call["args"], key)
        if "turns" in call:
            return {"turn": state["turn"] + 1}
        return {"output": [common.entry(call, receipt)]}

    return node


def sleeping(seconds: float) -> Callable[[State], dict[str, Any]]:
    def node(state: State) -> dict[str, Any]:
        time.sleep(seconds)
        return {"output": []}

    return node


def again(call: dict[str, Any]) -> Callable[[State], str]:
    def route(state: State) -> str:
        return call["call"] if state["turn"] < call["turns"] else END

    return route


def graph(saver: PostgresSaver) -> Any:
    built = StateGraph(State)
    policy = RetryPolicy(max_attempts=5, initial_interval=common.RETRY_S, retry_on=common.REPEATED)
    last: Any = START
    for call in common.plan():
        if "sleep" in call:
            built.add_node("sleep", sleeping(call["sleep"]))
            here: Any = "sleep"
        elif "all" in call:
            here = []
            for one in call["all"]:
                built.add_node(one["call"], node_of(one), retry_policy=policy)
                built.add_edge(last, one["call"])
                here.append(one["call"])
            last = here
            continue
        else:
            built.add_node(call["call"], node_of(call), retry_policy=policy)
            here = call["call"]
        built.add_edge(last, here)
        last = here
        if "turns" in call:
            built.add_conditional_edges(here, again(call))
    if "turns" not in common.plan()[-1]:
        built.add_edge(last, END)
    return built.compile(checkpointer=saver)


def pool() -> ConnectionPool:
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    return ConnectionPool(common.STORE, kwargs=options, max_size=12, open=True, timeout=5)


def config(run: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": run}, "recursion_limit": 10_000}


def drive(app: Any, run: str, resumed: bool) -> None:
    """Begin, or go on where the checkpoints end."""
    try:
        state = app.get_state(config(run))
        if resumed:
            app.invoke(Command(resume=True), config(run), durability="sync")
        elif not state.values:
            app.invoke({"run": run, "output": [], "turn": 0}, config(run), durability="sync")
        elif state.next and not state.interrupts:
            app.invoke(None, config(run), durability="sync")
    except (psycopg.Error, PoolTimeout):
        traceback.print_exc()
        # As a process does whose database is gone: its supervisor starts another one.
        os._exit(1)
    except Exception:  # noqa: BLE001 - what a node raises is in the checkpoint; the worker goes on with other runs
        traceback.print_exc()


def taken() -> Path:
    folder = common.HOME / f"taken-by-{common.WORKER}"
    folder.mkdir(exist_ok=True)
    return folder


def work() -> None:
    app = graph(PostgresSaver(pool()))
    mine = taken()
    if common.REPLACES:
        for file in (common.HOME / f"taken-by-{common.REPLACES}").glob("start.*"):
            file.rename(mine / file.name)
            threading.Thread(target=drive, args=(app, file.name.split(".")[1], False)).start()
    common.ready()
    while True:
        for file in sorted(INBOX.glob("*.*")):
            try:
                file.rename(mine / file.name)
            except FileNotFoundError:
                continue
            verb, run = file.name.split(".")[:2]
            threading.Thread(target=drive, args=(app, run, verb == "resume")).start()
        time.sleep(0.05)


_app: list[Any] = []


def app() -> Any:
    if not _app:
        _app.append(graph(PostgresSaver(pool())))
    return _app[0]


def setup() -> None:
    INBOX.mkdir(exist_ok=True)
    with PostgresSaver.from_conn_string(common.STORE) as saver:
        saver.setup()


def start(run: str) -> None:
    (INBOX / f"start.{run}").touch()


def status(run: str) -> dict[str, Any]:
    state = app().get_state(config(run))
    if not state.values:
        return {"status": "ready"}
    says = f"next {state.next}, interrupts {len(state.interrupts)}"
    if errors := [str(task.error) for task in state.tasks if task.error]:
        return {"status": "failed", "says": f"{says}, error {errors[0]}"}
    if state.interrupts:
        return {"status": "waiting", "says": says}
    # A task whose writes are stored is not in `next` any more; the run has ended when there is none at all.
    if state.next or state.tasks:
        return {"status": "running", "says": says}
    return {"status": "succeeded", "says": says, "output": state.values["output"]}


def history(run: str) -> dict[str, Any]:
    found = []
    for state in app().get_state_history(config(run), limit=40):
        found.append(f"step {state.metadata['step']}: next {state.next}, output {len(state.values.get('output', []))}")
    return {"lines": found[::-1]}


def approvals(run: str) -> dict[str, Any]:
    return {"open": [one.value for one in app().get_state(config(run)).interrupts]}


def approve(run: str, approval: str) -> None:
    (INBOX / f"resume.{run}.{uuid.uuid4().hex}").touch()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work()
    else:
        common.serve(
            {
                "about": lambda: {"version": importlib.metadata.version("langgraph")},
                "setup": setup,
                "start": start,
                "status": status,
                "history": history,
                "approvals": approvals,
                "approve": approve,
                "size": common.postgres_size,
            }
        )
