"""Restate: a run is a workflow of its own server, whose handler is in this process and journals each `ctx.run`."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from typing import Any

import hypercorn
import hypercorn.asyncio
import restate

from bench.peers import speech

GIVEN = speech.options()
works = restate.Workflow("works")
hears = restate.Workflow("hears")


async def step(file: str, number: int) -> dict[str, Any]:
    return speech.answer(file, number)


@works.main()
async def main(ctx: restate.WorkflowContext, plan: dict[str, Any]) -> int:
    kept = []
    for number in range(plan["steps"]):
        kept.append(await ctx.run_typed("step", step, file=plan["file"], number=number))
    return len(kept)


@hears.main()
async def listen(ctx: restate.WorkflowContext, plan: dict[str, Any]) -> None:
    await ctx.run_typed("before", step, file=plan["file"], number=plan["number"])
    await ctx.promise("go", type_hint=str).value()
    await ctx.run_typed("after", step, file=plan["file"], number=plan["number"] + speech.AFTER)


@hears.handler()
async def go(ctx: restate.WorkflowSharedContext, word: str) -> None:
    await ctx.promise("go", type_hint=str).resolve(word)


_connections: dict[int, http.client.HTTPConnection] = {}


def post(port: int, path: str, body: Any) -> None:
    if port not in _connections:
        _connections[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    one = _connections[port]
    one.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = one.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{path}: {answer.status} {text.decode()}")


async def serving() -> None:
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{GIVEN['endpoint']}"]
    config.accesslog = None
    # With a trigger of its own it leaves the signals alone, which only a main thread may take.
    await hypercorn.asyncio.serve(restate.app(services=[works, hears]), config, shutdown_trigger=asyncio.Event().wait)


def serve() -> None:
    loop.begin(serving())
    # The server asks the endpoint what it has; one that is known already may be told again.
    for left in range(100, -1, -1):
        try:
            return post(GIVEN["admin"], "/deployments", {"uri": f"http://127.0.0.1:{GIVEN['endpoint']}"})
        except (RuntimeError, OSError):
            if left == 0:
                raise
            _connections.pop(GIVEN["admin"], None)
            time.sleep(0.1)


def start(run: str, steps: int, file: str) -> dict[str, float]:
    began = speech.moment()
    post(GIVEN["ingress"], f"/works/{run}/main/send", {"steps": steps, "file": file})
    return began


def hear(first: int, count: int, file: str) -> None:
    for number in range(first, first + count):
        post(GIVEN["ingress"], f"/hears/hears-{number}/listen/send", {"number": number, "file": file})


def send(number: int) -> dict[str, float]:
    began = speech.moment()
    post(GIVEN["ingress"], f"/hears/hears-{number}/go/send", "now")
    return began


loop = speech.Loop()

if __name__ == "__main__":
    speech.speak({"about": lambda: speech.versions("restate-sdk", "hypercorn"), "setup": lambda: None,
                  "serve": serve, "start": start, "hear": hear, "send": send})  # fmt: skip
