"""A lab on PostgreSQL: worlds one after another in its schemas, each of them empty, and nothing left at the end."""

from collections import Counter
from dataclasses import dataclass, field, replace

import psycopg
import pytest

from outlive import Operation, Outlive, Run
from outlive.errors import Refused, StoreUnavailable
from outlive.model.errors import LeaseLost
from outlive.store.port import Append, Change
from outlive.testing import Fault, lab
from outlive.testing.store_scene import ANNA, LEASE, event
from tests.store.postgres_scene import scene_on


@dataclass
class Deps:
    """How often each row was asked for."""

    asked: Counter[str] = field(default_factory=Counter)


app: Outlive[Deps] = Outlive()


@app.tool(effect="transactional")
async def keep(op: Operation[Deps], what: str) -> int:
    await op.connection.execute("create table if not exists kept (what text)")
    await op.connection.execute("insert into kept values (%s)", (what,))
    [(count,)] = await op.connection.execute("select count(*) from kept")
    return int(str(count))


@app.tool(effect="read")
async def look(op: Operation[Deps], what: str) -> str:
    op.deps.asked[what] += 1
    return f"saw {what}"


@app.agent()
async def keeps(run: Run[Deps], what: str) -> tuple[str, int]:
    return await run.call(look, what), await run.call(keep, what)


def schemas(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        found = connection.execute("select nspname from pg_namespace where nspname like 'outlive_lab_%'").fetchall()
    return {str(name) for (name,) in found}


async def test_runs_go_on_after_a_death_and_time_is_the_labs(postgres_server: str) -> None:
    async with lab(app, deps=Deps(), store=postgres_server) as t:
        before = t.clock.now()
        t.crash(Fault("after", 1, "append"))
        assert await t.run(keeps, "a") == ("saw a", 1)
        assert await t.run(keeps, "b") == ("saw b", 2)
        assert t.clock.now() - before >= 30_000, "a lease of the lab's clock"
        assert len(schemas(postgres_server)) == 1
    assert schemas(postgres_server) == set()


async def test_each_run_of_a_sweep_finds_its_schema_empty_of_tools_tables_too(postgres_server: str) -> None:
    async with lab(app, deps=Deps(), store=postgres_server) as t:
        report = await t.sweep(keeps, "a", kinds=("after",), every=5)
        assert report.tried > 5
        assert report.ends == {"succeeded": report.tried}
        assert len(schemas(postgres_server)) == 2, "the lab's own, and one that the runs of the sweep shared"
    assert schemas(postgres_server) == set()


async def test_a_secret_in_a_row_is_found(postgres_server: str) -> None:
    async with lab(app, deps=Deps(), store=postgres_server, secrets={"bank/token": "s3cret-of-the-bank"}) as t:
        await t.run(keeps, "a")
        ground = t._world.ground
        assert b"saw a" in await ground.stored()
        assert b"s3cret-of-the-bank" not in await ground.stored()


@pytest.mark.parametrize("store", ["postgres", "mysql://a/b", ""])
async def test_another_store_is_refused(store: str) -> None:
    with pytest.raises(Refused, match="lab\\(store="):
        async with lab(app, deps=Deps(), store=store):
            pass


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(StoreUnavailable):
        async with lab(app, deps=Deps(), store="postgresql://nobody@/postgres?host=/nowhere"):
            pass


async def test_a_refused_append_lets_the_run_go_before_its_transaction_is_left(postgres: str) -> None:
    """Whoever does not know whether it was committed claims the run again while it is still inside."""
    async with scene_on(postgres, wait=1.0) as scene:
        hold = await scene.hold()
        stale = replace(hold.authority, token="stale")
        async with scene.store.transaction() as transaction:
            with pytest.raises(LeaseLost):
                await transaction.append(Append(stale, hold.head, (event(),), Change("ready")))
            assert await scene.store.again(hold.authority, owner=ANNA, lease_ms=LEASE) is not None
