"""The plan as a Restate workflow; what fails is compensated in the workflow, as its guide to sagas does."""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config
from restate import InvocationRetryPolicy, RunOptions, TerminalError, Workflow, WorkflowContext, WorkflowSharedContext

from conformance.adapters import common

INGRESS, ADMIN, DOOR = (f"http://127.0.0.1:{os.environ[f'CONFORMANCE_{name}']}" for name in ("PORT", "PORT2", "PORT3"))
# Where this code answers: an address of its own, or the same one for every code.
PLACE = "/live" if common.MODE == "in-place" else f"/{common.BUILD}"
RETRIES = InvocationRetryPolicy(initial_interval=timedelta(seconds=0.2), max_interval=timedelta(seconds=common.LEASE_S))
ONE_ATTEMPT = InvocationRetryPolicy(max_attempts=1, on_max_attempts="pause")

follow = Workflow("follow", invocation_retry_policy=ONE_ATTEMPT if common.MODE == "once" else RETRIES)


def acting(run: str, call: Mapping[str, Any], key: str) -> str:
    try:
        return common.act(run, call["act"], call["args"], key)
    except common.NoAnswer as error:
        if common.MODE == "keys":
            raise
        raise TerminalError(str(error)) from error


def make(ctx: WorkflowContext, call: dict[str, Any]) -> Any:
    """One call, begun; its result is awaited by who has asked."""
    key = str(ctx.uuid()) if common.MODE == "keys" else ""
    retried = RunOptions[str](max_attempts=5, initial_retry_interval=timedelta(seconds=common.RETRY_S), type_hint=str)
    return ctx.run_typed(call["call"], functools.partial(acting, ctx.key(), call, key), retried)


async def agreed(ctx: WorkflowContext, call: Mapping[str, Any]) -> None:
    """Wait for a person who is shown this call."""
    ctx.set("asks", {"approval": "approval", "args": call["args"]})
    await ctx.promise("approval", type_hint=bool).value()
    ctx.clear("asks")


@follow.main()
async def run(ctx: WorkflowContext) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    done: list[dict[str, Any]] = []
    try:
        for call in common.plan():
            if "sleep" in call:
                await ctx.sleep(timedelta(seconds=call["sleep"]))
            elif "fail" in call:
                raise TerminalError(call["fail"])
            elif "turns" in call:
                for _ in range(call["turns"]):
                    await make(ctx, call)
            elif "all" in call:
                each = [make(ctx, one) for one in call["all"]]
                await restate.gather(*each)
                output += [common.entry(one, await made) for one, made in zip(call["all"], each, strict=True)]
            else:
                if call.get("approval"):
                    await agreed(ctx, call)
                output.append(common.entry(call, await make(ctx, call)))
                done.append(call)
    except TerminalError:
        for call in reversed(done):
            if "undo" in call:
                await make(ctx, common.undone(call))
        raise
    return output


@follow.handler()
async def approve(ctx: WorkflowSharedContext) -> None:
    await ctx.promise("approval", type_hint=bool).resolve(True)


answering = restate.app([follow])


async def app(scope: Any, receive: Any, send: Any) -> None:
    """What is asked of other code is not here."""
    if scope["type"] == "http" and not scope["path"].startswith(PLACE + "/"):
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    await answering(scope, receive, send)


async def work() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    config = Config()
    config.bind, config.loglevel = [f"127.0.0.1:{port}"], "ERROR"
    serving = asyncio.create_task(serve(app, config))
    while not await asyncio.to_thread(listens, port):
        await asyncio.sleep(0.05)
    (common.HOME / f"serves-{common.WORKER or 'deploy'}").write_text(str(port), "utf-8")
    registered = common.HOME / f"registered-{common.BUILD}"
    if not registered.exists():
        asked = {"uri": DOOR + PLACE, "force": common.MODE == "in-place"}
        await asyncio.to_thread(request, f"{ADMIN}/deployments", asked)
        registered.touch()
    common.ready()
    await serving


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def request(url: str, body: object = None, limit: float = 20) -> Any:
    headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body is not None else {})
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=limit) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def setup() -> None:
    """Wait for the server, and register the code, as a deploy does before anybody is served."""
    while True:
        try:
            request(f"{ADMIN}/health")
            break
        except OSError:
            time.sleep(0.2)
    command = [sys.executable, "-m", "conformance.adapters.restate.engine", "worker"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    (common.HOME / "serves-deploy").unlink()
    if said.strip() != b"ready":
        raise RuntimeError("the deployment was not registered")


def start(run: str) -> None:
    if common.MODE != "once":
        post(run)
        return

    def patient() -> None:
        # The one attempt would be used up before anybody serves.
        while not any(listens(int(file.read_text("utf-8") or 0)) for file in common.HOME.glob("serves-*")):
            time.sleep(0.1)
        post(run)

    threading.Thread(target=patient, daemon=True).start()


def post(run: str) -> None:
    while True:
        try:
            send(f"follow/{run}/run")
            return
        except urllib.error.HTTPError as error:
            # A server that was just told of a service may need a moment.
            if error.code != 404:
                raise
            time.sleep(0.2)


def send(handler: str) -> None:
    """Let this be called, durably; it takes nothing."""
    asked = urllib.request.Request(f"{INGRESS}/{handler}/send", method="POST")
    urllib.request.urlopen(asked, timeout=20).close()


def query(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = request(f"{ADMIN}/query", {"query": text})["rows"]
    return found


def invocation(run: str) -> dict[str, Any] | None:
    found = query(
        "select id, status, retry_count, last_failure, last_failure_error_code, completion_result, completion_failure "
        f"from sys_invocation where target_service_name = 'follow' and target_service_key = '{run}' "
        "and target_handler_name = 'run'"
    )
    return found[0] if found else None


WORDS = {"pending": "ready", "scheduled": "ready", "ready": "ready", "running": "running", "backing-off": "running",
         "suspended": "waiting", "paused": "blocked"}  # fmt: skip


def status(run: str) -> dict[str, Any]:
    seen = invocation(run)
    if seen is None:
        return {"status": "ready" if common.MODE == "once" else "missing"}
    if seen["status"] == "completed":
        if seen["completion_result"] == "success":
            output = request(f"{INGRESS}/restate/workflow/follow/{run}/output")
            return {"status": "succeeded", "says": "completed", "output": output}
        return {"status": "failed", "says": f"completed: {seen['completion_failure']}"}
    mismatch = seen["status"] == "backing-off" and seen.get("last_failure_error_code") == "RT0016"
    says = f"{seen['status']}, {seen.get('retry_count', 'all its')} attempts {seen.get('last_failure') or ''}"
    return {"status": "blocked" if mismatch else WORDS.get(seen["status"], "running"), "says": says[:400]}


def history(run: str) -> dict[str, Any]:
    seen = invocation(run)
    if seen is None:
        return {"lines": []}
    found = query(f"select * from sys_journal where id = '{seen['id']}' order by index")
    lines = [f"{one['index']} {one['entry_type']} {one.get('name') or ''}".strip() for one in found]
    return {"lines": lines[:60]}


def approvals(run: str) -> dict[str, Any]:
    found = query(
        f"select value_utf8 from state where service_name = 'follow' and service_key = '{run}' and key = 'asks'"
    )
    return {"open": [json.loads(one["value_utf8"]) for one in found]}


def approved(run: str, approval: str) -> None:
    send(f"follow/{run}/approve")


def trouble() -> dict[str, Any]:
    """What its own tables say is tried again and again, or has been given up."""
    found = query(
        "select target, status, retry_count, last_failure from sys_invocation where status = 'paused' "
        "or (status = 'backing-off' and retry_count > 3)"
    )
    # What is null is not there.
    said = [
        f"{one['target']} {one['status']} after {one.get('retry_count', 'all')} attempts {one.get('last_failure', '')}"
        for one in found
    ]
    return {"says": [line[:300] for line in said]}


def size() -> dict[str, Any]:
    files = [Path(folder) / name for folder, _, names in os.walk(common.HOME / "restate") for name in names]
    return {"bytes": sum(file.stat().st_blocks * 512 for file in files if file.exists())}


def about() -> dict[str, str]:
    installed = Path(sys.prefix) / "node_modules" / "@restatedev" / "restate-server" / "package.json"
    server = json.loads(installed.read_text("utf-8"))["version"]
    return {"version": f"SDK {importlib.metadata.version('restate-sdk')}, server {server}"}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        asyncio.run(work())
    else:
        common.serve(
            {
                "about": about,
                "setup": setup,
                "start": start,
                "status": status,
                "history": history,
                "approvals": approvals,
                "approve": approved,
                "trouble": trouble,
                "size": size,
            }
        )
