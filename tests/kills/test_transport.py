"""The guarded transport asks at the hand-over and again when the first byte is about to be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import httpx
import pytest

from examples.dunning.bank_process import BankProcess
from outlive import NotSent, Operation
from outlive.engine.operation import sending
from outlive.http import GuardedTransport

BODY = {"invoice": "A", "customer": "Karoo Wind Pumps", "cents": 900, "provider": "cardnet"}


class Window:
    """Stands for an operation whose window is over from the n-th check on."""

    def __init__(self, closes_at: int) -> None:
        self.checks, self.writes, self._closes_at = 0, 0, closes_at

    def guard(self) -> None:
        self.checks += 1
        if self.checks >= self._closes_at:
            raise NotSent("the send window is over")

    def sent(self) -> None:
        self.writes += 1


@contextmanager
def being_sent(window: Window) -> Iterator[Window]:
    before = sending.set(cast("Operation[object]", window))
    try:
        yield window
    finally:
        sending.reset(before)


async def charge(client: httpx.AsyncClient, key: str = "k") -> int:
    return (await client.post("/charges", json=BODY, headers={"Idempotency-Key": key})).status_code


async def test_guarded(tmp_path: Path) -> None:
    with BankProcess.start(tmp_path / "ledger.jsonl") as bank:
        async with httpx.AsyncClient(base_url=bank.url, transport=GuardedTransport()) as client:
            for closes_at in (1, 2):
                with being_sent(Window(closes_at)) as window, pytest.raises(NotSent):
                    await charge(client)
                assert window.checks == closes_at
            assert bank.ledger()["requests"] == 0
            with being_sent(Window(3)) as window:
                assert await charge(client) == 201
            assert window.checks == 2
            assert await charge(client, "k2") == 201  # no operation, nothing to ask
            assert len(bank.ledger()["effects"]) == 2


async def test_a_trace_of_the_callers_still_hears_everything(tmp_path: Path) -> None:
    heard: list[str] = []

    async def trace(event: str, info: object) -> None:
        heard.append(event)

    with BankProcess.start(tmp_path / "ledger.jsonl") as bank:
        async with httpx.AsyncClient(base_url=bank.url, transport=GuardedTransport()) as client:
            with being_sent(Window(9)):
                await client.get("/charges", params={"key": "k"}, extensions={"trace": trace})
    assert "http11.send_request_headers.started" in heard
    assert "http11.receive_response_headers.complete" in heard
