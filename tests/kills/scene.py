"""A scene: a bank, a store, and worker processes that a test starts and kills."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Unpack

import pytest

from examples.dunning.bank_process import BankProcess, Modes
from outlive import Handle
from outlive.app.audit import check_chain
from outlive.app.inspect import Line, lines
from outlive.app.settings import Settings
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import RunRow
from outlive.store.port import Store
from tests.kills.agents import Order, app, paying
from tests.kills.freezing import writer
from tests.kills.waiting import until

ROOT = Path(__file__).resolve().parents[2]
TENANT = Tenant("default")
LEASE_S = 1.0
PATIENCE = timedelta(seconds=40)

Worker = subprocess.Popen[bytes]

# Every run of the tests has each kill over one of the stores, and some over both; the long run has all over both.
_LONG = {name: pytest.param(name, marks=pytest.mark.long) for name in ("sqlite", "postgres")}
BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
SQLITE_FIRST = pytest.mark.parametrize("store", ["sqlite", _LONG["postgres"]], indirect=True)
POSTGRES_FIRST = pytest.mark.parametrize("store", ["postgres", _LONG["sqlite"]], indirect=True)


@dataclass
class Scene:
    """What a test holds of it."""

    bank: BankProcess
    store: Store
    directory: Path
    environment: dict[str, str]
    workers: list[Worker] = field(default_factory=list)

    def worker(self, *options: str, **environment: str) -> Worker:
        return self.process("outlive", "worker", "tests.kills.agents:app", *options, **environment)

    def process(self, module: str, *arguments: str, **environment: str) -> Worker:
        with (self.directory / "workers.log").open("ab") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT, env={**self.environment, **environment}, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.workers.append(worker)
        return worker

    def arm(self, point: str) -> None:
        (self.directory / point).touch()

    async def reached(self, point: str) -> None:
        await self.until_file(f"reached {point}")

    async def until_file(self, name: str) -> None:
        async def look() -> bool:
            return (self.directory / name).exists()

        await until(look, name)

    async def pay(self, tool: str, *invoices: str, others: str = "") -> Handle[list[str]]:
        """Start a run, called by its first invoice."""
        order = Order(first=tool, others=others or tool, invoices=list(invoices))
        return await app.start(paying, order, id=invoices[0])

    async def result(self, run: Handle[list[str]]) -> list[str]:
        return await run.result(timeout=PATIENCE)

    async def row(self, run: str) -> RunRow:
        row = await self.store.run(TENANT, RunId(run))
        assert row is not None
        return row

    async def status(self, run: str, wanted: str) -> RunRow:
        async def look() -> RunRow | None:
            row = await self.row(run)
            return row if row.status == wanted else None

        return await until(look, f"run {run} is {wanted}")

    async def owner(self, worker: Worker) -> str:
        """The name under which this process claims, once it has announced itself."""

        async def look() -> str | None:
            known = await self.store.workers(within_ms=3_600_000)
            return next((one.owner for one in known if one.pid == worker.pid), None)

        return await until(look, f"worker {worker.pid} has begun")

    async def operations(self, run: str) -> list[OperationRow]:
        return await self.store.operations(TENANT, RunId(run))

    async def operation(self, run: str, number: int = 0) -> OperationRow:
        return (await self.operations(run))[number]

    async def log(self, run: str) -> list[Line]:
        """The log. Its chain holds, and no entry of an owner stands behind one of a later owner."""
        await check_chain(self.store, TENANT, run)
        every = [line async for line in lines(self.store, TENANT, run)]
        assert [line.epoch for line in every] == sorted(line.epoch for line in every)
        return every

    def counted_now(self) -> dict[str, int]:
        return self.bank.ledger()["by_invoice"]

    def counted(self) -> dict[str, int]:
        """Effects by invoice, once nothing is on its way any more."""
        report = self.bank.ledger()
        assert report["in_progress"] == 0, "the bank is still serving a request"
        return report["by_invoice"]

    async def freeze(self, worker: Worker) -> None:
        """Stop the process by SIGSTOP, but not inside a commit: there it would stop every writer of a SQLite file."""

        async def look() -> bool:
            worker.send_signal(signal.SIGSTOP)
            await self.stopped(worker)
            if writer(self.environment["OUTLIVE_STORE"]) != worker.pid:
                return True
            worker.send_signal(signal.SIGCONT)
            return False

        await until(look, f"{worker.pid} is frozen outside of a commit")

    async def stopped(self, worker: Worker) -> None:
        """Once the process has stopped by SIGSTOP."""

        async def look() -> bool:
            return _has_stopped(worker.pid)

        await until(look, f"{worker.pid} has stopped")

    async def exited(self, worker: Worker) -> int:
        async def look() -> int | None:
            return worker.poll()

        # `until` takes 0 for something found.
        return await until(look, f"{worker.pid} has exited")

    def outlive(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "outlive", *arguments]
        environment = {**self.environment, "OUTLIVE_APP": "tests.kills.agents:app"}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def _has_stopped(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None


def kill(worker: Worker) -> None:
    worker.kill()
    worker.wait()


@asynccontextmanager
async def scene(
    directory: Path, *, store: str = "", lease_s: float = LEASE_S, **modes: Unpack[Modes]
) -> AsyncIterator[Scene]:
    """Ends with every process gone, stopped ones too. Without a store it has a file of its own."""
    store = store or f"sqlite:///{directory / 'outlive.db'}"
    await app.open(Settings.load(store=store))
    try:
        with BankProcess.start(directory / "ledger.jsonl", **modes) as bank:
            environment = {
                **os.environ, "OUTLIVE_STORE": store, "OUTLIVE_LEASE": f"{lease_s:g}s", "BANK_URL": bank.url,
                "POINTS": str(directory),
            }  # fmt: skip
            here = Scene(bank, app.opened, directory, environment)
            try:
                yield here
            finally:
                for worker in here.workers:
                    worker.send_signal(signal.SIGKILL)
                    worker.wait()
    finally:
        await app.close()
