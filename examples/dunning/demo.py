"""The demo: sixty invoices, a bank that loses answers, workers that are killed. Run it with `make demo`.

Exit code 0: everything ended well, and ledger and logs agree; 1: they do not; 2: it could not begin.
"""

import argparse
import asyncio
import json
import os
import shlex
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.live import Live

from examples.dunning import board
from examples.dunning.agent import INVOICES, Invoice, dunning
from examples.dunning.app import app
from examples.dunning.audit import Finding, audit
from examples.dunning.bank_process import BankProcess
from examples.dunning.desk import Desk
from examples.dunning.fleet import ROOT, Fleet, program
from examples.dunning.killer import Dice, Killer, plan
from examples.dunning.person import decide
from examples.dunning.waiting import epoch_ms, tick
from examples.dunning.watch import TENANT, Kill, Watch
from examples.dunning.witness import Effect, Rule, Witness
from outlive.app.settings import Settings
from outlive.errors import OutliveError
from outlive.model.operation import IN_DOUBT, OperationRow
from outlive.testing.postgres import server

APP = "examples.dunning.app:app"
WORKERS = 3
KILLS = 7
AMBUSHES = 2
PATIENCE_S = 240
OWN_SERVER = "postgres"


@dataclass(frozen=True, slots=True)
class Options:
    """What the demo was told; `kills` is 0 when somebody else does it."""

    lease: str
    seed: int
    bank: str
    kills: int
    store: str
    lag_ms: int


def options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(prog="python -m examples.dunning.demo", description=__doc__.splitlines()[0])
    parser.add_argument("--lease", default="2s", help="how long a dead worker's runs stay its own")
    parser.add_argument("--seed", type=int, default=7, help="chooses the bank's faults, and when who is killed")
    parser.add_argument("--bank", default="", help="URL of a bank of your own; README.md has the protocol")
    parser.add_argument("--killer", choices=["own", "external"], default="own", help="external: you kill the workers")
    parser.add_argument("--kills", type=int, default=KILLS, help="how many workers are killed")
    parser.add_argument("--store", default="", help="where the runs live: URL, or postgres [a new file]")
    parser.add_argument("--lag-ms", type=int, help="how far away the bank is, there and back [600; 1500 if you kill]")
    said = parser.parse_args(arguments)
    kills = said.kills if said.killer == "own" else 0
    lag_ms = said.lag_ms if said.lag_ms is not None else 600 if said.killer == "own" else 1500
    return Options(said.lease, said.seed, said.bank.rstrip("/"), kills, said.store, lag_ms)


class Demo:
    """One run of the demo, from its parts to its finding."""

    def __init__(self, told: Options, directory: Path, console: Console) -> None:
        self.told, self.directory, self.console = told, directory, console
        self.invoices = [Invoice.model_validate(one) for one in json.loads(INVOICES.read_text("utf-8"))]
        self.totals: dict[str, int] = {}
        self.effects: list[Effect] = []
        self.begun = epoch_ms()
        self._live: Live | None = None

    @property
    def seconds(self) -> float:
        return (epoch_ms() - self.begun) / 1000

    async def run(self) -> Finding:
        """Leaves no process behind, however it ends."""
        async with AsyncExitStack() as stack:
            store = self._store(stack)
            url = self.told.bank or stack.enter_context(self._bank()).url
            self.witness = await stack.enter_async_context(Witness(url))
            await app.open(Settings.load(store=store, lease=self.told.lease))
            stack.push_async_callback(app.close)
            self.watch = Watch(app.opened, await self._start())
            self.environment = {
                **os.environ, "OUTLIVE_STORE": store, "OUTLIVE_LEASE": self.told.lease, "BANK_URL": url,
                "BANK_LAG_MS": str(self.told.lag_ms), "OUTLIVE_APP": APP,
            }  # fmt: skip
            self.console.print(f"state in {self.directory}; to look into it, and to decide yourself:")
            where = f"export OUTLIVE_STORE={shlex.quote(store)} OUTLIVE_APP={APP} BANK_URL={shlex.quote(url)}"
            elsewhere = "" if Path.cwd() == ROOT else f"cd {shlex.quote(str(ROOT))}; "
            self.console.print(f"{elsewhere}{where}; {program()} ps", soft_wrap=True, highlight=False, markup=False)
            self.fleet = stack.enter_context(Fleet(self.directory, WORKERS, self.environment))
            await self._until_the_end(stack)
            await self.watch.look()
            self.effects = await self.witness.effects()
        return audit(self.invoices, self.watch.runs, self.effects)

    def _store(self, stack: AsyncExitStack) -> str:
        """The URL of a store of somebody's own, or of a new one: a file, or a server that ends with the demo."""
        if self.told.store == OWN_SERVER:
            return stack.enter_context(server()) + "&direct=yes"
        return self.told.store or f"sqlite:///{self.directory / 'outlive.db'}"

    def _bank(self) -> BankProcess:
        ledger = self.directory / "ledger.jsonl"
        return BankProcess.start(ledger, seed=self.told.seed, drop=0.07, drop_before=0.03, refuse=0.04)

    async def _start(self) -> list[str]:
        """A run per region. In a store of somebody's own the ids carry the name of this demo."""
        own = self.told.store not in ("", OWN_SERVER)
        suffix = f"-{self.directory.name.rsplit('-', 1)[-1]}" if own else ""
        for region, count in Counter(one.region for one in self.invoices).items():
            await app.start(dunning, region, id=region + suffix)
            self.totals[region + suffix] = count
        return list(self.totals)

    async def _until_the_end(self, stack: AsyncExitStack) -> None:
        dice, desk = Dice(self.told.seed), Desk(app.approvals, self.console, self.environment)
        ambushes = min(AMBUSHES, self.told.kills) if self.witness.controllable else 0
        chosen = plan(dice, self.invoices, kills=self.told.kills, ambushes=ambushes)
        killer = Killer(self.fleet, self.watch, self.witness, dice, chosen, ambushes)
        blind = [Rule("act_then_drop", one.id) for one in self.invoices if one.provider == "blindpay"]
        await self.witness.expect(*blind)
        await killer.prepare()
        if self.console.is_terminal:
            self._live = stack.enter_context(Live(console=self.console, refresh_per_second=8, transient=True))
        await self.watch.look()
        while not self.watch.ended:
            self._keep_filled()
            self._tell(await killer.strike())
            await self._draw()
            await desk.look(self.watch.runs.values(), self.seconds)
            if self.watch.at_rest and not await self._ask_the_person():
                return
            if self.told.kills and self.seconds > PATIENCE_S:
                self.console.print(f"after {self.seconds:.0f} s it has not ended; given up", style="red")
                return

    def _keep_filled(self) -> None:
        for pid in self.fleet.fallen():
            self._tell(self.watch.killed(pid, "by somebody else"))
        for pid in self.fleet.fill():
            self.console.print(f"worker pid {pid} started")

    def _tell(self, kill: Kill | None) -> None:
        if kill is not None:
            held = ", ".join(kill.held) or "nothing"
            self.console.print(f"worker pid {kill.pid} killed {kill.how}; it held {held}", style="red")

    async def _draw(self) -> None:
        await self.watch.look()
        try:
            self.effects = await self.witness.effects()
        except httpx.HTTPError:
            return  # somebody's own bank may be down for a while: the count stays as it was
        if self._live is not None:
            self._live.update(board.live(self.watch, self.totals, len(self.effects), self.seconds))

    async def _ask_the_person(self) -> bool:
        """Have each operation in doubt resolved. False if there is nothing that a person could say."""
        asked = [
            operation
            for run in self.watch.runs.values() if run.row.reason == "operation in doubt"
            for operation in run.operations if operation.status in IN_DOUBT
        ]  # fmt: skip
        for operation in asked:
            await self._resolve(operation)
        return bool(asked)

    async def _resolve(self, operation: OperationRow) -> None:
        self.console.print(f"unknown: {operation.id} {operation.tool}{operation.arguments}", style="yellow")
        refused = ""
        while self.told.kills == 0 or self.seconds < PATIENCE_S:
            word = decide(operation, await self.witness.effects())
            accepted, answer = await asyncio.to_thread(word.say, self.environment)
            if accepted or answer != refused:
                self.console.print(f"$ {word}\n{answer}", style="bold", highlight=False, markup=False, soft_wrap=True)
            await self.watch.look()
            known = await app.opened.operation(TENANT, operation.id)
            if accepted or known is None or known.status not in IN_DOUBT:
                return
            refused = answer  # most likely too early to say: a request may still be on its way
            await tick(1)

    def report(self, finding: Finding) -> None:
        id = board.eventful(self.watch)
        self.console.print(board.timeline(id, self.watch.runs[id], self.watch.kills))
        self.console.print(board.summary(finding, self.watch, self.fleet.started, self.seconds))
        for one in finding.differences:
            self.console.print(one, style="red")
        agree = "ledger and logs agree" if not finding.differences else "ledger and logs DISAGREE"
        self.console.print(agree, style="bold red" if finding.differences else "bold green")


async def play(told: Options, console: Console) -> int:
    """Exit code of the demo."""
    main = asyncio.current_task()
    assert main is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
    demo = Demo(told, Path(tempfile.mkdtemp(prefix="outlive-demo-")), console)
    finding = await demo.run()
    demo.report(finding)
    return 1 if finding.differences else 0


def main(arguments: Sequence[str]) -> int:
    console = Console()
    try:
        return asyncio.run(play(options(arguments), console))
    except (OutliveError, httpx.HTTPError, httpx.InvalidURL) as error:
        Console(stderr=True).print(f"the demo could not go on: {error}", style="red")
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
