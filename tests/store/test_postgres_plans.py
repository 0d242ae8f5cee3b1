"""How PostgreSQL finds its rows: no statement reads a whole table, an append leaves the indexes of its run alone."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from outlive.model.ids import DEFAULT_TENANT, OperationId
from outlive.store.port import Append, Change, WorkerRow
from outlive.store.postgres import PostgresStore, open_postgres
from outlive.store.postgres.append import prepare, statement
from outlive.store.postgres.connection import Statements, place_of
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import ANNA, LEASE, event, new_run, operation, wish
from tests.store.postgres_scene import raw, scene_on

SECRET = b"k" * 32

FILL = """
insert into run (tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at, input_digest,
    origin, queue, priority, ready_at, wake_at, ended_at, paused_at, reason, deadline_at)
select 'default', 'r' || i, case when i % 5 = 0 then 'pilot' else 'clerk' end, '1',
    (array['ready', 'waiting', 'succeeded', 'blocked', 'ready'])[i % 5 + 1],
    1, 1, '', i, i, '', 'r' || i, 'default', 0, case when i % 5 in (0, 4) then i end,
    case i % 5 when 1 then 1000000 + i end, case i % 5 when 2 then i end, case i % 5 when 4 then i end,
    case i % 5 when 3 then 'poison' else '' end, 1000000000
from generate_series(1, 20000) as i;
insert into entry (tenant, run_id, seq, epoch, kind, version, at, scope, key, body, digest)
select 'default', 'r' || i, j, 1, 'k', 1, 1, '', '', '', ''
from generate_series(1, 8000) as i, generate_series(0, 3) as j;
insert into inbox (tenant, run_id, topic, sender_key, body, at, taken_seq)
select 'default', 'r' || i, 't', 'k', '{}', 1, 1 from generate_series(1, 20000) as i;
insert into operation (tenant, run_id, id, call, tool, effect, key, digest, arguments, status, attempt, epoch,
    first_sent_at, updated_at)
select 'default', 'r' || i, 'o' || i, '', '', '', '', '', '', 'succeeded', 1, 1, 1, 1
from generate_series(1, 20000) as i;
insert into blob (tenant, address, payload, created_at)
select 'default', i::text::bytea, '', 1 from generate_series(1, 20000) as i;
insert into divergence (tenant, run_id, code, report, at)
select 'default', 'r' || i, 'b9', '', 1 from generate_series(1, 20000) as i;
analyze run; analyze entry; analyze inbox; analyze operation; analyze blob; analyze divergence;
"""
LARGE = {"run", "entry", "inbox", "operation", "blob", "divergence"}


async def test_no_statement_reads_a_whole_table(postgres: str) -> None:
    seen: list[tuple[bytes, dict[str, object]]] = []

    class Recording(PostgresStore):
        async def _on_connection(self, work: Any, *, wrote: bool) -> Any:
            held = {type(cell.cell_contents): cell.cell_contents for cell in work.__closure__}
            if bytes in held and dict in held:
                seen.append((held[bytes], held[dict]))
            return await super()._on_connection(work, wrote=wrote)

    store = Recording(place_of(postgres), clock=ManualClock(now=500_000))
    await store.open()
    with raw(postgres) as connection:
        connection.execute(FILL.encode())
        try:
            await use_everything(store)
        finally:
            await store.close()
        explained = 0
        for query, parameters in seen:
            if b"{schema}" in query or query.startswith(b"begin"):
                continue
            row = connection.execute(b"explain (format json) " + query, parameters).fetchone()
            assert row is not None
            for node in nodes(row[0][0]["Plan"]):
                whole = node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE
                assert not whole, f"{node['Relation Name']} is read in full by {query.decode()}"
            explained += 1
        assert explained > 15


async def test_a_claim_reads_no_more_of_a_long_queue_than_it_takes(postgres: str) -> None:
    await (await open_postgres(postgres, clock=ManualClock())).close()
    parameters = {
        "now": 500_000, "limit": 10, "agents": ["pilot"], "codes": ["b1"], "queues": ["default"], "tenants": None,
        "versions": "{}",
        "grace_ms": 30_000,
    }  # fmt: skip
    query = Statements(place_of(postgres).schema).claimable(quick=False, watched=False)
    with raw(postgres) as connection:
        connection.execute(FILL.encode())
        connection.execute(query, parameters)
        row = connection.execute(b"explain (analyze, buffers, format json) " + query, parameters).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    assert plan["Actual Rows"] == 10
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 100


async def use_everything(store: PostgresStore) -> None:
    await store.start(new_run("new"))
    everything = replace(wish(), watched=frozenset([(DEFAULT_TENANT, new_run("r3").id, 1)]))
    [claimed] = await store.claim(everything)
    run = claimed.row.id
    await store.look(wish())
    await store.look(wish(), sign=True)
    await store.announce(WorkerRow(ANNA, 1, {"clerk": "b1"}, 1, 1))
    await store.workers(within_ms=1)
    await store.run(DEFAULT_TENANT, run)
    await store.operations(DEFAULT_TENANT, run)
    await store.operation(DEFAULT_TENANT, OperationId("o1"))
    await store.unread(DEFAULT_TENANT, run)
    await store.divergences(DEFAULT_TENANT, run)
    await store.window(DEFAULT_TENANT, run)
    await store.entries(DEFAULT_TENANT, run)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


async def test_an_append_and_a_renewal_find_their_rows_by_key(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        append = Append(
            hold.authority, hold.head, (event(payload='"' + "x" * 40_000 + '"'),), Change("ready"),
            operations=(operation(hold),), taken=(1,), forgive=True,
        )  # fmt: skip
        sql = Statements(place_of(postgres).schema)
        query, parameters = statement(sql, [prepare(SECRET, append, None)])
        held = json.dumps([{"place": 0, "tenant": "default", "run": "r", "epoch": 1, "token": hold.authority.token}])
        renewal = {"held": held, "owner": ANNA, "lease_ms": LEASE, "now": None, "stalled_ms": None, "stalled_by": ""}
        renewal["skew_ms"] = None
        with raw(postgres) as connection:
            connection.execute(FILL.encode())
            for text, given in ((query, parameters), (sql.renewal(), renewal)):
                row = connection.execute(b"explain (format json) " + text, given).fetchone()
                assert row is not None
                read = [node["Relation Name"] for node in nodes(row[0][0]["Plan"]) if node["Node Type"] == "Seq Scan"]
                assert not LARGE & set(read), text.decode()


async def test_an_append_changes_no_index_of_the_run(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        for _ in range(20):
            await scene.append(hold, event())
            scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now)
    with raw(postgres) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        counted = connection.execute(
            "select n_tup_upd - n_tup_hot_upd, n_tup_upd from pg_stat_user_tables where relid = 'run'::regclass"
        ).fetchone()
    assert counted is not None
    assert counted[0] <= 2, counted
    assert counted[1] >= 40, counted
