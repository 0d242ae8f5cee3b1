"""The plan as an Absurd task of steps. What fails is retried by the task, as in its documentation."""

from __future__ import annotations

import concurrent.futures
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from absurd_sdk import Absurd

from conformance.adapters import common

TASK = "follow"


def make(ctx: Any, run: str, call: dict[str, Any], turn: int = 0) -> dict[str, Any]:
    """One call as a step under its name; an event is awaited first where a person has to agree."""
    if call.get("approval"):
        ctx.step("ask", lambda: common.tell_person(run, "approval", call["args"]))
        ctx.await_event(f"approve:{run}:approval")
    key = f"{ctx.task_id}:{call['call']}:{turn}" if common.MODE == "keys" else ""

    def step() -> str:
        if common.MODE == "plain":
            return common.act(run, call["act"], call["args"], key)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            acting = pool.submit(common.act, run, call["act"], call["args"], key)
            while not concurrent.futures.wait([acting], 1.0).done:
                ctx.heartbeat()
            return acting.result()

    return common.entry(call, ctx.step(call["call"], step))


def follow(params: Any, ctx: Any) -> list[dict[str, Any]]:
    run, output = params["run"], []
    for call in common.plan():
        if "sleep" in call:
            ctx.sleep_for("sleep", call["sleep"])
        elif "turns" in call:
            for turn in range(call["turns"]):
                make(ctx, run, call, turn)
        else:
            output.append(make(ctx, run, call))
    return output


def client() -> Absurd:
    return Absurd(common.STORE)


def work() -> None:
    app = client()
    app.register_task(TASK)(follow)
    common.ready()
    app.start_worker(worker_id=common.WORKER, claim_timeout=int(common.LEASE_S), concurrency=1)


def setup() -> None:
    program = str(Path(sys.executable).with_name("absurdctl"))
    environment = os.environ | {"ABSURD_DATABASE_URL": common.STORE}
    for verb in (["init"], ["create-queue", "default"]):
        subprocess.run([program, *verb], env=environment, check=True, capture_output=True)


def start(run: str) -> None:
    app = client()
    app.register_task(TASK)(follow)
    strategy: Any = {"kind": "fixed", "base_seconds": common.RETRY_S}
    attempts = 1 if common.MODE == "once" else 5
    spawned = app.spawn(TASK, {"run": run}, max_attempts=attempts, retry_strategy=strategy, idempotency_key=run)
    (common.HOME / f"task-{run}").write_text(str(spawned["task_id"]), "utf-8")


def task(run: str) -> str:
    return (common.HOME / f"task-{run}").read_text("utf-8")


WORDS = {"pending": "ready", "running": "running", "sleeping": "waiting", "completed": "succeeded", "failed": "failed",
         "cancelled": "failed"}  # fmt: skip


def status(run: str) -> dict[str, Any]:
    found = client().fetch_task_result(task(run))
    if found is None:
        return {"status": "missing"}
    says = f"{found.state} {found.failure or ''}"
    return {"status": WORDS.get(found.state, "running"), "says": says, "output": found.result}


def history(run: str) -> dict[str, Any]:
    import psycopg

    with psycopg.connect(common.STORE) as connection:
        rows = connection.execute(
            'select checkpoint_name, state, updated_at from absurd."c_default" where task_id = %s order by updated_at',
            (task(run),),
        ).fetchall()
    return {"lines": [f"{name}: {state}" for name, state, _ in rows]}


def approve(run: str, approval: str) -> None:
    client().emit_event(f"approve:{run}:{approval}", {"by": "ada"})


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work()
    else:
        common.serve(
            {
                "about": lambda: {"version": importlib.metadata.version("absurd-sdk")},
                "setup": setup,
                "start": start,
                "status": status,
                "history": history,
                "approvals": common.asked_of_person,
                "approve": approve,
                "size": common.postgres_size,
            }
        )
