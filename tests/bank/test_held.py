"""Requests that the bank holds: a client is killed at an exact moment, before or after the act."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from examples.dunning.bank_process import BankProcess
from examples.dunning.waiting import epoch_ms

CHARGE = """
import json, sys, urllib.request
body = {"invoice": "A", "customer": "Karoo Wind Pumps", "cents": 900, "provider": "cardnet"}
headers = {"Idempotency-Key": "key-A", "Content-Type": "application/json"}
request = urllib.request.Request(sys.argv[1] + "/charges", json.dumps(body).encode(), headers)
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
"""


@contextmanager
def charging(bank: BankProcess) -> Iterator[subprocess.Popen[bytes]]:
    """A process that charges invoice A once."""
    with subprocess.Popen([sys.executable, "-c", CHARGE, bank.url]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_killed_between_act_and_answer(bank: BankProcess) -> None:
    bank.rule("hold", when="after", invoice="A")
    with charging(bank) as process:
        (held,) = bank.wait_held(1)
        assert (held["invoice"], held["key"], held["when"], held["on"]) == ("A", "key-A", "after", "charge")
        process.kill()
        process.wait()
    assert bank.ledger()["by_key"] == {"key-A": 1}
    bank.release(held["request"])
    bank.wait(answered=1)
    report = bank.ledger()
    assert (report["by_key"], report["undelivered"], report["in_progress"]) == ({"key-A": 1}, 1, 0)


def test_killed_before_the_act_which_still_happens_once_released(bank: BankProcess) -> None:
    bank.rule("hold", when="before")
    with charging(bank) as process:
        bank.wait_held(1)
        process.kill()
        process.wait()
    assert bank.ledger()["effects"] == []
    bank.release()
    bank.wait(effects=1, answered=1)
    assert bank.ledger()["undelivered"] == 1


def test_released_to_be_dropped_before_or_after_the_act(bank: BankProcess, client: httpx.Client) -> None:
    bank.rule("hold", when="before", invoice="A")
    bank.rule("hold", when="after", invoice="B")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(_post, client, invoice) for invoice in "AB"]
        bank.wait_held(2)
        bank.release(then="drop")
        for dropped in waiting:
            with pytest.raises(httpx.RemoteProtocolError):
                dropped.result(10)
    report = bank.ledger()
    assert (report["by_invoice"], report["dropped"]) == ({"B": 1}, 2)


def test_released_one_by_one(bank: BankProcess, client: httpx.Client) -> None:
    bank.rule("hold", times=None)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_post, client, "A")
        (held,) = bank.wait_held(1)
        second = pool.submit(_post, client, "B")
        assert {item["invoice"] for item in bank.wait_held(2)} == {"A", "B"}
        bank.release(held["request"])
        assert first.result(10).json()["invoice"] == "A"
        assert [item["invoice"] for item in client.get("/control/held").json()["held"]] == ["B"]
        bank.release()
        assert second.result(10).status_code == 201


def test_not_after_is_judged_when_the_held_request_acts(bank: BankProcess, client: httpx.Client) -> None:
    bank.control(set={"honour_not_after": True}, rules=[{"mode": "hold", "when": "before"}])
    not_after = epoch_ms() + 400
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_post, client, "A", {"X-Not-After": str(not_after)})
        bank.wait_held(1)
        with pytest.raises(TimeoutError):
            bank.wait(effects=1, timeout=0.5)
        bank.release()
        assert waiting.result(10).status_code == 409
    assert bank.ledger()["effects"] == []


def test_waiting_in_vain_says_what_was_awaited(bank: BankProcess) -> None:
    with pytest.raises(TimeoutError, match="held.*1"):
        bank.wait_held(1, timeout=0.05)


def _post(client: httpx.Client, invoice: str, headers: dict[str, str] | None = None) -> httpx.Response:
    body = {"invoice": invoice, "customer": "Karoo Wind Pumps", "cents": 900, "provider": "cardnet"}
    return client.post("/charges", json=body, headers={"Idempotency-Key": f"key-{invoice}", **(headers or {})})
