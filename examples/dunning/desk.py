"""What waits for an approval is shown with the command that gives it. After a while it is given by that command, run as
another process: anybody who is faster, from another terminal, decides.
"""

import asyncio
from collections.abc import Iterable

from rich.console import Console

from examples.dunning.person import agree
from examples.dunning.watch import Watched
from outlive.app.approvals import Approvals

WAIT_S = 5.0


class Desk:
    """Looks after the approvals of the demo's runs."""

    def __init__(self, approvals: Approvals, console: Console, environment: dict[str, str]) -> None:
        self._approvals, self._console, self._environment = approvals, console, environment
        self._due: dict[str, float] = {}

    async def look(self, runs: Iterable[Watched], now_s: float) -> None:
        """Show what is new; decide what has been shown for long enough."""
        for run in runs:
            if run.row.status != "waiting" or not run.row.reason.startswith("an approval"):
                continue
            for one in await self._approvals.list(run=run.row.id):
                if one.id not in self._due:
                    self._console.print(f"run {one.run} waits for {one.role}: {one.shown}", style="yellow")
                    self._say(
                        f"approve it from another terminal, or in {WAIT_S:.0f} s it is done here:\n$ {agree(one)}"
                    )
                elif now_s >= self._due[one.id]:
                    _, answer = await asyncio.to_thread(agree(one).say, self._environment)
                    self._say(answer)
                else:
                    continue
                self._due[one.id] = now_s + WAIT_S

    def _say(self, text: str) -> None:
        self._console.print(text, style="bold", highlight=False, markup=False, soft_wrap=True)
