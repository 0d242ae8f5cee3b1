"""A process that resumes a thread: `python -m tests.langgraph.resumer URL FOLDER NAME WAIT`.

Its node writes the name into `acted`, says that it is inside, and goes on when there is a file `go-NAME`. Exit code 3
says that somebody else had the thread, 4 that its own write was refused.
"""

from __future__ import annotations

import operator
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from outlive.errors import ThreadHeld
from outlive.langgraph import OutliveSaver, one_writer
from tests.langgraph.waiting import until

LEASE = timedelta(seconds=6)
CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    """Who has done it."""

    done: Annotated[list[str], operator.add]


def graph(saver: OutliveSaver, folder: Path, name: str, wait: float) -> Any:
    def ask(state: State) -> dict[str, list[str]]:
        interrupt("may I?")
        with (folder / "acted").open("a") as acted:
            acted.write(f"{name}\n")
        until((folder / f"go-{name}").exists, "leave to go on")
        return {"done": [name]}

    built = StateGraph(State)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    return one_writer(built.compile(checkpointer=saver), wait=timedelta(seconds=wait))


def main(url: str, folder: Path, name: str, wait: float) -> int:
    with OutliveSaver(url, lease=LEASE) as saver:
        app = graph(saver, folder, name, wait)
        (folder / f"ready-{name}").touch()
        until((folder / f"begin-{name}").exists, "leave to begin")
        try:
            app.invoke(Command(resume=True), CONFIG)
        except ThreadHeld as error:
            print(error, flush=True)
            return 4 if (folder / f"go-{name}").exists() else 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
