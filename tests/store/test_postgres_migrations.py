"""Migrations of a PostgreSQL schema: two releases side by side, one upgrade at a time, all of a file or nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlive.model.clock import SystemClock
from outlive.model.errors import NotAStore, SchemaTooNew, StoreBusy, StoreUnavailable
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.store import postgres as adapter
from outlive.store.port import WorkerRow
from outlive.store.postgres import PostgresStore, open_postgres
from outlive.store.postgres import migrate as migrating
from outlive.store.postgres.connection import HERE, place_of
from outlive.store.postgres.migrate import migrations
from outlive.store.postgres.upkeep import PostgresUpkeep
from outlive.store.upkeep import Migration
from outlive.testing.store_scene import Raises, new_run, together
from tests.store.pooler import binary, pooled
from tests.store.postgres_scene import Hand, hand_on, raw
from tests.store.releases import FIRST, act, hand_over, release, take, upgrading, upkeep_to, work

ADDS = "alter table {schema}.run add column mood text default 'calm'; create table {schema}.memo (text text);"
TIGHTENS = "alter table {schema}.run alter column mood set not null; drop table {schema}.memo;"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The migrations of a release that adds something and later takes something away."""
    return release(tmp_path / "newer", FIRST[adapter], pre_0002=ADDS, post_0002=TIGHTENS)


@asynccontextmanager
async def opened(url: str, folder: Path | None = None, *, existing: bool = False) -> AsyncIterator[PostgresStore]:
    known = None if folder is None else migrations(folder)
    store = PostgresStore(place_of(url), clock=SystemClock(), known=known, existing=existing)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def applied(url: str) -> list[tuple[int, str]]:
    with raw(url) as connection:
        return connection.execute("select number, stage from migration order by number, stage desc").fetchall()


def has_column(url: str, column: str) -> bool:
    query = "select exists (select from pg_attribute where attrelid = 'run'::regclass and attname = %s)"
    with raw(url) as connection:
        return connection.execute(query, (column,)).fetchone() == (True,)


async def upgrade(url: str, folder: Path, *, finish: bool = False) -> tuple[list[str], list[WorkerRow]]:
    told = list[str]()
    older = await upkeep_to(url, folder).migrate(finish=finish, told=lambda *one: told.append(" ".join(one[::-1])))
    return told, older


@pytest.mark.parametrize("direct", ["no", "yes"])
async def test_two_releases_work_side_by_side_until_one_is_finished(postgres: str, newer: Path, direct: str) -> None:
    await side_by_side(f"{postgres}&direct={direct}", newer)


@pytest.mark.long
@pytest.mark.skipif(
    binary() is None and "CI" not in os.environ, reason="PgBouncer is not installed (Debian: pgbouncer)"
)
async def test_two_releases_work_side_by_side_behind_a_pooler(postgres: str, newer: Path) -> None:
    with pooled(postgres, place_of(postgres).schema) as url:
        await side_by_side(url, newer)


async def side_by_side(url: str, newer: Path) -> None:
    async with opened(url) as old:
        # Often enough that every statement is prepared where statements are.
        await work(old, "before", 8)
        await old.start(new_run("long", agent="long"))
        held = await take(old, "old", "long")
        async with opened(url, newer) as new:
            assert applied(url) == [(1, "pre"), (2, "pre")]
            await act(old, held)
            assert await together(work(old, "old", 20), work(new, "new", 20)) == [None, None]
            await hand_over(old, new, "to the new one")
            await hand_over(new, old, "to the old one")
            async with opened(url) as restarted:
                await work(restarted, "restarted", 2)
        assert (await upgrade(url, newer, finish=True)) == (
            ["applying 0002_later.post.sql", "applied 0002_later.post.sql"], [],
        )  # fmt: skip
    with pytest.raises(SchemaTooNew) as raised:
        await open_postgres(url, clock=SystemClock())
    assert (raised.value.found, raised.value.known) == (2, 1)
    async with opened(url, newer) as new:
        await work(new, "after", 2)


async def test_a_file_is_applied_while_a_worker_of_the_release_before_works(postgres: str, newer: Path) -> None:
    async with opened(postgres) as old:
        assert await together(work(old, "old", 40), upgrade(postgres, newer)) == [
            None, (["applying 0002_later.pre.sql", "applied 0002_later.pre.sql"], []),
        ]  # fmt: skip
        assert len(await old.entries(DEFAULT_TENANT, RunId("old-39"))) == 4


async def test_nothing_is_taken_away_while_a_worker_needs_it(postgres: str, newer: Path) -> None:
    async with opened(postgres) as old, opened(postgres, newer) as new:
        await old.announce(WorkerRow(Owner("old"), 12, {"clerk": "b"}, 0, 0))
        await new.announce(WorkerRow(Owner("new"), 13, {"clerk": "b"}, 0, 0))
        told, older = await upgrade(postgres, newer, finish=True)
        assert (told, [one.owner for one in older]) == ([], ["old"])
        with raw(postgres) as connection:
            connection.execute("update worker set seen_at = seen_at - 301000 where owner = 'old'")
        # It has been silent for long, but what it owns cannot have been taken over.
        await old.start(new_run("long", agent="long"))
        await take(old, "old", "long")
        assert [one.owner for one in (await upgrade(postgres, newer, finish=True))[1]] == ["old"]
        assert applied(postgres) == [(1, "pre"), (2, "pre")]
        with raw(postgres) as connection:
            connection.execute("update run set expires_at = 1")
        assert (await upgrade(postgres, newer, finish=True))[1] == []
        assert applied(postgres) == [(1, "pre"), (2, "pre"), (2, "post")]


async def test_a_worker_that_leaves_is_waited_for_no_more(postgres: str, newer: Path) -> None:
    async with opened(postgres) as old, opened(postgres, newer):
        await old.announce(WorkerRow(Owner("old"), 12, {}, 0, 0))
        look = await upkeep_to(postgres, newer).look()
        assert [one.owner for one in look.older] == ["old"]
        await old.leave(Owner("old"))
    assert (await upgrade(postgres, newer, finish=True))[1] == []


async def test_an_empty_schema_gets_everything_at_once(postgres: str, newer: Path) -> None:
    async with opened(postgres, newer):
        assert applied(postgres) == [(1, "pre"), (2, "pre"), (2, "post")]


async def test_of_two_upgrades_one_waits_and_nothing_is_applied_twice(postgres: str, newer: Path) -> None:
    async with opened(postgres):
        pass
    async with hand_on(postgres) as hand:
        lock(hand, postgres)

        async def let_go() -> None:
            await hand.until_waiting("pg_advisory_xact_lock(hashtextextended", count=2)
            hand.commit()

        answers = await together(upgrade(postgres, newer), upgrade(postgres, newer), let_go())
    done = (["applying 0002_later.pre.sql", "applied 0002_later.pre.sql"], list[WorkerRow]())
    assert answers in ([done, ([], []), None], [([], []), done, None])
    assert applied(postgres) == [(1, "pre"), (2, "pre")]


def lock(hand: Hand, url: str) -> None:
    hand.do("select pg_advisory_xact_lock(hashtextextended(%s, 7310578116))", place_of(url).schema)


async def test_an_upgrade_does_not_wait_for_ever(postgres: str, newer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrating, "_TABLE_MS", 50)
    async with opened(postgres):
        pass
    impatient = PostgresUpkeep(place_of(postgres), known=migrations(newer), wait=0.05)
    async with hand_on(postgres) as hand:
        lock(hand, postgres)
        with pytest.raises(StoreBusy, match="another process has been migrating it"):
            await impatient.migrate()
        hand.rollback()
        hand.do("select count(*) from run")
        with pytest.raises(StoreBusy, match=r"0002_later\.pre\.sql needs a table that a transaction has held"):
            await upgrade(postgres, newer)
        hand.rollback()
    assert applied(postgres) == [(1, "pre")]
    assert not has_column(postgres, "mood")


async def test_an_open_of_a_schema_that_is_up_to_date_waits_for_no_lock(postgres: str) -> None:
    async with opened(postgres):
        pass
    async with hand_on(postgres) as hand:
        lock(hand, postgres)
        async with opened(postgres):
            pass


async def test_an_upgrade_that_is_killed_leaves_all_of_a_file_or_nothing(postgres: str, tmp_path: Path) -> None:
    stuck = f"{ADDS} select pg_advisory_xact_lock(42); create table {{schema}}.more (text text);"
    later = release(tmp_path / "later", FIRST[adapter], pre_0002="create table {schema}.two (a text);", pre_0003=stuck)
    async with opened(postgres):
        pass
    async with hand_on(postgres) as hand:
        hand.do("select pg_advisory_xact_lock(42)")
        with upgrading(postgres, later) as process:
            await hand.until_waiting("pg_advisory_xact_lock(42)")
            process.kill()
            assert process.stdout is not None
            assert process.stdout.read().splitlines() == [
                "applying 0002_later.pre.sql", "applied 0002_later.pre.sql", "applying 0003_later.pre.sql",
            ]  # fmt: skip
        hand.commit()
    # The lock is free when what the dead process left at the server is gone.
    told, _ = await upgrade(postgres, FIRST[adapter])
    assert told == []
    assert await upgrade(postgres, later) == (["applying 0003_later.pre.sql", "applied 0003_later.pre.sql"], [])
    assert applied(postgres) == [(1, "pre"), (2, "pre"), (3, "pre")]


async def test_a_file_that_fails_leaves_nothing_of_itself(postgres: str, tmp_path: Path) -> None:
    broken = release(
        tmp_path / "broken", FIRST[adapter], pre_0002="create table {schema}.two (a text);",
        pre_0003=f"{ADDS} select 1 / 0;",
    )  # fmt: skip
    async with opened(postgres):
        pass
    with pytest.raises(StoreUnavailable, match=r"0003_later\.pre\.sql cannot be applied: division by zero"):
        await upgrade(postgres, broken)
    assert applied(postgres) == [(1, "pre"), (2, "pre")]
    assert not has_column(postgres, "mood")
    with raw(postgres) as connection:
        connection.execute(f"drop schema {place_of(postgres).schema} cascade".encode())
    with pytest.raises(StoreUnavailable, match=r"0003_later\.pre\.sql cannot be applied: division by zero"):
        await upgrade(postgres, broken)
    assert schemas(postgres) == []


def schemas(url: str) -> list[str]:
    query = "select nspname::text from pg_namespace where nspname = %s"
    with raw(url) as connection:
        return [row[0] for row in connection.execute(query, (place_of(url).schema,))]


async def test_a_migration_that_was_edited_is_an_error(postgres: str) -> None:
    async with opened(postgres):
        pass
    with raw(postgres) as connection:
        connection.execute("update migration set sha256 = 'other'")
    for existing in (False, True):
        with pytest.raises(StoreUnavailable, match="another content than .* or a new store"):
            await open_postgres(postgres, clock=SystemClock(), existing=existing)


async def test_who_only_reads_makes_nothing_and_upgrades_nothing(postgres: str, newer: Path) -> None:
    def reading(known: Sequence[Migration] | None = None) -> PostgresStore:
        return PostgresStore(place_of(postgres), clock=SystemClock(), known=known, existing=True)

    with pytest.raises(StoreUnavailable, match="there is no store in schema outlive_test_[0-9]+ yet; the first start"):
        await reading().open()
    assert schemas(postgres) == []
    with raw(postgres) as connection:
        connection.execute(f"create schema {place_of(postgres).schema}".encode())
    with pytest.raises(StoreUnavailable, match="there is no store in schema"):
        await reading().open()
    async with opened(postgres):
        pass
    with pytest.raises(StoreUnavailable, match="an older release made it"):
        await reading(migrations(newer)).open()
    assert applied(postgres) == [(1, "pre")]
    await upgrade(postgres, newer)
    for known in (None, migrations(newer)):
        store = reading(known)
        await store.open()
        assert await store.run(DEFAULT_TENANT, RunId("r")) is None
        await store.close()
    await upgrade(postgres, newer, finish=True)
    with pytest.raises(SchemaTooNew):
        await reading().open()


@pytest.mark.parametrize("existing", [False, True])
async def test_tables_of_another_program_are_left_alone(postgres: str, *, existing: bool) -> None:
    schema = place_of(postgres).schema
    with raw(postgres) as connection:
        connection.execute(f"create schema {schema}; create table {schema}.migration (number integer)".encode())
        with pytest.raises(NotAStore, match=rf"is not a store of outlive \(schema {schema} has table migration\)"):
            await open_postgres(postgres, clock=SystemClock(), existing=existing)
        tables = "select relname::text from pg_class where relkind = 'r' and relnamespace = %s::regnamespace"
        assert connection.execute(tables, (schema,)).fetchall() == [("migration",)]


async def test_who_may_not_change_the_schema_is_told_who_has_to(postgres: str, newer: Path) -> None:
    async with opened(postgres):
        pass
    schema = place_of(postgres).schema
    role = f"{schema}_worker"
    url = postgres.replace("//postgres@", f"//{role}@")
    with raw(postgres) as connection:
        connection.execute(
            f"drop role if exists {role}; create role {role} login; grant usage on schema {schema} to {role};"
            f"grant select, insert, update, delete on all tables in schema {schema} to {role}".encode()
        )
        try:
            async with opened(url) as store:
                await work(store, "worker", 1)
            with pytest.raises(StoreUnavailable, match=r"brought up to date, and .*; let `outlive db upgrade` do it"):
                await upgrade(url, newer)
            async with Raises(StoreUnavailable) as raised:
                await upgrade(url.replace(f"schema={schema}&", f"schema={schema}_b&"), newer)
            assert "has to be made, and permission denied" in str(raised.error)
        finally:
            connection.execute(f"drop owned by {role}; drop role {role}".encode())
    assert applied(postgres) == [(1, "pre")]


def test_the_digests_of_migrations_are_recorded() -> None:
    lines = (HERE / "migrations" / "hashes.txt").read_text().splitlines()
    assert lines == [f"{migration.sha256}  {migration.name}" for migration in migrations()]
