"""The outside service: counts what was done, and meets each request with the fate that the scenario has laid out.

What it has counted is the oracle of every verdict. README.md beside this file is its protocol.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Literal, cast
from urllib.parse import parse_qs, urlsplit

from conformance.waiting import now, pause, waited

Kind = Literal["nothing", "keys", "asked"]
Path = Literal["about", "act", "look"]
Fate = Literal["hold_before", "hold_after", "drop_after", "refuse", "late"]
Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Effect:
    """Something was done, once."""

    run: str
    act: str
    args: Json
    key: str
    receipt: str
    worker: str
    at: float


@dataclass(slots=True)
class Rule:
    """The next `times` requests that fit meet this fate; `late` is a delay of the answer after acting."""

    on: Path
    fate: Fate
    act: str = ""
    times: int = 1
    seconds: float = 0.0

    def fits(self, on: Path, act: str) -> bool:
        return self.times > 0 and self.on == on and self.act in ("", act)


@dataclass(slots=True)
class Held:
    """A request that waits for `release`; None until then, then whether it goes on or is dropped."""

    on: Path
    act: str
    run: str
    worker: str
    go_on: bool | None = None


@dataclass
class Service:
    """One service with its ledger. Threads of the server and of the scenario share it under one lock."""

    kind: Kind
    look_up_lag_s: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _rules: list[Rule] = field(default_factory=list)
    _held: list[Held] = field(default_factory=list)
    _answered: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _began: float = field(default_factory=now)

    def rule(self, on: Path, fate: Fate, act: str = "", *, times: int = 1, seconds: float = 0.0) -> None:
        """Lay out the fate of requests to come."""
        with self._changed:
            self._rules.append(Rule(on, fate, act, times, seconds))

    def wait_held(self, on: Path, act: str = "", limit: float = 90.0) -> Held:
        """The first request that is held at this place. Raises TooLate."""
        with self._changed:
            waited(self._changed, lambda: bool(self._at(on, act)), f"a request is held: {on} {act}", limit)
            return self._at(on, act)[0]

    def release(self, *, go_on: bool = True) -> int:
        """Let all held requests go on, or drop them where they stand; how many there were."""
        with self._changed:
            open_ = [one for one in self._held if one.go_on is None]
            for one in open_:
                one.go_on = go_on
            self._rules = [rule for rule in self._rules if not rule.fate.startswith("hold")]
            self._changed.notify_all()
            return len(open_)

    def wait_effects(self, count: int, act: str = "", limit: float = 90.0) -> None:
        """Return when at least so many effects were counted and answered. Raises TooLate."""
        with self._changed:
            waited(
                self._changed,
                lambda: self._count(act) >= count and self._answered >= count,
                f"{count} effects {act}".strip(),
                limit,
            )

    def wait_requests(self, count: int, word: str, limit: float = 90.0) -> None:
        """Return when so many requests were noted that begin with this word. Raises TooLate."""
        with self._changed:
            waited(
                self._changed,
                lambda: sum(one.split(" ", 2)[1] == word for one in self.requests) >= count,
                f"{count} requests: {word}",
                limit,
            )

    def _at(self, on: Path, act: str) -> list[Held]:
        return [one for one in self._held if one.go_on is None and one.on == on and act in ("", one.act)]

    def _count(self, act: str) -> int:
        return sum(act in ("", effect.act) for effect in self.effects)

    def about(self, run: str, act: str, worker: str) -> bool:
        """An action is announced; False when the request is dropped."""
        rule = self._meet("about", act, f"about {act} of {run} by {worker}")
        return rule is None or self._hold(Held("about", act, run, worker))

    def act(self, run: str, act: str, args: Json, key: str, worker: str) -> tuple[int, Json] | None:
        """Act as the rules say: the answer, or None when the request is dropped."""
        rule = self._meet("act", act, f"act {act} of {run} by {worker}")
        fate = rule.fate if rule else ""
        if fate == "refuse":
            return 503, {"error": "refused before acting"}
        if fate == "hold_before" and not self._hold(Held("act", act, run, worker)):
            return None
        effect = self._done(run, act, args, key, worker)
        if fate == "drop_after":
            return None
        if fate == "late" and rule is not None:
            pause(rule.seconds)
        if fate == "hold_after" and not self._hold(Held("act", act, run, worker)):
            return None
        with self._changed:
            self._answered += 1
            self._changed.notify_all()
        return 200, {"receipt": effect.receipt}

    def _done(self, run: str, act: str, args: Json, key: str, worker: str) -> Effect:
        with self._changed:
            earlier = next((one for one in self.effects if key and one.key == key), None)
            if self.kind == "keys" and earlier is not None:
                return earlier
            effect = Effect(run, act, args, key, f"r-{len(self.effects) + 1}", worker, round(now() - self._began, 2))
            self.effects.append(effect)
            self._changed.notify_all()
            return effect

    def look(self, key: str) -> tuple[int, Json]:
        """What was done under this key, as far as this service can say it by now."""
        self._meet("look", "", f"look {key}")
        with self._changed:
            if self.kind == "nothing":
                return 501, {"error": "this service cannot be asked"}
            found = next((one for one in self.effects if one.key == key), None)
            if found is None or now() - self._began - found.at < self.look_up_lag_s:
                return 404, {"error": "nothing under this key"}
            return 200, {"receipt": found.receipt}

    def _meet(self, on: Path, act: str, note: str) -> Rule | None:
        with self._changed:
            self.requests.append(f"{now() - self._began:.2f} {note}")
            rule = next((rule for rule in self._rules if rule.fits(on, act)), None)
            if rule is not None:
                rule.times -= 1
            self._changed.notify_all()
            return rule

    def _hold(self, held: Held) -> bool:
        with self._changed:
            self._held.append(held)
            self._changed.notify_all()
            self._changed.wait_for(lambda: held.go_on is not None)
            return bool(held.go_on)


class _Clerk(BaseHTTPRequestHandler):
    """HTTP in front of a Service."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024

    def __init__(self, service: Service, request: socket.socket, address: tuple[str, int], server: BaseServer) -> None:
        self.service = service
        super().__init__(request, address, server)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        worker, run, act = self.headers.get("X-Worker", ""), str(body["run"]), str(body["act"])
        if self.path == "/about":
            self._answer((200, {}) if self.service.about(run, act, worker) else None)
        else:
            key = self.headers.get("Idempotency-Key", "")
            self._answer(self.service.act(run, act, cast(Json, body["args"]), key, worker))

    def do_GET(self) -> None:
        [key] = parse_qs(urlsplit(self.path).query).get("key", [""])
        self._answer(self.service.look(key))

    def _answer(self, answer: tuple[int, Json] | None) -> None:
        self.close_connection = True
        if answer is None:
            return
        body = json.dumps(answer[1]).encode()
        self.send_response(answer[0])
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    """A caller that was killed is no error of ours."""

    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class Desk:
    """A service that answers on a port of its own, until closed."""

    def __init__(self, kind: Kind) -> None:
        self.service = Service(kind)
        self._server = _Quiet(("127.0.0.1", 0), partial(_Clerk, self.service))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.service.release(go_on=False)
        self._server.shutdown()
        self._server.server_close()
