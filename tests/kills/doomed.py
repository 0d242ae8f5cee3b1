"""A process that makes others, which do the same again and again, each until it dies at another statement: before the
first, after the first, before the second, and so on, until one lives to its end. Prints how each went.

Started by a test with what they do, a kind of connection, and a store. Over a server it is the way there that kills.
"""

import asyncio
import itertools
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tests.app.callers import Caller, Kind, caller_on
from tests.kills.tap import Point, point_of
from tests.kills.transfers import Amount, app, moving

T = TypeVar("T")

_TOOL = "outlive-transaction"


class Doomed(sqlite3.Connection):
    """Dies at a statement of the one transaction that counts: that of a tool, on its thread, or the caller's own."""

    callers = False
    point: Point | None = None
    statements: list[str] = []

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return self._counted(sql, lambda: super(Doomed, self).execute(sql, parameters))

    def commit(self) -> None:
        self._counted("commit", super().commit)

    def _counted(self, sql: str, do: Callable[[], T]) -> T:
        if not self.callers and not threading.current_thread().name.startswith(_TOOL):
            return do()
        self.statements.append(sql)
        self._die("before")
        done = do()
        self._die("after")
        return done

    def _die(self, when: str) -> None:
        if Point(when, len(self.statements)) == self.point:
            os.kill(os.getpid(), signal.SIGKILL)


async def by_a_tool(point: str, cents: int) -> None:
    """A worker, and a run for it."""
    async with app, app.worker(queues=[point]):
        await (await app.start(moving, Amount(cents), id=point, queue=point)).result()


async def by_a_caller(kind: Kind, place: str, point: str, cents: int) -> None:
    """Somebody who takes an order and starts the run that does it, in a transaction of their own."""
    async with app, caller_on(kind, place) as caller:
        await order(caller, point, cents)


async def order(caller: Caller, run: str, cents: int) -> None:
    """Once, however often it is asked for."""
    if isinstance(caller.connection, Doomed):
        caller.connection.callers = True
    if isinstance(caller.connection, sqlite3.Connection):
        await caller.do("begin immediate")
    taken = await caller.do(f"insert into ordered values ('{run}', {cents}) on conflict do nothing returning cents")
    await app.start(moving, Amount(cents), id=run, queue=run, connection=caller.connection)
    for [due] in taken:
        await caller.do(f"update account set cents = cents + {due} where name = 'owed'")
    await caller.commit()


def live(what: str, kind: Kind, store: str, point: str, cents: int) -> None:
    """What one process does, until it dies."""
    if kind == "sqlite3":
        Doomed.point = point_of(point)
        sqlite3.connect = _connect
    if what == "tool":
        os.environ["OUTLIVE_STORE"] = store if kind == "sqlite3" else f"{store}&application_name={point}"
        asyncio.run(by_a_tool(point, cents))
    else:
        place = store.removeprefix("sqlite:///") if kind == "sqlite3" else f"{store}&application_name={point}"
        asyncio.run(by_a_caller(kind, place, point, cents))


_original = sqlite3.connect


def _connect(*arguments: Any, **options: Any) -> Any:
    return _original(*arguments, **{"factory": Doomed, **options})


def main(what: str, kind: Kind, store: str) -> None:
    """Each process is a fork of this one, which has opened nothing yet."""
    os.environ["OUTLIVE_STORE"] = store
    for number, (count, when) in enumerate(itertools.product(range(1, 100), ("before", "after"))):
        point = str(Point(when, count))
        child = os.fork()
        if child == 0:
            live(what, kind, store, point, 2**number)
            print(json.dumps({"statements": Doomed.statements}), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"point": point, "cents": 2**number, "exit": os.waitstatus_to_exitcode(status)}), flush=True)
        if status == 0:
            return
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"{point} went wrong"
    raise AssertionError("no process has lived to its end")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])  # type: ignore[arg-type]  # one of the kinds, from a test
