"""The statements about duties: alike in both stores, all used, and none that forgets reads a whole table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outlive.store.keeping import Aged
from outlive.store.postgres import keeping as in_schema
from outlive.store.postgres.connection import Statements, place_of
from outlive.store.sqlite import keeping as in_file
from tests.duty.ground import kept
from tests.store.postgres_scene import raw, scene_on
from tests.store.test_postgres_plans import FILL, LARGE, nodes
from tests.store.test_sqlite_file import Everything, migrated

# Of a small table, to read all of it is the best plan.
MORE_BLOBS = b"""
insert into blob (tenant, address, payload, created_at)
select 'default', i::text::bytea, repeat('x', 200), 1 from generate_series(20001, 150000) as i;
analyze blob;
"""


def test_each_statement_is_used() -> None:
    for module in (in_file, in_schema):
        source = Path(str(module.__file__)).read_text("utf-8")
        for name in set(module._STATEMENTS) - {"kept_for"}:
            assert f'"{name}"' in source, f"{module.__name__}: {name} is not used"


def test_in_a_file_nothing_is_read_in_full() -> None:
    database = migrated()
    for name, text in in_file._STATEMENTS.items():
        if name == "kept_for":
            continue
        for row in database.execute("explain query plan " + text, Everything()):
            step = row["detail"]
            small = step.split()[1] in ("duty", "1", "kin", "json_each", "CONSTANT")
            whole = step.startswith("SCAN") and not small
            assert not whole, f"{name}: {step}"
    database.close()


async def test_on_a_server_nothing_is_read_in_full(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        assert await kept(scene).aged("succeeded", older_ms=0, after=Aged(), limit=1) == []
        sql = Statements(place_of(postgres).schema)
        given: dict[str, object] = {
            "status": "succeeded", "older_ms": 1000, "ended_at": 5, "tenant": "default", "run": "", "limit": 500,
            "now": 9000, "ages": "{}", "others_ms": 1000, "most": 1000,
            "runs": '[{"tenant":"default","run":"r2","begun":true}]',
            "kin": '[{"tenant":"default","run":"r3"}]', "blobs": '[{"tenant":"default","address":"31"}]',
        }  # fmt: skip
        with raw(postgres) as connection:
            connection.execute(FILL.encode())
            connection.execute(MORE_BLOBS)
            for name in (
                "aged",
                "lineage",
                "begin_with_lineage",
                "lock_forgettable",
                "forget_entries",
                "forget_runs",
                "lock_blobs",
                "drop_blob",
            ):
                query = sql.fill(in_schema._STATEMENTS[name]).encode()
                row = connection.execute(b"explain (format json) " + query, given).fetchone()
                assert row is not None
                assert not LARGE & set(scans(row[0][0]["Plan"])), (name, row[0][0]["Plan"])


def scans(plan: dict[str, Any]) -> Iterator[str]:
    for node in nodes(plan):
        if node["Node Type"] == "Seq Scan":
            yield node["Relation Name"]
