"""The floor as an engine: one INSERT and one COMMIT for each step, going on after the last row that is there."""

from __future__ import annotations

import concurrent.futures
import json
import select
import sys
from types import SimpleNamespace
from typing import Any

from bench.bells import Bell, PostgresBell, SQLiteBell
from bench.floor import Floor, PostgresFloor, SQLiteFloor
from bench.peers import speech

# The fields of a step's entry.
_ENTRY: Any = SimpleNamespace(
    epoch=1, kind="step", version=1, at=1_700_000_000_000, scope="", key="f" * 32, body='{"name":"compose"}',
    payload='{"text":"' + speech.text(1) + '","tokens":1}', digest=bytes(32),
)  # fmt: skip
_beside = concurrent.futures.ThreadPoolExecutor(1)


def opened(run: str) -> Floor:
    where = speech.options()["store"]
    if where.startswith("postgresql:"):
        return PostgresFloor(where, "floor", _ENTRY, run)
    return SQLiteFloor(where.removeprefix("sqlite:///"), _ENTRY, run)


def bell_at(where: str) -> Bell:
    if where.startswith("postgresql:"):
        return PostgresBell(where, "bell")
    return SQLiteBell(where.removeprefix("sqlite:///") + "-bell")


def work(run: str, steps: int, file: str) -> None:
    floor = opened(run)
    for number in range(floor.resume(), steps):
        speech.answer(file, number)
        floor.insert(1)
    floor.close()


def start(run: str, steps: int, file: str) -> dict[str, float]:
    began = speech.moment()
    _beside.submit(work, run, steps, file)
    return began


def insert(count: int) -> dict[str, float]:
    return {"each": floors[0].insert(count)}


floors: list[Floor] = []


def listen() -> None:
    """Claim what is rung for, and say when that was, until there is nobody any more."""
    bell = bell_at(speech.options()["store"])
    while not select.select([sys.stdin], [], [], 0)[0]:
        if bell.claim():
            print(json.dumps(speech.moment()), flush=True)
        else:
            bell.wait()


if __name__ == "__main__":
    if sys.argv[1] == "bell":
        print(json.dumps({"ready": 1}), flush=True)
        listen()
        sys.exit()
    if sys.argv[1] == "blocks":
        floors.append(opened("blocks"))
        floors[0].insert(20)
    speech.speak({"setup": lambda: None, "serve": lambda: None, "start": start, "resume": start, "insert": insert})
