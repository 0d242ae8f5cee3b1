"""One append through the port against its floor: the same bytes, inserted and committed by the driver alone.

Both write to the same disk with the same settings, in turns, so that a slow moment of the disk meets both.
"""

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

from outlive.log.entry import Draft
from outlive.model.clock import SystemClock
from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.run import Authority, Head, NewRun
from outlive.store.port import Append, Claim
from outlive.store.sqlite import SQLiteStore

ROUNDS, APPENDS, PAYLOAD = 5, 300, 200
TENANT = Tenant("default")


class Floor:
    """A table of the same shape, one INSERT and one COMMIT per entry."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = full")
        self._database.execute(
            "create table entry (tenant text, run_id text, seq integer, epoch integer, kind text, version integer,"
            " at integer, scope text, key text, body text, payload text, digest blob,"
            " primary key (tenant, run_id, seq)) strict, without rowid"
        )
        self._seq = 0

    def measure(self, draft: Draft) -> float:
        """Milliseconds per entry."""
        began = time.perf_counter()
        for _ in range(APPENDS):
            values = (
                TENANT, "run", self._seq, 1, draft.kind, draft.version, draft.at, draft.scope, draft.key, draft.body,
                draft.payload, bytes(32),
            )  # fmt: skip
            self._database.execute("begin immediate")
            self._database.execute("insert into entry values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._database.execute("commit")
            self._seq += 1
        return (time.perf_counter() - began) * 1000 / APPENDS

    def close(self) -> None:
        self._database.close()


async def measure(store: SQLiteStore, authority: Authority, head: Head, draft: Draft) -> tuple[float, Head]:
    """Milliseconds per append, and the new head."""
    began = time.perf_counter()
    for _ in range(APPENDS):
        head = await store.append(Append(authority, head, (draft,)))
    return (time.perf_counter() - began) * 1000 / APPENDS, head


async def main(folder: Path) -> float:
    """Print the medians of all rounds and return their ratio."""
    store = SQLiteStore(folder / "outlive.db", name="bench", clock=SystemClock())
    await store.open()
    floor = Floor(folder / "floor.db")
    await store.start(NewRun(TENANT, RunId("run"), "agent", "1", "{}", "digest"))
    [claimed] = await store.claim(Claim(Owner("bench"), {"agent": "build"}, 1, 600_000))
    head = claimed.row.head
    draft = Draft(
        "step", 1, claimed.now, "", "root/step/1", '{"name":"step","digest":"' + "d" * 32 + '"}', "x" * PAYLOAD
    )
    ours, theirs = list[float](), list[float]()
    for _ in range(ROUNDS):
        theirs.append(floor.measure(draft))
        each, head = await measure(store, claimed.authority, head, draft)
        ours.append(each)
    floor.close()
    await store.close()
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"append {statistics.median(ours):.3f} ms, floor {statistics.median(theirs):.3f} ms, ratio {ratio:.2f}")
    return ratio


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as name:
        asyncio.run(main(Path(name)))
