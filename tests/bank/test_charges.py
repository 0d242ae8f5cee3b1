"""The bank at rest: what it records, what it answers, what it refuses."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from examples.dunning.bank_process import BankProcess
from examples.dunning.waiting import epoch_ms

BODY = {"invoice": "INV-1", "customer": "Zawadi Flower Exports", "cents": 4200, "provider": "cardnet"}


def post(client: httpx.Client, key: str = "k1", /, **changes: object) -> httpx.Response:
    return client.post("/charges", json={**BODY, **changes}, headers={"Idempotency-Key": key})


def test_a_charge_is_recorded_answered_and_found(bank: BankProcess, client: httpx.Client) -> None:
    assert client.get("/charges", params={"key": "k1"}).status_code == 404
    before = epoch_ms()
    made = post(client)
    assert (made.status_code, made.json()) == (201, {"charge_id": "ch_000001", "invoice": "INV-1", "cents": 4200})
    found = client.get("/charges", params={"key": "k1"})
    assert (found.status_code, found.json()) == (200, made.json())

    (effect,) = bank.ledger()["effects"]
    assert before <= effect["at"] <= epoch_ms()
    assert effect == {**BODY, "charge_id": "ch_000001", "key": "k1", "at": effect["at"], "request": 2}


def test_a_refund_is_an_effect_of_its_own(bank: BankProcess, client: httpx.Client) -> None:
    post(client)
    made = client.post("/refunds", json={"charge_id": "ch_000001"}, headers={"Idempotency-Key": "k2"})
    assert (made.status_code, made.json()) == (
        201, {"charge_id": "ch_000002", "invoice": "refund of INV-1", "cents": -4200},
    )  # fmt: skip
    assert client.get("/charges", params={"key": "k2"}).json() == made.json()
    assert bank.ledger()["by_invoice"] == {"INV-1": 1, "refund of INV-1": 1}
    gone = client.post("/refunds", json={"charge_id": "ch_9"}, headers={"Idempotency-Key": "k3"})
    assert gone.status_code == 404


def test_repeats_are_recorded_and_counted_as_duplicates(bank: BankProcess, client: httpx.Client) -> None:
    post(client)
    post(client)
    post(client, "k2")
    post(client, "k3", invoice="INV-2")

    report = bank.ledger()
    assert report["by_key"] == {"k1": 2, "k2": 1, "k3": 1}
    assert report["by_invoice"] == {"INV-1": 3, "INV-2": 1}
    assert report["duplicates"] == ["ch_000002", "ch_000003"]
    assert (report["requests"], report["answers"]) == (4, {"201": 4})


def test_a_declined_card_is_not_an_effect(bank: BankProcess, client: httpx.Client) -> None:
    assert post(client, card="tok_declined").status_code == 402
    assert client.get("/charges", params={"key": "k1"}).status_code == 404
    assert bank.ledger()["effects"] == []


def test_blindpay_acts_and_cannot_be_looked_up(bank: BankProcess, client: httpx.Client) -> None:
    assert post(client, provider="blindpay").status_code == 201
    assert client.get("/charges", params={"key": "k1"}).status_code == 501

    bank.rule("drop_before_act", invoice="INV-2")
    with pytest.raises(httpx.RemoteProtocolError):
        post(client, "k2", provider="blindpay", invoice="INV-2")
    assert client.get("/charges", params={"key": "k2"}).status_code == 501, "a 404 would say that it did not act"
    assert client.get("/charges", params={"key": "k9", "provider": "blindpay"}).status_code == 501
    assert len(bank.ledger()["effects"]) == 1


def test_dedupe_returns_the_first_charge_even_to_requests_at_the_same_moment(
    bank: BankProcess, client: httpx.Client
) -> None:
    bank.control(set={"dedupe": True})
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(client), range(8)))
    assert [(answer.status_code, answer.json()["charge_id"]) for answer in answers] == [(201, "ch_000001")] * 8
    assert post(client, cents=1).status_code == 422
    assert bank.ledger()["by_key"] == {"k1": 1}


def test_not_after_is_honoured_only_when_told_to(bank: BankProcess, client: httpx.Client) -> None:
    def post_before(key: str, not_after: int) -> int:
        headers = {"Idempotency-Key": key, "X-Not-After": str(not_after)}
        return client.post("/charges", json=BODY, headers=headers).status_code

    past, future = epoch_ms() - 1, epoch_ms() + 60_000
    assert post_before("ignored", past) == 201
    bank.control(set={"honour_not_after": True})
    assert [post_before("late", past), post_before("in-time", future)] == [409, 201]
    assert bank.ledger()["by_key"] == {"ignored": 1, "in-time": 1}


def test_a_look_up_may_lag_behind_the_act(bank: BankProcess, client: httpx.Client) -> None:
    bank.control(set={"lookup_lag_ms": 60_000})
    post(client)
    assert client.get("/charges", params={"key": "k1"}).status_code == 404
    assert bank.ledger()["by_key"] == {"k1": 1}
    bank.control(set={"lookup_lag_ms": 0})
    assert client.get("/charges", params={"key": "k1"}).status_code == 200


def test_a_malformed_charge_is_refused_by_name(bank: BankProcess, client: httpx.Client) -> None:
    malformed: list[dict[str, object]] = [{"cents": 0}, {"cents": True}, {"invoice": ""}, {"provider": 1}, {"card": 7}]
    for changes in malformed:
        refused = post(client, "k1", **changes)
        assert refused.status_code == 400
        assert refused.json()["error"].startswith(next(iter(changes)))
    assert bank.ledger()["requests"] == 0


def test_other_malformed_requests_are_refused_and_the_connection_stays_usable(client: httpx.Client) -> None:
    assert client.post("/charges", json=BODY).status_code == 400
    assert client.post("/charges", content=b"{", headers={"Idempotency-Key": "k"}).status_code == 400
    assert client.post("/nowhere", json=BODY).status_code == 404
    headers = {"Idempotency-Key": "k", "X-Not-After": "tomorrow"}
    assert client.post("/charges", json=BODY, headers=headers).status_code == 400
    assert client.get("/charges").status_code == 400
    assert client.get("/health").json() == {"ok": True}


def test_hundreds_of_connections_at_once(bank: BankProcess) -> None:
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=200)
    with (
        httpx.Client(base_url=bank.url, trust_env=False, verify=False, timeout=30, limits=limits) as client,
        ThreadPoolExecutor(64) as pool,
    ):
        answers = list(pool.map(lambda n: post(client, f"k{n}", invoice=f"INV-{n}").status_code, range(300)))
    report = bank.ledger()
    assert answers == [201] * 300
    assert report["by_key"] == {f"k{n}": 1 for n in range(300)}
    assert (report["in_progress"], report["undelivered"]) == (0, 0)
