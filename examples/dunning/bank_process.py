"""Starts the bank as a process of its own and talks to its control side: what tests and the demo hold.

Every wait is a long poll answered by the bank; a bank whose starter dies stops by itself.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypedDict, Unpack, cast
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

ROOT = Path(__file__).resolve().parents[2]
READY = "bank listening on "


class EffectLine(TypedDict):
    """One line of the ledger; `at` is milliseconds since the epoch."""

    charge_id: str
    key: str
    invoice: str
    customer: str
    cents: int
    provider: str
    at: int
    request: int


class Report(TypedDict):
    """The answer to GET /ledger; README.md says what each count means."""

    effects: list[EffectLine]
    by_key: dict[str, int]
    by_invoice: dict[str, int]
    duplicates: list[str]
    requests: int
    answers: dict[str, int]
    dropped: int
    undelivered: int
    in_progress: int


class Held(TypedDict):
    """A request that the bank holds; `request` is the number by which it is released."""

    request: int
    when: Literal["before", "after"]
    on: Literal["charge", "lookup"]
    key: str
    invoice: str | None


class VisitLine(TypedDict):
    """One request as GET /requests lists it; `answer` is a status, "dropped", or None while undecided."""

    request: int
    on: Literal["charge", "lookup"]
    key: str
    invoice: str | None
    provider: str | None
    fate: str | None
    answer: int | str | None
    delivered: bool


class Modes(TypedDict, total=False):
    """The options of the bank; README.md says what each does."""

    port: int
    seed: int
    drop: float
    drop_before: float
    refuse: float
    delay: float
    delay_before: float
    delay_ms: int
    lookup_lag_ms: int
    dedupe: bool
    honour_not_after: bool


class BankRefused(Exception):
    """The bank answered a control request with an error."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"bank answered {status}: {body.strip()}")
        self.status = status


class BankProcess:
    """A running bank. Calls block, so async code makes them in a thread. As a context manager it stops at the end."""

    def __init__(self, url: str, ledger_path: Path, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.ledger_path = ledger_path
        self.process = process
        self._opener = build_opener(ProxyHandler({}))

    @classmethod
    def start(cls, ledger: Path, **modes: Unpack[Modes]) -> Self:
        """Return once the bank answers. Without a port it takes any free one."""
        command = [sys.executable, "-m", "examples.dunning.bank", "--until-stdin-closes"]
        command += ["--ledger", str(ledger.resolve())]
        for name, value in modes.items():
            option = "--" + name.replace("_", "-")
            if value is not False:
                command += [option] if value is True else [option, str(value)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline() if process.stdout else ""
        if not line.startswith(READY):
            _close(process)
            raise RuntimeError(f"the bank did not start (exit code {process.wait()}): {' '.join(command)}")
        return cls(line.removeprefix(READY).strip(), ledger, process)

    def ledger(self) -> Report:
        return cast(Report, self._ask("GET", "/ledger"))

    def requests(self) -> list[VisitLine]:
        """Every request for a charge or a look-up that this process has seen, in order of arrival."""
        return cast("dict[str, list[VisitLine]]", self._ask("GET", "/requests"))["requests"]

    def control(self, **body: object) -> dict[str, object]:
        """POST /control: clear, set, rules, release, then."""
        return self._ask("POST", "/control", body)

    def rule(self, mode: str, **fields: object) -> None:
        """Add one rule, as in bank.rule("act_then_drop", invoice="INV-2026-0007", times=2)."""
        self.control(rules=[{"mode": mode, **fields}])

    def wait(self, timeout: float = 10.0, **counts: int) -> dict[str, object]:
        """Block until held, effects, requests and answered are at least as asked; TimeoutError if not in time."""
        try:
            return self._ask("GET", "/control/wait?" + urlencode({**counts, "timeout": timeout}), patience=timeout)
        except BankRefused as error:
            if error.status != 408:
                raise
            raise TimeoutError(f"not within {timeout:g} s: {counts}: {error}") from error

    def wait_held(self, number: int = 1, timeout: float = 10.0) -> list[Held]:
        return cast("list[Held]", self.wait(timeout, held=number)["held"])

    def release(self, *requests: int, then: Literal["go_on", "drop"] = "go_on") -> None:
        """Release these requests, or all that are held. "drop" closes their sockets where they stand."""
        self.control(release=list(requests) if requests else "all", then=then)

    def stop(self) -> None:
        """Stop the process; a second call does nothing."""
        self.process.terminate()
        _close(self.process)

    def kill(self) -> None:
        """SIGKILL. Another start on the same ledger (and port) is a bank that was restarted."""
        self.process.kill()
        _close(self.process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _ask(self, method: str, path: str, body: object = None, patience: float = 0.0) -> dict[str, object]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with self._opener.open(request, timeout=patience + 30) as response:
                return cast("dict[str, object]", json.load(response))
        except HTTPError as error:
            with error:
                raise BankRefused(error.code, error.read().decode()) from error


def _close(process: subprocess.Popen[str]) -> None:
    if process.stdin:
        process.stdin.close()
    process.wait(10)
    if process.stdout:
        process.stdout.close()
