"""What a process of the benchmark does in its role: serve as a worker, or be the floor of one.

`python -m bench.child ROLE …`, from `bench.processes`; it says that it is ready, and then does what it is told.
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
import time

from bench import agents
from bench.bells import PostgresBell, SQLiteBell
from bench.floor import PostgresFloor, SQLiteFloor
from bench.idling import count_statements
from bench.processes import memory_mb
from outlive.log.entry import Entry
from outlive.store.postgres.connection import place_of


def tell(**facts: float) -> None:
    """One line to whoever started us."""
    print(json.dumps(facts), flush=True)


def listen() -> str:
    """The next word; `stop` when there is nobody any more."""
    return sys.stdin.readline().strip() or "stop"


async def worker(url: str) -> None:
    """Serve from `go` to `stop`; `count` tells how many statements SQLite has executed."""
    statements = count_statements()
    app = agents.app_at(url)
    async with app:
        tell(ready=1)
        if await asyncio.to_thread(listen) == "stop":
            return
        used = time.process_time()
        async with app.worker():
            tell(began=time.perf_counter())
            served = app._worker
            assert served is not None
            while (word := await asyncio.to_thread(listen)) != "stop":
                if word == "count":
                    tell(
                        statements=statements(), cpu=time.process_time(), loaded=len(served.running()), rss=memory_mb()
                    )
        ended = agents.ended
        tell(at=ended.at, steps=ended.steps, cpu=time.process_time() - used)


def inserter(store: str, where: str, schema: str, count: str, name: str, entry: str) -> None:
    """The floor of a worker: so many rows at `go`."""
    like = Entry(**{**json.loads(entry), "digest": bytes(32)})
    there = where if store == "sqlite" else place_of(where).conninfo
    floor = SQLiteFloor(there, like, name) if store == "sqlite" else PostgresFloor(there, schema, like, name)
    floor.insert(10)
    tell(ready=1)
    while listen() != "stop":
        began, used = time.perf_counter(), time.process_time()
        floor.insert(int(count))
        tell(began=began, at=time.perf_counter(), cpu=time.process_time() - used)


def bell(store: str, where: str, schema: str) -> None:
    """The floor of waking: claims what is there as soon as it can see it, and says when that was."""
    made = SQLiteBell(where) if store == "sqlite" else PostgresBell(place_of(where).conninfo, schema)
    tell(ready=1)
    while not select.select([sys.stdin], [], [], 0)[0]:
        if made.claim():
            tell(at=time.perf_counter())
        else:
            made.wait()


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    match role:
        case "worker":
            asyncio.run(worker(*words))
        case "inserter":
            inserter(*words)
        case "bell":
            bell(*words)
        case _:
            sys.exit(f"no such role: {role}")
