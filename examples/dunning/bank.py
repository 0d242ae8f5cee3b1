"""The bank: an HTTP service in a process of its own that records every effect and can lose its answers.

It is the witness of the crash tests. It does not dedupe unless told to, so a charge sent twice is two effects in its
ledger, and it answers only after the effect is on disk. README.md beside this file is its protocol.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer, TCPServer
from typing import cast
from urllib.parse import parse_qs, urlsplit

from examples.dunning.faults import (
    BadControl,
    Fate,
    Moment,
    Rule,
    Settings,
    Verb,
    fate_by_seed,
    parse_rule,
    parse_settings,
)
from examples.dunning.ledger import Effect, Ledger, LedgerInUse, LedgerUnreadable, count
from examples.dunning.waiting import epoch_ms, pause

BLIND = "blindpay"
DECLINED = "tok_declined"
BODY_LIMIT = 64 * 1024
WAIT_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and JSON body of a response."""

    status: int
    body: Mapping[str, object]


class BadRequest(Exception):
    """The request is refused before it counts as one; `status` is the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Charge:
    """What a client asks for, checked; `card` decides only whether it is declined."""

    invoice: str
    customer: str
    cents: int
    provider: str
    card: str | None


@dataclass(slots=True)
class Visit:
    """One request for a charge or a look-up. `answer` is None until it is decided, then a status or "dropped"."""

    request: int
    on: Verb
    key: str
    invoice: str | None
    provider: str | None
    fate: Fate
    answer: int | str | None = None
    delivered: bool = False


class Bank:
    """Ledger, rules and requests in progress, under one lock; `_changed` is notified at every change of any of them."""

    def __init__(self, ledger: Ledger, settings: Settings) -> None:
        self._ledger = ledger
        self._settings = settings
        self._rules: list[Rule] = []
        self._visits: list[Visit] = []
        self._first_request = max((effect.request for effect in ledger.effects), default=0) + 1
        self._charges_of: Counter[str] = Counter()
        self._blind_keys = {effect.key for effect in ledger.effects if effect.provider == BLIND}
        self._held: dict[int, Moment] = {}
        self._released: dict[int, bool] = {}
        self._changed = threading.Condition()

    def charge(self, key: str, charge: Charge, not_after: int | None) -> tuple[Visit, Answer | None]:
        """The answer is None where the socket must be closed without one."""
        facts = {"key": key, "invoice": charge.invoice, "customer": charge.customer, "provider": charge.provider}
        visit = self._arrive("charge", facts)
        return visit, self._meet_fate(visit, lambda: self._act(visit, charge, not_after))

    def undoing(self, charge_id: str) -> Charge:
        """The charge that gives another one back, recorded as the invoice `refund of …`."""
        with self._changed:
            for one in self._ledger.effects:
                if one.charge_id == charge_id:
                    return Charge(f"refund of {one.invoice}", one.customer, -one.cents, one.provider, None)
        raise BadRequest(404, f"no charge {charge_id}")

    def look_up(self, key: str, provider: str | None) -> tuple[Visit, Answer | None]:
        visit = self._arrive("lookup", {"key": key, "provider": provider})
        return visit, self._meet_fate(visit, lambda: self._find(key, provider))

    def _arrive(self, on: Verb, facts: Mapping[str, str | None]) -> Visit:
        with self._changed:
            invoice, provider, key = facts.get("invoice"), facts.get("provider"), facts["key"] or ""
            if on == "charge" and provider == BLIND:
                self._blind_keys.add(key)
            rule = next((rule for rule in self._rules if rule.matches(on, facts)), None)
            fate = Fate()
            if invoice is not None:
                self._charges_of[invoice] += 1
                fate = fate_by_seed(self._settings, invoice, self._charges_of[invoice])
            if rule is not None:
                fate = rule.apply()
            visit = Visit(self._first_request + len(self._visits), on, key, invoice, provider, fate)
            self._visits.append(visit)
            self._changed.notify_all()
            return visit

    def _meet_fate(self, visit: Visit, act: Callable[[], Answer]) -> Answer | None:
        fate = visit.fate
        if fate.mode == "refuse":
            return Answer(503, {"error": "refused before acting"})
        if fate.mode == "drop_before_act":
            return None
        if fate.mode == "delay_then_act":
            pause(fate.ms)
        if fate.mode == "hold" and fate.when == "before" and not self._hold(visit):
            return None
        answer = act()
        if fate.mode == "act_then_drop":
            return None
        if fate.mode == "act_then_delay":
            pause(fate.ms)
        if fate.mode == "hold" and fate.when == "after" and not self._hold(visit):
            return None
        return answer

    def _hold(self, visit: Visit) -> bool:
        """Block until released; False when the release says to drop the request where it stands."""
        with self._changed:
            self._held[visit.request] = visit.fate.when
            self._changed.notify_all()
            self._changed.wait_for(lambda: visit.request in self._released)
            del self._held[visit.request]
            return self._released.pop(visit.request)

    def _act(self, visit: Visit, charge: Charge, not_after: int | None) -> Answer:
        with self._changed:
            earlier = self._first(visit.key) if self._settings.dedupe else None
            if earlier is not None:
                return _repeated(earlier, charge)
            now = epoch_ms()
            if self._settings.honour_not_after and not_after is not None and now > not_after:
                return Answer(409, {"error": f"not acted: {now - not_after} ms after X-Not-After"})
            if charge.card == DECLINED:
                return Answer(402, {"error": "card declined", "invoice": charge.invoice})
            charge_id = f"ch_{len(self._ledger.effects) + 1:06d}"
            effect = Effect(
                charge_id, visit.key, charge.invoice, charge.customer, charge.cents, charge.provider, now, visit.request
            )
            try:
                self._ledger.append(effect)
            except OSError as error:
                return Answer(500, {"error": f"not acted: {error}"})
            self._changed.notify_all()
            return Answer(201, _receipt(effect))

    def _find(self, key: str, provider: str | None) -> Answer:
        with self._changed:
            if provider == BLIND or key in self._blind_keys:
                return Answer(501, {"error": f"{BLIND} has no look-up"})
            effect = self._first(key)
            if effect is None or epoch_ms() - effect.at < self._settings.lookup_lag_ms:
                return Answer(404, {"error": "no charge under this key"})
            return Answer(200, _receipt(effect))

    def _first(self, key: str) -> Effect | None:
        return next((effect for effect in self._ledger.effects if effect.key == key), None)

    def answered(self, visit: Visit, answer: Answer | None, delivered: bool) -> None:
        with self._changed:
            visit.answer = "dropped" if answer is None else answer.status
            visit.delivered = delivered
            self._changed.notify_all()

    def report(self) -> dict[str, object]:
        with self._changed:
            answers = Counter(str(visit.answer) for visit in self._visits if visit.answer is not None)
            return {
                "effects": [asdict(effect) for effect in self._ledger.effects],
                **count(self._ledger.effects),
                "requests": len(self._visits),
                "answers": dict(answers),
                "dropped": answers["dropped"],
                "undelivered": sum(isinstance(v.answer, int) and not v.delivered for v in self._visits),
                "in_progress": sum(visit.answer is None for visit in self._visits),
            }

    def visits(self) -> dict[str, object]:
        with self._changed:
            return {"requests": [{**asdict(visit), "fate": visit.fate.mode} for visit in self._visits]}

    def state(self) -> dict[str, object]:
        with self._changed:
            return {
                "settings": asdict(self._settings),
                "rules": [asdict(rule) for rule in self._rules if rule.times != 0],
                "held": self._held_now(),
            }

    def _held_now(self) -> list[dict[str, object]]:
        return [
            {"request": v.request, "when": self._held[v.request], "on": v.on, "key": v.key, "invoice": v.invoice}
            for v in self._visits
            if v.request in self._held and v.request not in self._released
        ]

    def control(self, raw: Mapping[str, object]) -> dict[str, object]:
        """Apply all of `raw` or, on BadControl, nothing of it."""
        if unknown := sorted(set(raw) - {"clear", "set", "rules", "release", "then"}):
            raise BadControl(f"control: unknown field {unknown[0]!r}")
        rules = raw.get("rules", [])
        if not isinstance(rules, list):
            raise BadControl(f"rules: a list, not {rules!r}")
        parsed = [parse_rule(rule) for rule in rules]
        release, then = raw.get("release", []), raw.get("then", "go_on")
        if release != "all" and not isinstance(release, list):
            raise BadControl(f'release: "all" or a list of request numbers, not {release!r}')
        if then not in ("go_on", "drop"):
            raise BadControl(f"then: go_on or drop, not {then!r}")
        with self._changed:
            held = [request for request in self._held if request not in self._released]
            chosen = held if release == "all" else cast(list[int], release)
            if strangers := [request for request in chosen if request not in held]:
                raise BadControl(f"release: request {strangers[0]!r} is not held")
            self._settings = parse_settings(self._settings, raw.get("set", {}))
            self._rules = [*([] if raw.get("clear") else self._rules), *parsed]
            self._released.update(dict.fromkeys(chosen, then == "go_on"))
            self._changed.notify_all()
            return self.state()

    def wait(self, wanted: Mapping[str, int], timeout: float) -> Answer:
        """200 once every count of `wanted` is reached, 408 after `timeout` seconds."""

        def reached() -> dict[str, int]:
            return {
                "held": len(self._held_now()),
                "effects": len(self._ledger.effects),
                "requests": len(self._visits),
                "answered": sum(visit.answer is not None for visit in self._visits),
            }

        with self._changed:
            done = self._changed.wait_for(lambda: all(reached()[name] >= n for name, n in wanted.items()), timeout)
            return Answer(200 if done else 408, {**reached(), "held": self._held_now()})


def _receipt(effect: Effect) -> dict[str, object]:
    return {"charge_id": effect.charge_id, "invoice": effect.invoice, "cents": effect.cents}


def _repeated(first: Effect, charge: Charge) -> Answer:
    asked = (charge.invoice, charge.customer, charge.cents, charge.provider)
    if asked != (first.invoice, first.customer, first.cents, first.provider):
        return Answer(422, {"error": f"this key was used for another charge: {first.charge_id}"})
    return Answer(201, _receipt(first))


class Teller(BaseHTTPRequestHandler):
    """HTTP in front of a Bank: one thread per connection, kept alive between requests."""

    protocol_version = "HTTP/1.1"
    server_version = "bank"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024

    def __init__(self, bank: Bank, request: socket.socket, address: tuple[str, int], server: BaseServer) -> None:
        self.bank = bank
        super().__init__(request, address, server)

    def do_POST(self) -> None:
        self._route({"/charges": self._charge, "/refunds": self._refund, "/control": self._control})

    def do_GET(self) -> None:
        bank = self.bank
        self._route(
            {
                "/charges": self._look_up,
                "/ledger": lambda: self._send(Answer(200, bank.report())),
                "/requests": lambda: self._send(Answer(200, bank.visits())),
                "/control": lambda: self._send(Answer(200, bank.state())),
                "/control/held": lambda: self._send(Answer(200, {"held": bank.state()["held"]})),
                "/control/wait": self._wait,
                "/health": lambda: self._send(Answer(200, {"ok": True})),
            }
        )

    def _route(self, routes: Mapping[str, Callable[[], object]]) -> None:
        path = urlsplit(self.path).path
        try:
            if path not in routes:
                self._read_body()
                raise BadRequest(404, f"no such resource: {self.command} {path}")
            routes[path]()
        except BadRequest as error:
            self._send(Answer(error.status, {"error": str(error)}))
        except BadControl as error:
            self._send(Answer(400, {"error": str(error)}))

    def _charge(self) -> None:
        self._act(_parse_charge(self._body()))

    def _refund(self) -> None:
        self._act(self.bank.undoing(str(self._body().get("charge_id"))))

    def _act(self, charge: Charge) -> None:
        key = self.headers.get("Idempotency-Key")
        if not key:
            raise BadRequest(400, "header Idempotency-Key is missing")
        not_after = self.headers.get("X-Not-After")
        if not_after is not None and not not_after.isdecimal():
            raise BadRequest(400, f"X-Not-After: milliseconds since the epoch, not {not_after!r}")
        visit, answer = self.bank.charge(key, charge, None if not_after is None else int(not_after))
        self._finish_visit(visit, answer)

    def _look_up(self) -> None:
        query = self._query()
        if not query.get("key"):
            raise BadRequest(400, "GET /charges needs ?key=")
        visit, answer = self.bank.look_up(query["key"], query.get("provider"))
        self._finish_visit(visit, answer)

    def _finish_visit(self, visit: Visit, answer: Answer | None) -> None:
        if answer is None:
            self.bank.answered(visit, None, delivered=False)
            self.close_connection = True
            return
        self.bank.answered(visit, answer, delivered=not self._client_gone())
        self._send(answer)

    def _control(self) -> None:
        self._send(Answer(200, self.bank.control(self._body())))

    def _wait(self) -> None:
        query = self._query()
        try:
            timeout = float(query.pop("timeout", "10"))
            wanted = {name: int(number) for name, number in query.items()}
        except ValueError as error:
            raise BadRequest(400, f"wait: {error}") from error
        if unknown := sorted(set(wanted) - {"held", "effects", "requests", "answered"}):
            raise BadRequest(400, f"wait: unknown count {unknown[0]!r}")
        if not 0 <= timeout <= WAIT_LIMIT_S:
            raise BadRequest(400, f"wait: a timeout from 0 to {WAIT_LIMIT_S:g} seconds, not {timeout:g}")
        self._send(self.bank.wait(wanted, timeout))

    def _query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}

    def _body(self) -> dict[str, object]:
        try:
            body = json.loads(self._read_body())
        except ValueError as error:
            raise BadRequest(400, f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise BadRequest(400, "the body is not a JSON object")
        return body

    def _read_body(self) -> bytes:
        """Read the body whole, so that the next request on this connection starts where it should."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > BODY_LIMIT:
            self.close_connection = True
            raise BadRequest(411, f"a body needs a Content-Length of at most {BODY_LIMIT}")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ConnectionAbortedError("the client left in the middle of its request")
        return body

    def _client_gone(self) -> bool:
        try:
            ahead: bytes = self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not ahead

    def _send(self, answer: Answer) -> None:
        body = json.dumps(answer.body, ensure_ascii=False).encode() + b"\n"
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _parse_charge(body: Mapping[str, object]) -> Charge:
    texts: dict[str, str] = {}
    for name in ("invoice", "customer", "provider"):
        value = body.get(name)
        if not isinstance(value, str) or not value:
            raise BadRequest(400, f"{name}: a non-empty string, not {value!r}")
        texts[name] = value
    cents, card = body.get("cents"), body.get("card")
    if type(cents) is not int or cents <= 0:
        raise BadRequest(400, f"cents: a whole number above 0, not {cents!r}")
    if not isinstance(card, str | None):
        raise BadRequest(400, f"card: a string, not {card!r}")
    return Charge(texts["invoice"], texts["customer"], cents, texts["provider"], card)


class BankServer(ThreadingHTTPServer):
    """A thread per connection, with room for a fleet that connects at once."""

    daemon_threads = True
    request_queue_size = 1024

    def server_bind(self) -> None:
        """Leave out HTTPServer's reverse look-up of the host name: it can take seconds and nothing reads it."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is the bank's daily business; anything else is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(cast(socket.socket, request), client_address)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        settings = Settings(**{item.name: getattr(options, item.name) for item in fields(Settings)})
        ledger = Ledger(options.ledger)
        server = BankServer(("127.0.0.1", options.port), partial(Teller, Bank(ledger, settings)))
    except (BadControl, LedgerInUse, LedgerUnreadable, OSError) as error:
        print(f"bank: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.until_stdin_closes:
        threading.Thread(target=_stop_at_end_of_stdin, args=(server,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        print(f"bank listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever(poll_interval=0.05)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.dunning.bank", description="A bank that counts effects.")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument("--ledger", type=Path, required=True, help="file of effects; continued if it exists")
    parser.add_argument("--until-stdin-closes", action="store_true", help="stop when whoever started the bank is gone")
    for item in fields(Settings):
        name, text = "--" + item.name.replace("_", "-"), item.metadata["help"]
        if isinstance(item.default, bool):
            parser.add_argument(name, action="store_true", help=text)
        else:
            parser.add_argument(name, type=type(item.default), default=item.default, help=text)
    return parser


def _stop_at_end_of_stdin(server: BankServer) -> None:
    while os.read(0, 1024):
        pass
    server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
