"""Run the researcher while its workers are killed, and show what came of it and what it cost.

`python -m examples.research.demo [--kills 2] [--model anthropic:claude-opus-5] [TOPIC]`; without a model, or
RESEARCH_MODEL in the environment, it runs offline.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.research.app import app, research
from examples.research.waiting import tick
from examples.workers import played, worker
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.pydantic_ai import Spent, spent

KILL_AT = (4, 9, 14, 19)
"""How long the log is when a worker is killed."""


async def main(topic: str, kills: int, model: str, out: Console) -> int:
    """One run from its start to its report."""
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"OUTLIVE_STORE": f"sqlite:///{Path(directory) / 'research.db'}", "RESEARCH_MODEL": model}
        async with app:
            run = await app.start(research, topic, id="research")
            with worker("examples.research.app:app") as one:
                for length in KILL_AT[:kills]:
                    while await entries() < length and await run.status() in ("ready", "running", "waiting"):
                        await tick(0.002)
                    one.replace()
                    out.print(f"a worker was killed when the log had {await entries()} entries; another one goes on")
                report = await run.result()
            out.print(f"\n[bold]{report.title}[/bold]", *report.findings, sep="\n- ")
            out.print(table(await spent(app, "research")))
    return 0


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
    parser.add_argument("--model", default=os.environ.get("RESEARCH_MODEL", ""), help="a name that pydantic-ai knows")
    given = parser.parse_args()
    out = Console()
    sys.exit(played(main(given.topic, given.kills, given.model, out), out))
