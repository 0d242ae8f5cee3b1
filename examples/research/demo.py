"""Run the researcher while its workers are killed, and show what came of it and what it cost.

`python -m examples.research.demo [--kills 2] [TOPIC]`; RESEARCH_MODEL=anthropic:claude-opus-5 asks a real model.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.research.app import app, research
from examples.research.waiting import tick
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.pydantic_ai import Spent, spent

KILL_AT = (4, 9, 14, 19)
"""How long the log is when a worker is killed."""


def serve(store: str) -> subprocess.Popen[bytes]:
    """A worker in a process of its own."""
    command = [sys.executable, "-m", "outlive", "worker", "--app", "examples.research.app:app", "--store", store]
    environment = os.environ | {"OUTLIVE_LEASE": "2s", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill(worker: subprocess.Popen[bytes]) -> None:
    """As a power failure would."""
    worker.send_signal(signal.SIGKILL)
    worker.wait()


async def main(topic: str, kills: int, out: Console) -> None:
    """One run from its start to its report."""
    with tempfile.TemporaryDirectory() as directory:
        store = os.environ["OUTLIVE_STORE"] = f"sqlite:///{Path(directory) / 'research.db'}"
        async with app:
            run = await app.start(research, topic, id="research")
            worker = serve(store)
            try:
                for length in KILL_AT[:kills]:
                    while await entries() < length and await run.status() in ("ready", "running", "waiting"):
                        await tick(0.002)
                    kill(worker)
                    out.print(f"a worker was killed when the log had {await entries()} entries; another one goes on")
                    worker = serve(store)
                report = await run.result()
            finally:
                kill(worker)
            out.print(f"\n[bold]{report.title}[/bold]", *report.findings, sep="\n- ")
            out.print(table(await spent(app, "research")))


async def entries() -> int:
    """How long the log is."""
    return len(await app.opened.entries(DEFAULT_TENANT, RunId("research")))


def table(all_spent: list[Spent]) -> Table:
    """What each role has cost."""
    shown = Table("model", "requests", "input", "output", "cost", "answers lost")
    for one in all_spent:
        cost = f"${one.cost:.4f}" + (" and more" if one.unpriced else "")
        figures = (one.requests, one.input_tokens, one.output_tokens, cost, one.lost)
        shown.add_row(one.name, *map(str, figures))
    return shown


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("topic", nargs="?", default="What does one have to know about making tea?")
    parser.add_argument("--kills", type=int, default=2, choices=range(len(KILL_AT) + 1))
    given = parser.parse_args()
    asyncio.run(main(given.topic, given.kills, Console()))
