"""What an idle worker costs: statements in a minute, and its share of a processor."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from bench.effort import Effort
from bench.figures import Line, Spread
from bench.places import Place, Server, server
from bench.processes import child, cpu_of_tree
from bench.waiting import tick

SECONDS, SETTLING = 60.0, 5.0
STATEMENTS_LIMIT = 12.0


def count_statements() -> Callable[[], int]:
    """Count what the SQLite connections of this process execute from now on; settings of a connection count too."""
    connect, counted = sqlite3.connect, [0]

    def counting(*words: Any, **named: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*words, **named)
        made.set_trace_callback(lambda _: counted.__setitem__(0, counted[0] + 1))
        return made

    setattr(sqlite3, "connect", counting)  # noqa: B010 - to a type checker it is a name that cannot be assigned
    return lambda: counted[0]


async def idling(place: Place, effort: Effort) -> list[Line]:
    """A worker with nothing to do, after it has settled. A server writes down what it is asked."""
    if place.sqlite:
        statements, cpu = await _watched(place.fresh(), effort, None)
    elif place.server is not None:
        with server(log_statement="all", log_min_messages="log") as one:
            listening = Place("postgres", place.folder, one.url, one)
            statements, cpu = await _watched(listening.fresh(), effort, one)
    else:
        return []  # what others ask of somebody else's server would be counted too
    return [
        Line("idle, statements", place.store, "statements of an idle worker in a minute", "", Spread.of([statements]),
             limit=STATEMENTS_LIMIT, limit_unit=""),
        Line("idle, processor", place.store, "share of a processor, worker and database", " %", Spread.of([cpu])),
    ]  # fmt: skip


async def _watched(url: str, effort: Effort, asked: Server | None) -> tuple[float, float]:
    """Statements in a minute, and per cent of a processor."""
    seconds = SECONDS * effort.share
    with child("worker", url) as worker:
        worker.ask("go")
        await tick(SETTLING * effort.share)
        before, used = worker.ask("count"), 0.0 if asked is None else cpu_of_tree(asked.postmaster)
        logged = 0 if asked is None else _logged(asked)
        await tick(seconds)
        after = worker.ask("count")
        statements = after["statements"] - before["statements"] if asked is None else _logged(asked) - logged
        cpu = after["cpu"] - before["cpu"] + (0.0 if asked is None else cpu_of_tree(asked.postmaster) - used)
        worker.ask("stop")
    return statements * 60 / seconds, cpu * 100 / seconds


def _logged(asked: Server) -> int:
    """Statements that the server has written down."""
    lines = asked.log.read_text("utf-8", "replace").splitlines()
    return sum("LOG:  statement: " in line or "LOG:  execute " in line for line in lines)
