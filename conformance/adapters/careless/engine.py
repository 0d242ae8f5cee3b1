"""An engine that is wrong on purpose, one mistake per mode: what the kit's verdicts are tried on.

A run is a JSON file: the records of its calls by position. Any worker takes any run that has not ended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from conformance.adapters import common
from conformance.waiting import pause

RUNS = common.HOME / "store"


class Blocked(Exception):
    """Nobody knows whether a call has acted."""


class Run:
    """The file of one run."""

    def __init__(self, file: Path) -> None:
        self.name, self._file = file.stem, file
        self.state: dict[str, Any] = json.loads(file.read_text("utf-8"))

    def write(self) -> None:
        new = self._file.with_suffix(f".{common.WORKER}.{threading.get_ident()}.new")
        new.write_text(json.dumps(self.state), "utf-8")
        os.replace(new, self._file)


def make(run: Run, place: str, call: dict[str, Any]) -> dict[str, Any]:
    """One call: its record if there is one, whatever the code asks for now; else the effect."""
    records = run.state["records"]
    if place in records:
        if records[place] is None:
            raise Blocked(f"{call['call']}: an intent without an outcome")
        return common.entry(call, records[place])
    if call.get("approval"):
        wait_for_person(run, place, call)
    if common.MODE == "forgetful":
        records[place] = "r-?"
        run.write()
    if common.MODE == "frank":
        records[place] = None
        run.write()
    key = f"{run.name}-{place}" if common.MODE == "keyed" else ""
    while True:
        try:
            records[place] = common.act(run.name, call["act"], call["args"], key)
        except common.Refusal:
            pause(common.RETRY_S)
        else:
            run.write()
            return common.entry(call, records[place])


def wait_for_person(run: Run, place: str, call: dict[str, Any]) -> None:
    """Any yes will do, whatever it was said to."""
    asked = common.HOME / f"asked-{run.name}"
    asked.write_text(json.dumps({"approval": place, "args": call["args"]}), "utf-8")
    while not (common.HOME / f"approved-{run.name}").exists():
        pause(0.05)
    asked.unlink(missing_ok=True)


def drive(run: Run) -> None:
    output: list[dict[str, Any]] = []
    try:
        for number, call in enumerate(common.plan()):
            if "sleep" in call:
                if f"{number}" not in run.state["records"]:
                    pause(call["sleep"])
                run.state["records"][f"{number}"] = "slept"
                run.write()
            elif "turns" in call:
                for turn in range(call["turns"]):
                    make(run, f"{number}.{turn}", call)
            elif "all" in call:
                output += [make(run, f"{number}.{branch}", one) for branch, one in enumerate(call["all"])]
            elif "act" in call:
                output.append(make(run, f"{number}", call))
        run.state |= {"status": "succeeded", "output": output}
    except Blocked as blocked:
        run.state |= {"status": "blocked", "says": str(blocked)}
    run.write()


def free(file: Path) -> bool:
    """Whether nobody has this run; in all modes but one nobody ever has one."""
    if common.MODE != "locked":
        return True
    try:
        os.close(os.open(file.with_suffix(".lock"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def work() -> None:
    common.ready()
    mine: dict[str, threading.Thread] = {}
    while True:
        for file in sorted(RUNS.glob("*.json")):
            idle = file.stem not in mine or not mine[file.stem].is_alive()
            if idle and Run(file).state["status"] == "running" and free(file):
                mine[file.stem] = threading.Thread(target=drive, args=(Run(file),))
                mine[file.stem].start()
        pause(0.05)


def setup() -> None:
    RUNS.mkdir(exist_ok=True)


def start(run: str) -> None:
    (RUNS / f"{run}.json").write_text(json.dumps({"status": "running", "records": {}}), "utf-8")


def status(run: str) -> dict[str, Any]:
    file = RUNS / f"{run}.json"
    return {"output": None, **Run(file).state} if file.exists() else {"status": "missing"}


def history(run: str) -> dict[str, Any]:
    return {"lines": [f"{place}: {what}" for place, what in Run(RUNS / f"{run}.json").state["records"].items()]}


def approvals(run: str) -> dict[str, Any]:
    asked = common.HOME / f"asked-{run}"
    return {"open": [json.loads(asked.read_text("utf-8"))] if asked.exists() else []}


def approve(run: str, approval: str) -> None:
    (common.HOME / f"approved-{run}").touch()


def size() -> dict[str, Any]:
    return {"bytes": sum(file.stat().st_size for file in RUNS.glob("*"))}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work()
    else:
        common.serve(
            {
                "about": lambda: {"version": "none"},
                "setup": setup,
                "start": start,
                "status": status,
                "history": history,
                "approvals": approvals,
                "approve": approve,
                "size": size,
            }
        )
