"""The ledger on disk: what a killed bank leaves, and what another bank makes of it."""

import json
import resource
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from examples.dunning.bank_process import ROOT, BankProcess
from examples.dunning.ledger import Effect, Ledger, LedgerInUse, LedgerUnreadable
from tests.bank.starting import StartBank

EFFECT = Effect("ch_000001", "k", "A", "Kőrösi Optika", 100, "cardnet", 1_767_225_600_000, 1)


def charge(bank: BankProcess, key: str, provider: str = "cardnet") -> httpx.Response:
    body = {"invoice": key, "customer": "Kőrösi Optika", "cents": 100, "provider": provider}
    with httpx.Client(base_url=bank.url, trust_env=False, verify=False) as client:
        return client.post("/charges", json=body, headers={"Idempotency-Key": key})


def write_one_line(path: Path) -> bytes:
    with closing(Ledger(path)) as ledger:
        ledger.append(EFFECT)
    return path.read_bytes()


def test_an_answered_charge_is_a_line_and_survives_the_death_of_the_bank(start: StartBank) -> None:
    bank = start()
    charge(bank, "k1")
    charge(bank, "k2", "blindpay")
    bank.kill()
    lines = [json.loads(line) for line in bank.ledger_path.read_text("utf-8").splitlines()]
    assert [(line["key"], line["customer"], line["request"]) for line in lines] == [
        ("k1", "Kőrösi Optika", 1),
        ("k2", "Kőrösi Optika", 2),
    ]

    again = start(port=int(bank.url.rpartition(":")[2]))
    assert again.url == bank.url
    assert again.ledger()["effects"] == lines
    assert charge(again, "k1").json()["charge_id"] == "ch_000003"
    assert again.ledger()["duplicates"] == ["ch_000003"]
    assert again.requests()[0]["request"] == 3
    assert httpx.get(again.url + "/charges", params={"key": "k2"}, trust_env=False, verify=False).status_code == 501


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    whole = write_one_line(path)
    path.write_bytes(whole + whole[:40])
    with closing(Ledger(path)) as second:
        assert second.effects == [EFFECT]
        second.append(EFFECT)
    assert path.read_bytes() == whole * 2


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(write_one_line(path) + b'{"charge_id": "ch_000002"}\n')
    for _ in range(2):
        with pytest.raises(LedgerUnreadable, match="line 2"):
            Ledger(path)


def test_one_ledger_has_one_bank(bank: BankProcess) -> None:
    with pytest.raises(LedgerInUse):
        Ledger(bank.ledger_path)
    command = [sys.executable, "-m", "examples.dunning.bank", "--ledger", str(bank.ledger_path)]
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr == f"bank: {bank.ledger_path} is open in another bank\n"


def test_what_cannot_be_recorded_does_not_happen(bank: BankProcess) -> None:
    charge(bank, "k1")
    before = bank.ledger_path.read_bytes()
    resource.prlimit(bank.process.pid, resource.RLIMIT_FSIZE, (len(before) + 10, resource.RLIM_INFINITY))
    refused = charge(bank, "k2")
    assert refused.status_code == 500
    assert bank.ledger()["by_key"] == {"k1": 1}
    assert bank.ledger_path.read_bytes() == before
    resource.prlimit(bank.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert charge(bank, "k2").status_code == 201


def test_the_bank_stops_when_its_starter_is_gone(bank: BankProcess) -> None:
    assert bank.process.stdin is not None
    bank.process.stdin.close()
    assert bank.process.wait(10) == 0


def test_a_wrong_option_is_said_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.dunning.bank", "--ledger", str(tmp_path / "l"), "--drop", "2"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("bank: drop, ") and refused.stderr.count("\n") == 1
