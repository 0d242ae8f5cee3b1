"""Run the clerk while its workers are killed, decide as somebody of finance would, and hold the ledger against it.

`python -m examples.clerk.demo [--kills 3] [--model anthropic:claude-opus-5]`; without a model it runs offline.
Exit code 0: each invoice is in the ledger as often as it should be; 1: it is not; 2: the run failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.clerk.app import Report, app, book_invoices
from examples.clerk.finance import decide
from examples.clerk.ledger import Ledger
from examples.clerk.waiting import tick
from examples.workers import played, worker
from outlive import Handle
from outlive.model.ids import DEFAULT_TENANT, RunId

KILL_AT = (6, 16, 27)
"""How long the log is when a worker is killed: it has listed, it has read, something waits for an approval."""


async def main(kills: int, model: str, out: Console) -> int:
    """One run from its start to its report."""
    with tempfile.TemporaryDirectory() as directory:
        ledger = Ledger(Path(directory) / "ledger.db")
        os.environ |= {
            "OUTLIVE_STORE": f"sqlite:///{Path(directory) / 'runs.db'}", "CLERK_LEDGER": f"{directory}/ledger.db",
            "CLERK_MODEL": model,
        }  # fmt: skip
        async with app:
            run = await app.start(book_invoices, "Book what has come in.", id="november", principal="clerk")
            report = await _watched(run, kills, out)
        out.print(f"\nbooked: {', '.join(report.booked)}; not booked: {', '.join(report.not_booked)}")
        return judged(ledger, report, out)


async def _watched(run: Handle[Report], kills: int, out: Console) -> Report:
    """Kill and decide until it has ended."""
    points = [*KILL_AT[:kills]]
    with worker("examples.clerk.app:app") as one:
        while await run.status() in ("ready", "running", "waiting"):
            length = len(await app.opened.entries(DEFAULT_TENANT, RunId(run.id)))
            if points and length >= points[0]:
                del points[0]
                one.replace()
                out.print(f"a worker was killed when the log had {length} entries; another one goes on")
            elif await run.status() == "waiting":
                await decide(app.approvals, lambda said: out.print(said, highlight=False, soft_wrap=True))
            await tick(0.01)
        return await run.result()


def judged(ledger: Ledger, report: Report, out: Console) -> int:
    """Whether the ledger has what was reported as booked, each once."""
    shown = Table("entry", "invoice", "vendor", "amount", "account")
    for one in ledger.entries():
        shown.add_row(str(one.number), one.invoice, one.vendor, f"{one.cents / 100:,.2f}", one.account)
    out.print(shown)
    counts = Counter(one.invoice for one in ledger.entries())
    twice = [invoice for invoice, count in counts.items() if count > 1]
    if twice or set(counts) != set(report.booked):
        out.print(f"ledger and report differ; more than once: {twice}")
        return 1
    out.print("each is booked once")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=len(KILL_AT), choices=range(len(KILL_AT) + 1))
    parser.add_argument("--model", default=os.environ.get("CLERK_MODEL", ""), help="a name that pydantic-ai knows")
    given = parser.parse_args()
    out = Console()
    sys.exit(played(main(given.kills, given.model, out), out))
