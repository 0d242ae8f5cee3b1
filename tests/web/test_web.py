"""The web example with real clients and servers: connections are dropped, a server is killed, nothing is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.web.waiting import server

Frame = dict[str, str]
# Nothing comes after these until something else has happened.
_LAST = ("run.asked", "run.ended")


@dataclass
class Reader:
    """Follows a run as a browser does. It drops the connection after each event, or in the middle of the one after."""

    url: str
    run: str
    midway: bool = False
    seen: list[Frame] = field(default_factory=list)
    connections: int = 0

    def until(self, name: str) -> Frame:
        """Connect again and again, until such an event has come."""
        while not self.seen or self.seen[-1]["event"] != name:
            self._once()
        return self.seen[-1]

    def _once(self) -> None:
        self.connections += 1
        headers = {"Last-Event-ID": self.seen[-1]["id"]} if self.seen else {}
        with httpx.stream("GET", f"{self.url}/reports/{self.run}/events", headers=headers, timeout=60) as answer:
            answer.raise_for_status()
            frame, complete = Frame(), 0
            for line in answer.iter_lines():
                if line:
                    key, _, frame[key] = line.partition(": ")
                else:
                    if frame["event"] == "delta":
                        assert "id" not in frame, "who reconnects with it would not be where the log was"
                        frame = Frame()
                        continue
                    self.seen.append(frame)
                    frame, complete = Frame(), complete + 1
                if complete and (frame or not self.midway or self.seen[-1]["event"] in _LAST):
                    return


def in_one_go(url: str, run: str) -> list[Frame]:
    """All events of a run that has ended, on one connection."""
    frames = httpx.get(f"{url}/reports/{run}/events", timeout=60).text.split("\n\n")
    return [
        {key: value for key, _, value in (line.partition(": ") for line in one.splitlines())} for one in frames if one
    ]


def test_who_loses_every_connection_misses_nothing_and_sees_nothing_twice(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    with server(store) as first:
        for _ in range(2):
            started = httpx.put(f"{first.url}/reports/tea", json={"topic": "Tea", "sections": 5})
            assert started.status_code == 202, started.text
        readers = [Reader(first.url, "tea"), Reader(first.url, "tea", midway=True)]
        [asked, _] = [json.loads(reader.until("run.asked")["data"]) for reader in readers]
        assert (asked["question"], asked["role"]) == ("Publish the report on Tea?", "editor")
        first.kill()
    with server(store) as second:
        for who in ("ada", "bea"):
            said = {"question": asked["id"], "verdict": {"publish": True, "who": who}}
            assert httpx.post(f"{second.url}/reports/tea/answers", json=said).status_code == 204
        for reader in readers:
            reader.url = second.url
            reader.until("run.ended")
            assert reader.seen == in_one_go(second.url, "tea")
            assert reader.connections == len(reader.seen) if not reader.midway else reader.connections > 5
        assert httpx.get(f"{second.url}/reports/tea").json()["status"] == "succeeded"
        second.stop()
        assert "Application shutdown complete" in second.said[-2], second.said
    sections = [("section", {"number": number, "text": f"Tea, section {number}"}) for number in range(1, 6)]
    assert [(one["event"], json.loads(one["data"])) for one in readers[0].seen] == [
        *sections, ("run.asked", asked), ("published", {"by": "ada"}),
        ("run.ended", {"status": "succeeded", "reason": ""}),
    ]  # fmt: skip


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with server(f"sqlite:///{tmp_path / 'runs.db'}") as it, httpx.Client(base_url=it.url) as client:
        assert "EventSource" in client.get("/").text
        assert client.get("/reports/none").status_code == 404
        assert client.get("/reports/none/events").status_code == 404
        assert client.put("/reports/tea", json={"topic": "Tea"}).status_code == 202
        assert client.put("/reports/tea", json={"topic": "Coffee"}).status_code == 409
        assert client.put("/reports/tea", json={}).status_code == 422
        assert client.get("/reports/tea/events", headers={"Last-Event-ID": "x"}).status_code == 400
        wrong = {"question": "none", "verdict": {"publish": True, "who": "ada"}}
        assert client.post("/reports/tea/answers", json=wrong).status_code == 400
