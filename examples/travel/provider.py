"""A provider: takes orders and undoes them over HTTP, and keeps a ledger of its own in a database of its own.

It knows nothing of who asks. Each order and each undoing is a line that is committed before it is answered, and a
second one is a line like any other: what the ledger says is what happened. It takes its time before it acts, and
behind that.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from examples.dunning.bank import BankServer
from examples.dunning.killer import Dice
from examples.travel.waiting import epoch_ms, pause

READY = "provider listening on "

_TABLES = """
create table if not exists line (
    number integer primary key, side text not null check (side in ('order', 'undo')), key text not null,
    trip text not null, what text not null, cents integer not null, undoes text, at integer not null
) strict;
create table if not exists accepted (
    event integer primary key, key text not null unique, undoes text not null, operation text not null,
    due integer not null, line integer
) strict;
create table if not exists waived (trip text primary key) strict;
"""


class Answer(NamedTuple):
    """A status, and a body that becomes JSON."""

    status: int
    body: object


class Manner(NamedTuple):
    """How a provider is: whether one can ask it afterwards, when it undoes, and what it does not undo."""

    name: str
    look_up: bool = True
    undoes_after_ms: int = 0
    refuses: str = ""
    slow_ms: int = 0
    seed: int = 0


class Books:
    """The ledger, one connection under one lock; what it returns from is on the disk."""

    def __init__(self, path: Path, manner: Manner) -> None:
        self.manner = manner
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.row_factory = sqlite3.Row
        self._database.executescript(f"pragma journal_mode = wal; pragma synchronous = full;{_TABLES}")

    def order(self, key: str, trip: str, what: str, cents: int) -> Answer:
        with self._writing():
            return Answer(201, {"number": self._add("order", key, trip, what, cents, None)})

    def undo(self, key: str, number: str, operation: str) -> Answer:
        """201 when it is undone, 202 when it will be, 409 when it is not to be."""
        with self._writing():
            order = self._one("select * from line where number = ? and side = 'order'", _number(number))
            if order is None:
                return Answer(404, {"error": f"no order {number}"})
            waived = self._one("select 1 from waived where trip = ?", order["trip"])
            if order["what"] == self.manner.refuses and not waived:
                return Answer(409, {"error": f"{order['what']} is not given back"})
            if not self.manner.undoes_after_ms:
                return Answer(201, {"number": self._undo(key, order)})
            return self._accept(key, number, operation)

    def _accept(self, key: str, number: str, operation: str) -> Answer:
        known = self._one("select line from accepted where key = ?", key)
        if known is not None and known["line"] is not None:
            return Answer(201, {"number": self._named(known["line"])})
        self._database.execute(
            "insert into accepted (key, undoes, operation, due) values (?, ?, ?, ?) on conflict do nothing",
            (key, number, operation, epoch_ms() + self.manner.undoes_after_ms),
        )
        return Answer(202, {"accepted": number})

    def look_up(self, key: str) -> Answer:
        if not self.manner.look_up:
            return Answer(501, {"error": "ask somebody who can read the books"})
        with self._lock:
            line = self._one("select number from line where key = ? order by number", key)
        return Answer(404, {"error": "no such key"}) if line is None else Answer(200, {"number": self._named(line[0])})

    def waive(self, trip: str) -> Answer:
        """Undo also what is refused, for this trip."""
        with self._writing():
            self._database.execute("insert into waived values (?) on conflict do nothing", (trip,))
        return Answer(200, {"waived": trip})

    def lines(self) -> list[dict[str, object]]:
        with self._lock:
            found = self._database.execute("select * from line order by number").fetchall()
        return [{**dict(line), "number": self._named(line["number"])} for line in found]

    def news(self) -> list[dict[str, object]]:
        """What has been undone of what was accepted; told as often as somebody asks."""
        with self._lock:
            done = "select event, operation, line from accepted where line is not null"
            found = self._database.execute(done).fetchall()
        return [
            {"event": f"event-{one['event']}", "operation": one["operation"], "number": self._named(one["line"])}
            for one in found
        ]

    def settle(self) -> None:
        """Undo what is due of what was accepted."""
        with self._writing():
            due = "select * from accepted where line is null and due <= ?"
            for one in self._database.execute(due, (epoch_ms(),)).fetchall():
                order = self._one("select * from line where number = ?", _number(one["undoes"]))
                assert order is not None
                line = _number(self._undo(one["key"], order))
                self._database.execute("update accepted set line = ? where event = ?", (line, one["event"]))

    def _undo(self, key: str, order: sqlite3.Row) -> str:
        undoes = self._named(order["number"])
        return self._add("undo", key, order["trip"], order["what"], -order["cents"], undoes)

    def _add(self, side: str, key: str, trip: str, what: str, cents: int, undoes: str | None) -> str:
        added = self._database.execute(
            "insert into line (side, key, trip, what, cents, undoes, at) values (?, ?, ?, ?, ?, ?, ?)",
            (side, key, trip, what, cents, undoes, epoch_ms()),
        )
        return self._named(added.lastrowid)

    def _named(self, number: int | None) -> str:
        return f"{self.manner.name}-{number}"

    def _one(self, sql: str, *parameters: object) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._database.execute(sql, parameters).fetchone()
        return found

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._database.execute("begin immediate")
            try:
                yield
            except BaseException:
                self._database.execute("rollback")
                raise
            self._database.execute("commit")


def _number(named: str) -> int:
    return int(named.rpartition("-")[2])


class Desk:
    """What is being served, and how long each request takes."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self._dice, self._lock = Dice(books.manner.seed), threading.Lock()
        self._seen: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()

    def serve(self, method: str, path: str, query: dict[str, str], body: dict[str, str], key: str) -> Answer:
        books = self.books
        answer = Answer(404, {"error": f"no {method} {path}"})
        match method, path:
            case "POST", "/orders":
                act = partial(books.order, key, body["trip"], body["what"], int(body["cents"]))
                answer = self._slowly(key, act)
            case "POST", "/undo":
                answer = self._slowly(key, partial(books.undo, key, body["number"], body["operation"]))
            case "POST", "/waive":
                answer = books.waive(body["trip"])
            case "GET", "/orders":
                answer = books.look_up(query["key"])
            case "GET", "/ledger":
                answer = Answer(200, books.lines())
            case "GET", "/news":
                answer = Answer(200, books.news())
            case "GET", "/busy":
                with self._lock:
                    answer = Answer(200, [one for one, count in self._busy.items() if count])
            case _:
                pass
        return answer

    def _slowly(self, key: str, act: partial[Answer]) -> Answer:
        """Some of the time goes by before it acts, the rest before it answers. Whoever asked may be dead by then."""
        with self._lock:
            self._seen[key] += 1
            draw = self._dice.draw(f"{self.books.manner.name} {sum(self._seen.values())}")
            self._busy[key] += 1
        try:
            before = int(self.books.manner.slow_ms * draw)
            pause(before)
            answer = act()
            pause(self.books.manner.slow_ms - before)
        finally:
            with self._lock:
                self._busy[key] -= 1
        return answer


class Counterpart(BaseHTTPRequestHandler):
    """One connection of somebody who asks."""

    protocol_version = "HTTP/1.1"

    def __init__(self, desk: Desk, *arguments: object) -> None:
        self._desk = desk
        super().__init__(*arguments)  # type: ignore[arg-type]  # what the server gives

    def do_GET(self) -> None:
        self._answer("GET", {})

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionAbortedError("who asked has died in the middle of it")
        self._answer("POST", json.loads(body))

    def _answer(self, method: str, body: dict[str, str]) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        answer = self._desk.serve(method, parts.path, query, body, self.headers.get("Idempotency-Key", ""))
        text = json.dumps(answer.body).encode() + b"\n"
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.travel.provider", description="A provider with a ledger.")
    parser.add_argument("--name", required=True, help="what its numbers begin with")
    parser.add_argument("--ledger", type=Path, required=True, help="its database; continued if it exists")
    parser.add_argument("--no-look-up", action="store_true", help="nobody can ask it what became of a key")
    parser.add_argument("--undoes-after-ms", type=int, default=0, help="it accepts at once and undoes so much later")
    parser.add_argument("--refuses", default="", help="what it does not undo, unless it is talked to")
    parser.add_argument("--slow-ms", type=int, default=0, help="how long a request takes")
    parser.add_argument("--seed", type=int, default=0, help="chooses how much of that goes by before it acts")
    said = parser.parse_args(arguments)
    manner = Manner(said.name, not said.no_look_up, said.undoes_after_ms, said.refuses, said.slow_ms, said.seed)
    books = Books(said.ledger, manner)
    server = BankServer(("127.0.0.1", 0), partial(Counterpart, Desk(books)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_settle, args=(books,), daemon=True).start()
    threading.Thread(target=_stop_with_starter, args=(server,), daemon=True).start()
    with suppress(KeyboardInterrupt):
        print(f"{READY}http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever(poll_interval=0.05)
    return 0


def _settle(books: Books) -> None:
    while True:
        books.settle()
        pause(50)


def _stop_with_starter(server: BankServer) -> None:
    while os.read(0, 1024):
        pass
    server.shutdown()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
