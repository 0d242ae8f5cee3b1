"""Each way in which the bank misbehaves, forced by a rule or chosen by the seed."""

import json
import socket

import httpx
import pytest

from examples.dunning.bank_process import BankProcess, BankRefused
from examples.dunning.waiting import epoch_ms
from tests.bank.starting import StartBank


def post(client: httpx.Client, invoice: str, key: str | None = None) -> httpx.Response:
    return client.post("/charges", json=_body(invoice), headers={"Idempotency-Key": key or f"key-{invoice}"})


def post_and_leave(bank: BankProcess, invoice: str) -> None:
    """Send the whole request and close the socket without waiting for the answer."""
    body = json.dumps(_body(invoice)).encode()
    head = f"POST /charges HTTP/1.1\r\nIdempotency-Key: key-{invoice}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(bank.url.rpartition(":")[2]))) as connection:
        connection.sendall(head.encode() + body)


def effects(bank: BankProcess) -> dict[str, int]:
    return bank.ledger()["by_invoice"]


def test_act_then_drop_is_an_effect_without_an_answer(bank: BankProcess, client: httpx.Client) -> None:
    bank.rule("act_then_drop", invoice="A")
    with pytest.raises(httpx.RemoteProtocolError):
        post(client, "A")
    assert effects(bank) == {"A": 1}
    assert bank.ledger()["dropped"] == 1
    assert client.get("/charges", params={"key": "key-A"}).json()["charge_id"] == "ch_000001"


def test_drop_before_act_is_neither(bank: BankProcess, client: httpx.Client) -> None:
    bank.rule("drop_before_act", invoice="A")
    with pytest.raises(httpx.RemoteProtocolError):
        post(client, "A")
    assert effects(bank) == {}
    assert bank.ledger()["dropped"] == 1


def test_refuse_answers_503_without_an_effect(bank: BankProcess, client: httpx.Client) -> None:
    bank.rule("refuse", times=2)
    assert [post(client, "A").status_code for _ in range(3)] == [503, 503, 201]
    assert effects(bank) == {"A": 1}


def test_act_then_delay_has_acted_when_the_client_gives_up(bank: BankProcess) -> None:
    bank.rule("act_then_delay", invoice="A", ms=200)
    post_and_leave(bank, "A")
    bank.wait(effects=1)
    assert bank.ledger()["in_progress"] == 1
    bank.wait(answered=1)
    assert bank.ledger()["undelivered"] == 1


def test_delay_then_act_acts_after_the_client_has_given_up(bank: BankProcess) -> None:
    bank.rule("delay_then_act", invoice="A", ms=200)
    before = epoch_ms()
    post_and_leave(bank, "A")
    bank.wait(effects=1, answered=1)
    report = bank.ledger()
    assert report["effects"][0]["at"] >= before + 200
    assert report["undelivered"] == 1


def test_a_delayed_request_is_answered_in_the_end(bank: BankProcess, client: httpx.Client) -> None:
    bank.rule("act_then_delay", ms=50)
    answer = post(client, "A")
    assert answer.status_code == 201
    assert answer.elapsed.total_seconds() >= 0.05


def test_rules_apply_in_order_to_what_they_match_and_run_out(bank: BankProcess, client: httpx.Client) -> None:
    bank.control(rules=[{"mode": "refuse", "invoice": "A"}, {"mode": "refuse", "key": "key-B", "times": None}])
    assert [post(client, name).status_code for name in "CAABBB"] == [201, 503, 201, 503, 503, 503]
    bank.control(clear=True)
    assert post(client, "B").status_code == 201
    assert [visit["fate"] for visit in bank.requests()] == [None, "refuse", None, "refuse", "refuse", "refuse", None]


def test_a_look_up_has_fates_of_its_own(bank: BankProcess, client: httpx.Client) -> None:
    post(client, "A")
    bank.rule("refuse", on="lookup", times=1)
    bank.rule("drop_before_act", on="lookup", times=1)
    assert client.get("/charges", params={"key": "key-A"}).status_code == 503
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/charges", params={"key": "key-A"})
    assert client.get("/charges", params={"key": "key-A"}).status_code == 200


def test_control_refuses_what_it_does_not_understand_and_changes_nothing(
    bank: BankProcess, client: httpx.Client
) -> None:
    not_understood: list[tuple[dict[str, object], str]] = [
        ({"rules": [{"mode": "refuse"}, {"mode": "explode"}]}, "mode"),
        ({"rules": [{"mode": "refuse", "times": 0}]}, "times"),
        ({"rules": [{"mode": "refuse", "colour": "red"}]}, "colour"),
        ({"rules": [{"mode": "refuse"}], "set": {"drop": 0.6, "refuse": 0.6}}, "at most 1"),
        ({"clear": True, "set": {"seed": 5, "dedupe": 1}}, "dedupe"),
        ({"rules": [{"mode": "refuse"}], "release": [7]}, "7"),
        ({"stop": True}, "stop"),
    ]
    bank.rule("drop_before_act", invoice="never")
    before = client.get("/control").json()
    for body, named in not_understood:
        with pytest.raises(BankRefused, match=named) as refused:
            bank.control(**body)
        assert refused.value.status == 400
    assert client.get("/control").json() == before


def test_with_one_seed_an_invoice_meets_the_same_fates_in_any_order(start: StartBank) -> None:
    names = [f"INV-{n}" for n in range(24)]

    def fates(seed: int, order: list[str]) -> dict[str, list[str | None]]:
        bank = start(seed=seed, drop=0.2, drop_before=0.2, refuse=0.2, delay=0.1, delay_before=0.1, delay_ms=1)
        with httpx.Client(base_url=bank.url, trust_env=False, verify=False, timeout=10) as client:
            for name in order:
                _post_whatever_happens(client, name)
        seen: dict[str, list[str | None]] = {name: [] for name in names}
        for visit in bank.requests():
            seen[str(visit["invoice"])].append(visit["fate"])
        bank.stop()
        return seen

    first = fates(1, names * 3)
    assert fates(1, names[::-1] * 3) == first
    assert fates(2, names * 3) != first
    met = [fate for fates_of_one in first.values() for fate in fates_of_one]
    assert {*met} == {None, "act_then_drop", "drop_before_act", "refuse", "act_then_delay", "delay_then_act"}
    assert 5 <= met.count("act_then_drop") <= 25


def _body(invoice: str) -> dict[str, object]:
    return {"invoice": invoice, "customer": "Kaveri Looms", "cents": 100, "provider": "cardnet"}


def _post_whatever_happens(client: httpx.Client, invoice: str) -> None:
    try:
        post(client, invoice)
    except httpx.RemoteProtocolError:
        return
