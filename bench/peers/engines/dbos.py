"""DBOS: a run is a queued workflow of steps; those that wait are asynchronous, so that none holds a thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig

from bench.peers import speech

GIVEN = speech.options()
QUEUE = "runs"
WORKS = GIVEN.get("workflow", "works")


@DBOS.step(name="step")
def step(file: str, number: int) -> dict[str, Any]:
    return speech.answer(file, number)


@DBOS.step(name="step_async")
async def step_async(file: str, number: int) -> dict[str, Any]:
    return speech.answer(file, number)


@DBOS.workflow(name="works")
def works(steps: int, file: str) -> int:
    return len([step(file, number) for number in range(steps)])


@DBOS.workflow(name="hears")
async def hears(number: int, file: str) -> None:
    await step_async(file, number)
    await DBOS.recv_async("go", timeout_seconds=3600)
    await step_async(file, number + speech.AFTER)


_client: list[DBOSClient] = []


def client() -> DBOSClient:
    if not _client:
        _client.append(DBOSClient(system_database_url=GIVEN["store"]))
    return _client[0]


def setup() -> None:
    program = str(Path(sys.executable).with_name("dbos"))
    subprocess.run([program, "migrate", "-s", GIVEN["store"]], check=True, capture_output=True)


def serve() -> None:
    # Whoever is started again under the id of a process that died goes on with that one's runs.
    config: DBOSConfig = {"name": "bench", "system_database_url": GIVEN["store"], "executor_id": GIVEN["worker"],
                          "application_version": "1", "run_migrations": False, "log_level": "ERROR"}  # fmt: skip
    DBOS(config=config)
    DBOS.launch()
    limit = {"worker_concurrency": GIVEN["share"]} if "share" in GIVEN else {}
    DBOS.register_queue(QUEUE, polling_interval_sec=GIVEN.get("poll", 1.0), **limit)


def start(run: str, steps: int, file: str) -> dict[str, float]:
    began = speech.moment()
    client().enqueue({"queue_name": QUEUE, "workflow_name": WORKS, "workflow_id": run}, steps, file)
    return began


def hear(first: int, count: int, file: str) -> None:
    for number in range(first, first + count):
        options = {"queue_name": QUEUE, "workflow_name": "hears", "workflow_id": f"hears-{number}"}
        client().enqueue(options, number, file)


def send(number: int) -> dict[str, float]:
    began = speech.moment()
    client().send(f"hears-{number}", "now", topic="go")
    return began


VERBS = {"about": lambda: speech.versions("dbos", "psycopg"), "setup": setup, "serve": serve, "start": start,
         "hear": hear, "send": send}  # fmt: skip

if __name__ == "__main__":
    speech.speak(VERBS)
