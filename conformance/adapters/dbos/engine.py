"""The plan as a DBOS workflow of steps; what fails is compensated in the workflow, as its tutorials do."""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig

from conformance.adapters import common

QUEUE = "runs"


class OutOfStock(Exception):
    """The plan fails here."""


def repeated(error: BaseException) -> bool:
    return isinstance(error, common.REPEATED)


async def make(run: str, call: dict[str, Any], place: str) -> dict[str, Any]:
    """One call as a step, under its name."""
    if call.get("approval"):
        await DBOS.set_event_async("asks", {"approval": "approval", "args": call["args"]})
        await DBOS.recv_async("approval", timeout_seconds=3600)
        await DBOS.set_event_async("asks", None)
    key = f"{run}-{place}" if common.MODE == "keys" else ""

    async def step() -> str:
        return await asyncio.to_thread(common.act, run, call["act"], call["args"], key)

    options = {"name": call["call"], "retries_allowed": True, "max_attempts": 5, "should_retry": repeated,
               "interval_seconds": common.RETRY_S, "backoff_rate": 2.0}  # fmt: skip
    return common.entry(call, await DBOS.run_step_async(options, step))


@DBOS.workflow(name="follow", max_recovery_attempts=0 if common.MODE == "once" else 100)
async def follow(run: str) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    done: list[dict[str, Any]] = []
    try:
        for number, call in enumerate(common.plan()):
            if "sleep" in call:
                await DBOS.sleep_async(call["sleep"])
            elif "fail" in call:
                raise OutOfStock(call["fail"])
            elif "turns" in call:
                for turn in range(call["turns"]):
                    await make(run, call, f"{number}.{turn}")
            elif "all" in call:
                each = [make(run, one, f"{number}.{branch}") for branch, one in enumerate(call["all"])]
                output += await asyncio.gather(*each)
            else:
                output.append(await make(run, call, str(number)))
                done.append(call)
    except OutOfStock:
        for call in reversed(done):
            await make(run, common.undone(call), f"undo-{call['call']}")
        raise
    return output


def work() -> None:
    version = "1" if common.MODE == "pinned" else common.BUILD
    config: DBOSConfig = {
        "name": "conformance",
        "system_database_url": common.STORE,
        "executor_id": common.identity(),
        "application_version": version,
        "run_migrations": False,
        "log_level": "WARNING",
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE)
    common.ready()
    threading.Event().wait()


_client: list[DBOSClient] = []


def client() -> DBOSClient:
    if not _client:
        _client.append(DBOSClient(system_database_url=common.STORE))
    return _client[0]


def setup() -> None:
    program = str(Path(sys.executable).with_name("dbos"))
    subprocess.run([program, "migrate", "-s", common.STORE], check=True, capture_output=True)


def start(run: str) -> None:
    client().enqueue({"queue_name": QUEUE, "workflow_name": "follow", "workflow_id": run}, run)


WORDS = {"SUCCESS": "succeeded", "ERROR": "failed", "CANCELLED": "failed", "ENQUEUED": "ready", "PENDING": "running",
         "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "blocked"}  # fmt: skip


def status(run: str) -> dict[str, Any]:
    found = client().list_workflows(workflow_ids=[run])
    if not found:
        return {"status": "missing"}
    [one] = found
    says = f"{one.status}, executor {one.executor_id}, version {one.app_version} {one.error or ''}"
    output = client().retrieve_workflow(run).get_result() if one.status == "SUCCESS" else None
    return {"status": WORDS.get(one.status, "running"), "says": says, "output": output}


def history(run: str) -> dict[str, Any]:
    steps = client().list_workflow_steps(run)
    said = [f"{one['function_id']} {one['function_name']}: {one['output']} {one['error'] or ''}" for one in steps]
    return {"lines": said}


def approvals(run: str) -> dict[str, Any]:
    asked = client().get_event(run, "asks", timeout_seconds=0)
    return {"open": [asked] if asked else []}


def approve(run: str, approval: str) -> None:
    client().send(run, True, topic=approval)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work()
    else:
        common.serve(
            {
                "about": lambda: {"version": importlib.metadata.version("dbos")},
                "setup": setup,
                "start": start,
                "status": status,
                "history": history,
                "approvals": approvals,
                "approve": approve,
                "size": common.postgres_size,
            }
        )
