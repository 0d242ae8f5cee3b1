"""The plan as a graph with a node per call, kept by `OutliveSaver`; its calls as such, or through `ToolNode`."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import operator
import os
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

os.environ["OUTLIVE_BUILD"] = os.environ.get("CONFORMANCE_BUILD", "")
os.environ["OUTLIVE_LEASE"] = f"{float(os.environ.get('CONFORMANCE_LEASE_S', '30')):g}s"

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from conformance.adapters import common
from outlive import DidNotHappen, Happened, Operation, Outlive, Retry, Unclear
from outlive.approvals import Approval
from outlive.errors import Refused, StoreError, ThreadHeld
from outlive.langgraph import OutliveSaver, ToolNode, one_writer
from outlive.sync import Client

INBOX = common.HOME / "inbox"
LEASE = timedelta(seconds=common.LEASE_S)
WITH_TOOLS = common.MODE != "saver"
FINANCE = Approval(role="finance", expires=timedelta(hours=1))


class State(TypedDict):
    """What the graph carries: what was done so far, and how many turns."""

    run: str
    output: Annotated[list[dict[str, Any]], operator.add]
    turn: int


def needs(approval: bool) -> Approval | None:
    return FINANCE if approval else None


async def find(op: Operation[None]) -> Happened[str] | DidNotHappen | Unclear:
    receipt = common.acted(op.key)
    return DidNotHappen() if receipt is None else Happened(receipt)


def perform(op: Operation[None], run: str, act: str, args: dict[str, Any], approval: bool) -> str:
    return common.act(run, act, args, op.key, op.guard)


APP: Outlive[None] = Outlive(common.STORE)
CALLS = [one for call in common.plan() for one in call.get("all", [call]) if "act" in one]
TOOLS = [
    APP.tool(
        name=name,
        effect="idempotent" if common.MODE == "keys" else "external",
        reconcile=find if common.MODE == "asked" else None,
        timeout=timedelta(seconds=10),
        settle_after=timedelta(seconds=3),
        not_sent=(common.Refusal,),
        retry=Retry(attempts=5, first=timedelta(seconds=common.RETRY_S)),
        approval=needs,
    )(perform)
    for name in sorted({call["call"] for call in CALLS})
]
NODE = ToolNode(TOOLS, app=APP)


def through_tools(call: dict[str, Any], place: str) -> Callable[[State, RunnableConfig], dict[str, Any]]:
    """A node that makes the call as a model's message would ask for it."""

    def node(state: State, config: RunnableConfig) -> dict[str, Any]:
        args = {"run": state["run"], "act": call["act"], "args": call["args"], "approval": bool(call.get("approval"))}
        asks = {"name": call["call"], "args": args, "id": call["call"]}
        said = AIMessage("", id=f"{place}-{state['turn']}", tool_calls=[asks])
        [answer] = NODE.invoke({"messages": [said]}, config)["messages"]
        if answer.status == "error":
            raise RuntimeError(answer.content)
        return done(call, state, answer.content)

    return node


def plain(call: dict[str, Any], place: str) -> Callable[[State], dict[str, Any]]:
    def node(state: State) -> dict[str, Any]:
        if call.get("approval"):
            interrupt({"approval": call["call"], "args": call["args"]})
        return done(call, state, common.act(state["run"], call["act"], call["args"]))

    return node


def done(call: dict[str, Any], state: State, receipt: str) -> dict[str, Any]:
    return {"turn": state["turn"] + 1} if "turns" in call else {"output": [common.entry(call, receipt)]}


def sleeping(seconds: float) -> Callable[[State], dict[str, Any]]:
    def node(state: State) -> dict[str, Any]:
        time.sleep(seconds)
        return {"output": []}

    return node


def again(call: dict[str, Any]) -> Callable[[State], str]:
    def route(state: State) -> str:
        return call["call"] if state["turn"] < call["turns"] else END

    return route


def graph(saver: OutliveSaver) -> Any:
    built = StateGraph(State)
    policy = RetryPolicy(max_attempts=5, initial_interval=common.RETRY_S, retry_on=common.Refusal)
    node_of: Any = through_tools if WITH_TOOLS else plain
    last: Any = START
    for number, call in enumerate(common.plan()):
        if "sleep" in call:
            built.add_node("sleep", sleeping(call["sleep"]))
            here: Any = "sleep"
        elif "all" in call:
            here = []
            for branch, one in enumerate(call["all"]):
                built.add_node(one["call"], node_of(one, f"{number}.{branch}"), retry_policy=policy)
                built.add_edge(last, one["call"])
                here.append(one["call"])
            last = here
            continue
        else:
            built.add_node(call["call"], node_of(call, str(number)), retry_policy=policy)
            here = call["call"]
        built.add_edge(last, here)
        last = here
        if "turns" in call:
            built.add_conditional_edges(here, again(call))
    if "turns" not in common.plan()[-1]:
        built.add_edge(last, END)
    return one_writer(built.compile(checkpointer=saver), wait=2 * LEASE + timedelta(seconds=5))


def config(run: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": run}, "recursion_limit": 10_000}


def noted(run: str) -> Path:
    """Where it is written what an invocation has raised, as an application's log would have it."""
    return common.HOME / f"raised-{run}"


def drive(app: Any, run: str, resumed: bool) -> None:
    """Begin, or go on where the checkpoints end."""
    try:
        state = app.get_state(config(run))
        if resumed:
            app.invoke(Command(resume=True), config(run), durability="sync")
        elif not state.values:
            app.invoke({"run": run, "output": [], "turn": 0}, config(run), durability="sync")
        elif not state.interrupts:
            app.invoke(None, config(run), durability="sync")
        noted(run).unlink(missing_ok=True)
    except (ThreadHeld, Refused):
        # Somebody else goes on with it, or an answer was one too many: nothing has become of the run by that.
        traceback.print_exc()
    except StoreError:
        traceback.print_exc()
        # As a process does whose database is gone: its supervisor starts another one.
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - what a node raises is told by whoever invoked
        noted(run).write_text(f"{type(error).__name__}: {error}"[:300], "utf-8")
        traceback.print_exc()


def taken() -> Path:
    folder = common.HOME / f"taken-by-{common.WORKER}"
    folder.mkdir(exist_ok=True)
    return folder


def take(app: Any) -> None:
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


async def serve() -> None:
    """Take runs, with a worker of the tools' application beside."""
    app = graph(OutliveSaver(APP, lease=LEASE))
    if not WITH_TOOLS:
        await asyncio.to_thread(take, app)
    async with APP, APP.worker():
        await asyncio.to_thread(take, app)


_app: list[Any] = []
_client = Client(APP)


def app() -> Any:
    if not _app:
        _app.append(graph(OutliveSaver(APP, lease=LEASE)))
    return _app[0]


def setup() -> None:
    INBOX.mkdir(exist_ok=True)
    app().get_state(config("nobody"))


def start(run: str) -> None:
    (INBOX / f"start.{run}").touch()


def status(run: str) -> dict[str, Any]:
    state = app().get_state(config(run))
    raised = noted(run).read_text("utf-8") if noted(run).exists() else ""
    if raised:
        return {"status": "failed", "says": raised}
    if not state.values:
        return {"status": "ready"}
    says = f"next {state.next}, interrupts {[one.value for one in state.interrupts]}"
    if errors := [str(task.error) for task in state.tasks if task.error]:
        return {"status": "failed", "says": f"{says}, error {errors[0]}"}
    if state.interrupts:
        stopped = any(one.value.get("status") == "blocked" for one in state.interrupts)
        return {"status": "blocked" if stopped else "waiting", "says": says}
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
    waiting = [one.value for one in app().get_state(config(run)).interrupts]
    if not WITH_TOOLS:
        return {"open": waiting}
    found = [one for each in waiting for one in _client.do(_open(each["run"]))]
    return {"open": [{"approval": one.id, "args": json.loads(one.arguments)["args"]} for one in found]}


async def _open(run: str) -> list[Any]:
    return list(await _client.app.approvals.list(run=run))


async def _agree(approval: str) -> None:
    await _client.app.approvals.approve(approval, who="ada", role="finance")


def approve(run: str, approval: str) -> None:
    if WITH_TOOLS:
        _client.do(_agree(approval))
    (INBOX / f"resume.{run}.{uuid.uuid4().hex}").touch()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(serve())
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
