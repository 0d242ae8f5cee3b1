"""The providers count what happens, keep it in a database of their own, and are as different as they say."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from examples.travel.providers import providers
from tests.baddays.waiting import until_now


@pytest.fixture
def urls(tmp_path: Path) -> Iterator[dict[str, str]]:
    with providers(tmp_path, seed=1) as found:
        yield found


def ask(method: str, url: str, key: str = "", **body: str) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    with httpx.Client(trust_env=False, timeout=30) as client:
        return client.request(method, url, headers=headers, json=body or None)


def test_providers(urls: dict[str, str], tmp_path: Path) -> None:
    for name, what in (("hotel", "room"), ("flight", "basic"), ("card", "charge")):
        for _ in range(2):
            assert ask("POST", f"{urls[name]}/orders", "k", trip="t", what=what, cents="5").status_code == 201
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as books:
            counted = books.execute("select number, key, cents from line").fetchall()
        assert counted == [(1, "k", 5), (2, "k", 5)], "none of them takes a key for more than a mark"
        there, gone = ask("GET", f"{urls[name]}/orders?key=k"), ask("GET", f"{urls[name]}/orders?key=x")
        assert (there.status_code, gone.status_code) == ((501, 501) if name == "card" else (200, 404))


def test_the_airline_gives_back_what_was_cheap_only_if_it_is_talked_to(urls: dict[str, str]) -> None:
    flight = urls["flight"]
    ask("POST", f"{flight}/orders", "k", trip="t", what="basic", cents="5")
    assert ask("POST", f"{flight}/undo", "u", number="flight-1", operation="op").status_code == 409
    ask("POST", f"{flight}/waive", trip="t")
    assert ask("POST", f"{flight}/undo", "u", number="flight-1", operation="op").json() == {"number": "flight-2"}
    assert sum(line["cents"] for line in ask("GET", f"{flight}/ledger").json()) == 0


def test_the_hotel_accepts_a_cancellation_once_by_its_key_and_tells_when_it_is_done(urls: dict[str, str]) -> None:
    hotel = urls["hotel"]
    ask("POST", f"{hotel}/orders", "k", trip="t", what="room", cents="5")
    for _ in range(2):
        assert ask("POST", f"{hotel}/undo", "u", number="hotel-1", operation="op").status_code == 202
    until_now(lambda: bool(ask("GET", f"{hotel}/news").json()), "it is done")
    assert ask("GET", f"{hotel}/news").json() == [{"event": "event-1", "operation": "op", "number": "hotel-2"}]
    assert ask("POST", f"{hotel}/undo", "u", number="hotel-1", operation="op").json() == {"number": "hotel-2"}
    assert [line["side"] for line in ask("GET", f"{hotel}/ledger").json()] == ["order", "undo"]
