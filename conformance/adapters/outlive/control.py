"""Requests of the kit, by the public surface and the command line."""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import json
import subprocess
import sys
import threading
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from conformance.adapters import common
from conformance.adapters.outlive.agent import PLAN, app, follow
from outlive.app.inspect import lines
from outlive.errors import UnknownRun
from outlive.model.ids import Tenant

T = TypeVar("T")
_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()


def done(what: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(what, _loop).result(60)


def told(*verb: str) -> str:
    """What the command line prints; it exits with 1 where it has found trouble."""
    command = [sys.executable, "-m", "outlive", *verb, "--store", common.STORE]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout


async def opened() -> None:
    if not getattr(opened, "done", False):
        await app.open()
        opened.done = True  # type: ignore[attr-defined] - a mark on the function that it is about


def setup() -> None:
    done(opened())


async def _start(run: str) -> None:
    await opened()
    await app.start(follow, run, id=run, principal="rita")


async def _status(run: str) -> dict[str, Any]:
    await opened()
    handle = app.handle(follow, run)
    try:
        status = str(await handle.status())
    except UnknownRun:
        return {"status": "missing"}
    if status == "failed" and any("undo" in call for call in PLAN):
        return await _undone(run)
    output = await handle.result(timeout=timedelta(seconds=10)) if status == "succeeded" else None
    return {"status": status, "output": output}


async def _undone(run: str) -> dict[str, Any]:
    """A failed run that is undone has ended when its rollback has."""
    try:
        status = str(await app.handle(follow, f"{run}-rollback").status())
    except UnknownRun:
        return {"status": "running", "says": "its rollback is to come"}
    if status == "succeeded":
        return {"status": "failed", "says": f"{await asyncio.to_thread(words, run, 'failed')}; rollback {status}"}
    return {"status": status, "says": f"rollback {status}"}


def status(run: str) -> dict[str, Any]:
    found = done(_status(run))
    if found["status"] in ("cancelled", "expired"):
        found |= {"status": "failed", "says": found["status"]}
    if found["status"] in ("blocked", "failed") and not found.get("says"):
        found["says"] = words(run, found["status"])
    return found


@functools.lru_cache
def words(run: str, status: str) -> str:
    """Why a run stands still; asked once for each way in which it does."""
    shown = json.loads(told("show", run, "--json"))["run"]
    return f"{shown['reason']} {shown['detail']}"[:300]


async def _history(run: str) -> list[str]:
    await opened()
    try:
        return [f"{one.seq} {one.kind} {one.text}" async for one in lines(app.opened, Tenant("default"), run)]
    except UnknownRun:
        return []


def history(run: str) -> dict[str, Any]:
    """What `outlive log` prints, without a process for it."""
    return {"lines": [line for name in (run, f"{run}-rollback") for line in done(_history(name))]}


async def _approvals(run: str) -> list[dict[str, Any]]:
    await opened()
    waiting = await app.approvals.list(run=run)
    return [{"approval": one.id, "args": json.loads(one.arguments)["args"]} for one in waiting]


def approvals(run: str) -> dict[str, Any]:
    return {"open": done(_approvals(run))}


def approve(run: str, approval: str) -> None:
    done(opened())
    done(app.approvals.approve(approval, who="ada", role="finance"))


def trouble() -> dict[str, Any]:
    found = json.loads(told("doctor", "--json") or "{}")
    return {"says": [f"{one['trouble']}: {one['subject']}: {one['why']}" for one in found.get("findings", [])]}


def size() -> dict[str, Any]:
    if common.STORE.startswith("sqlite"):
        return {"bytes": sum(file.stat().st_size for file in common.HOME.glob("store.db*"))}
    import psycopg

    with psycopg.connect(common.STORE) as connection:
        row = connection.execute("select pg_database_size(current_database())").fetchone()
    return {"bytes": row[0] if row else 0}


def about() -> dict[str, Any]:
    return {"version": importlib.metadata.version("outlive")}


if __name__ == "__main__":
    common.serve(
        {
            "about": about,
            "setup": setup,
            "start": lambda run: done(_start(run)),
            "status": status,
            "history": history,
            "approvals": approvals,
            "approve": approve,
            "trouble": trouble,
            "size": size,
        }
    )
