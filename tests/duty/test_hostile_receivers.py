"""Receivers of notifications that answer what they should not: it is a delivery that failed, on one line for people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from outlive.duty.route import Route
from outlive.duty.telling import Sender
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.notice import Notification
from outlive.secret.scrubber import Scrubber
from outlive.testing.clock import ManualClock
from tests.duty.receiver import Receiver, receiving
from tests.duty.test_telling import Planted


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


STEERS = "\x1b]0;mine\x07\x1b[2J \u202e\x9b31m"
ANSWERS = [
    f"HTTP/1.1 500 {STEERS}\n2026-01-01 ERROR root: forged\r\n\r\n{STEERS}\n\0forged".encode(),
    f"HTTP/1.1 500 no\r\n\r\n{STEERS}".encode("latin-1", "replace"),
    f"{STEERS}\r\n\r\n".encode(),
    b"HTTP/1.1 \xb2\xb3\xb9 digits\r\n\r\n",
    b"HTTP/1.1 \xff\r\n\r\n",
    b"HTTP/1.1 100 again\r\n\r\n" * 3000,
    b"HTTP/1.1 500 no\r\n" + b"x: " + b"y" * 200_000 + b"\r\n\r\n",
    b"\r\n\r\n",
    b"",
    *(
        b"HTTP/1.1 503 later\r\nRetry-After: %s\r\n\r\n" % given
        for given in (
            b"-1", b"9" * 5000, b"1e400", b"\xff\xfe", b"Sun, 99 Foo 99999 99:99:99 GMT", b",", b"()", b"(", b"Mon",
            b"Mon, 1 Jan 2026 00:00:00 +999999999999999", b"\xb2", b"NaN", b"Sun, 06 Nov 1994 08:49:37 -0000",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(ANSWERS)))
async def test_whatever_a_receiver_says_is_one_printable_line(receiver: Receiver, place: int) -> None:
    receiver.answer = lambda _: ANSWERS[place]
    sender = Sender(ManualClock(), Planted(), Scrubber())
    route = Route("ops", url=receiver.url, timeout=timedelta(seconds=5))
    told = Notification(DEFAULT_TENANT, RunId("r"), "", 0, "test", "id", "", {}, 0)
    answer = await sender.send(route, told)
    assert not answer.delivered
    assert answer.said.isprintable()
    assert 0 <= answer.wait_s <= 86_400
