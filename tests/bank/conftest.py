from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Unpack

import httpx
import pytest

from examples.dunning.bank_process import BankProcess, Modes
from tests.bank.starting import StartBank


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartBank]:
    """Start a bank with the given modes on one ledger per test; every bank started is stopped."""
    with ExitStack() as stack:

        def start_bank(**modes: Unpack[Modes]) -> BankProcess:
            return stack.enter_context(BankProcess.start(tmp_path / "ledger.jsonl", **modes))

        yield start_bank


@pytest.fixture
def bank(start: StartBank) -> BankProcess:
    return start()


@pytest.fixture
def client(bank: BankProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=bank.url, trust_env=False, verify=False, timeout=10) as client:
        yield client
