"""What a claim and a look cost does not grow with the runs that wait, nor with the timers that have come."""

import sqlite3
from pathlib import Path
from typing import Any

from outlive.store.postgres import open_postgres
from outlive.store.postgres.connection import Statements, place_of
from outlive.store.postgres.work import _asked as asked_postgres
from outlive.store.postgres.work import _look_statement
from outlive.store.sqlite import SQLiteStore
from outlive.store.sqlite.connection import QUERIES, connect
from outlive.store.sqlite.work import _asked as asked_sqlite
from outlive.store.sqlite.work import candidates
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import ANNA, LEASE, wish
from tests.store.postgres_scene import raw

NOW = 1_000_000
LOOK = {"owner": ANNA, "most": 100, "lease_ms": LEASE, "now": NOW}
# Of the timers as many have come as have not, and some are urgent.
FILL = """
insert into run (tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at, input_digest,
    origin, queue, priority, wake_at, reason)
with recursive n (i) as (select 1 union all select i + 1 from n where i < {many})
select 'default', 'r' || i, 'clerk', '1', 'waiting', 1, 1, {nothing}, i, i, '', 'r' || i, 'default', i % 3,
    1000000 + case when i % 2 = 0 then -i else i end, 'a timer'
from n
"""


def sqlite_steps(path: Path, many: int) -> tuple[int, int]:
    """Instructions of SQLite's machine for a claim and for a look, in units of ten."""
    database = connect(path, wait=1.0)
    database.execute("delete from run")
    database.execute(FILL.format(many=many, nothing="x''"))
    steps = [0]

    def tick() -> int:
        steps[0] += 1
        return 0

    database.set_progress_handler(tick, 10)
    assert len(candidates(database, wish(limit=20), NOW)) == 20
    claim, steps[0] = steps[0], 0
    parameters = {**asked_sqlite(wish()), **LOOK}
    row: sqlite3.Row = database.execute(QUERIES["look"], parameters).fetchone()
    assert (row["claimable"], row["due_ms"]) == (1, 1)
    database.close()
    return claim, steps[0]


async def test_a_claim_and_a_look_cost_the_same_however_many_wait_on_sqlite(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", name="runs", clock=ManualClock(), unsafe_durability=True)
    await store.open()
    await store.close()
    few, many = (sqlite_steps(tmp_path / "runs.db", count) for count in (300, 30_000))
    assert all(of_many < 1.5 * of_few for of_few, of_many in zip(few, many, strict=True)), (few, many)


async def test_a_claim_and_a_look_cost_the_same_however_many_wait_on_postgres(postgres: str) -> None:
    await (await open_postgres(postgres, clock=ManualClock())).close()
    sql = Statements(place_of(postgres).schema)
    parameters = {**asked_postgres(wish()), **LOOK, "limit": 20}
    with raw(postgres) as connection:
        connection.execute(FILL.format(many=30_000, nothing="''::bytea").encode())
        connection.execute(b"analyze run")
        for query in (sql.claimable(quick=False, watched=False), _look_statement(sql, sign=False)):
            connection.execute(query, parameters)
            row = connection.execute(b"explain (analyze, buffers, format json) " + query, parameters).fetchone()
            assert row is not None
            plan: dict[str, Any] = row[0][0]["Plan"]
            # The whole table has several hundred pages, and an index of the timers a hundred.
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200, query.decode()
