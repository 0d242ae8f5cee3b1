"""The webhook of the web example with a real client: what is told counts once, and only from who may tell it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import httpx
import pytest

from examples.web.press import genuine, printing, signature
from examples.web.waiting import seconds
from outlive import Outlive
from tests.web.waiting import server, until

SECRET = "between-us"


def tell(url: str, told: dict[str, object], *, secret: str = SECRET, late_s: int = 0) -> int:
    """The answer to a webhook of the press."""
    body, at = json.dumps(told).encode(), str(int(seconds()) - late_s)
    headers = {"Press-Timestamp": at, "Press-Signature": signature(secret, at, body)}
    return httpx.post(f"{url}/press", content=body, headers=headers, timeout=60).status_code


def waits(file: Path) -> str | None:
    """The operation whose outcome is to come, as the press was told it."""
    with sqlite3.connect(file) as connection:
        found = connection.execute("select operation from what_has_it_done where status = 'later'").fetchall()
    return str(found[0][0]) if found else None


def test_the_press_tells_by_a_signed_webhook(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    with server(f"sqlite:///{file}", PRESS_SECRET=SECRET) as first:
        assert httpx.put(f"{first.url}/prints/tea", json={"text": "Tea"}).status_code == 202
        order = until(lambda: waits(file), "the outcome is to come")
        first.kill()
    with server(f"sqlite:///{file}", PRESS_SECRET=SECRET) as second:
        told: dict[str, object] = {"event": "e-1", "order": order, "printed": {"copies": 3, "shelf": "A"}}
        assert tell(second.url, told, secret="guessed") == 403
        assert tell(second.url, told, late_s=3600) == 403
        assert httpx.post(f"{second.url}/press", json=told).status_code == 403
        assert tell(second.url, {**told, "order": "op-none"}) == 404
        assert tell(second.url, {"event": "e-1", "order": order, "printed": {"copies": "many"}}) == 422
        assert httpx.get(f"{second.url}/prints/tea").json()["status"] != "succeeded"
        for _ in range(3):
            assert tell(second.url, told) == 204

        def ended() -> str | None:
            found = httpx.get(f"{second.url}/prints/tea", timeout=60).json()
            return str(found["result"]) if found["status"] == "succeeded" else None

        assert until(ended, "the print is done") == "3 copies on A"


def test_what_cannot_be_taken_now_is_to_be_told_again(tmp_path: Path) -> None:
    """Whoever sends webhooks gives up what is refused, and tells again what failed."""
    file = tmp_path / "runs.db"
    with server(f"sqlite:///{file}", PRESS_SECRET=SECRET) as it:
        assert httpx.put(f"{it.url}/prints/tea", json={"text": "Tea"}).status_code == 202
        order = until(lambda: waits(file), "the outcome is to come")
        asyncio.run(_cancel(f"sqlite:///{file}"))
        denied: dict[str, object] = {"event": "e-1", "order": order}
        assert until(lambda: waits(file) is None or None, "it is cancelled")
        assert tell(it.url, denied) == 503, "a request may still be on its way"


async def _cancel(store: str) -> None:
    app: Outlive[None] = Outlive(store=store)
    async with app:
        await app.handle(printing, "tea").cancel(who="ada")


@pytest.mark.parametrize(("at", "signed"), [("9" * 5000, "00"), ("", "00"), (None, "\xe9"), (None, "")])
def test_a_signature_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, at: str | None, signed: str) -> None:
    monkeypatch.setenv("PRESS_SECRET", SECRET)
    said = {"press-timestamp": str(int(seconds())) if at is None else at, "press-signature": signed}
    assert not genuine(said, b"{}")


def test_without_a_secret_nobody_may_tell(tmp_path: Path) -> None:
    with server(f"sqlite:///{tmp_path / 'runs.db'}") as it:
        assert tell(it.url, {"event": "e-1", "order": "op-1"}, secret="") == 403
