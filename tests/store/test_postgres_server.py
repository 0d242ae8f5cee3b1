"""The store on a PostgreSQL server: URLs, opening, durability, migrations, transactions, plans, and the views."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outlive.app.compose import open_store
from outlive.app.settings import Settings
from outlive.log.entry import verify
from outlive.model.clock import SystemClock
from outlive.model.errors import (
    ChainBroken,
    NotSerialisable,
    Refused,
    SettingInvalid,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
    UnsafeDurability,
)
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.port import Append, Change
from outlive.store.postgres import PostgresStore, open_postgres
from outlive.store.postgres.append import prepare, statement
from outlive.store.postgres.connection import HERE, Statements, place_of, translated
from outlive.store.postgres.migrate import unsafe_settings
from outlive.store.postgres.work import PostgresWork
from outlive.store.sql import load
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import ANNA, LEASE, event, new_run, operation, together, wish
from tests.store.postgres_scene import raw, scene_on

SECRET = b"k" * 32


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://h/d", "postgresql://"),
        ("postgresql://h/d?schema=Drop%20it", "lower case"),
        ("postgresql://h/d?direct=maybe", "direct="),
        ("postgresql://h/d?colour=blue", "colour"),
    ],
)
async def test_another_url_is_invalid(url: str, why: str) -> None:
    with pytest.raises(SettingInvalid, match=why):
        await open_postgres(url, clock=SystemClock())


def test_a_password_is_not_shown() -> None:
    for url in ("postgresql://ada:hush@h/d?schema=x", "postgres://ada@h/d?password=hush"):
        place = place_of(url)
        assert "hush" in place.conninfo
        assert "hush" not in place.name
        assert "ada@h/d" in place.name
    with pytest.raises(SettingInvalid) as raised:
        place_of("postgresql://ada:hush@h/d?colour=blue")
    assert "hush" not in str(raised.value)


async def test_the_settings_lead_to_it(postgres: str) -> None:
    store = await open_store(Settings(store=postgres), SystemClock())
    assert isinstance(store, PostgresStore)
    assert abs(await store.now() - (await store.start(new_run())).created_at) < 60_000
    await store.close()


async def test_a_server_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    url = f"postgresql://ada@/d?host={tmp_path}"
    with pytest.raises(StoreUnavailable, match="ada@/d"):
        await open_postgres(url, clock=SystemClock())


async def test_settings_that_lose_commits_are_refused(postgres: str) -> None:
    url = f"{postgres}%20-csynchronous_commit%3Doff"
    with pytest.raises(UnsafeDurability, match="synchronous_commit = off"):
        await open_postgres(url, clock=SystemClock())
    store = await open_postgres(url, clock=SystemClock(), unsafe_durability=True)
    assert await store.durability() == ["synchronous_commit = off"]
    await store.close()


def test_what_loses_commits_is_known() -> None:
    good = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "synchronous_standby_names": ""}
    assert unsafe_settings(good) == []
    assert unsafe_settings({**good, "synchronous_commit": "local"}) == []
    for changed in (
        {"fsync": "off"},
        {"full_page_writes": "off"},
        {"synchronous_commit": "off"},
        {"synchronous_commit": "local", "synchronous_standby_names": "b"},
    ):
        assert len(unsafe_settings({**good, **changed})) == 1, changed


async def test_every_write_is_durable_whatever_the_connection_was_set_to(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        prepared = prepare(SECRET, Append(hold.authority, hold.head, (event(),)), scene.now)
        query, parameters = statement(Statements(place_of(postgres).schema), [prepared])
        with raw(postgres) as connection, connection.transaction(force_rollback=True):
            connection.execute("set synchronous_commit = off")
            assert connection.execute(query, parameters).fetchall() == [(1, True, "")]
            assert connection.execute("show synchronous_commit").fetchone() == ("on",)


def test_every_statement_that_writes_is_durable() -> None:
    sql = Statements("outlive")
    # A worker's announcement may be lost.
    exempt = {"put_worker", "drop_worker", "drop_silent_workers", "see_worker", "record_migration"}
    parts = {"add_entry", "add_one_entry", "add_blob", "put_operation", "take_message", "put_divergence", "forgive"}
    parts |= {"copy_entries", "add_notification", "ask_approval", "use_approval", "withdraw_approvals"}
    parts |= {"add_vote", "tell_run", "compensate", "compensate_key", "mark_key", "wake_waiters"}
    for name in sql.names() - exempt - parts:
        text = sql[name].decode()
        if any(word in text for word in ("insert into", 'update "', "delete from")):
            assert "'synchronous_commit', 'on', true" in text, name


async def test_a_closed_store_answers_that_it_is_closed(postgres: str) -> None:
    store = await open_postgres(postgres, clock=ManualClock())
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.now()
    with pytest.raises(StoreUnavailable, match="not open"):
        store.renew(ANNA, [], LEASE)
    await store.open()
    assert await store.durability() == []
    await store.close()


async def test_what_is_on_its_way_ends_before_the_store_is_closed(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        holds = [await scene.hold(f"r{number}") for number in range(3)]
        store = await scene.other()
        await store.key(DEFAULT_TENANT)
        answers = await together(*[scene.append(hold, event(), store=store) for hold in holds], store.close())
        assert answers == [None] * 4
        for hold in holds:
            assert len(await scene.log(hold.run)) == 3


async def test_many_open_a_new_schema_at_once(postgres: str) -> None:
    stores = [PostgresStore(place_of(postgres), clock=ManualClock()) for _ in range(12)]
    assert await together(*[store.open() for store in stores]) == [None] * 12
    for store in stores:
        await store.close()
    with raw(postgres) as connection:
        assert connection.execute("select number, stage from migration").fetchall() == [(1, "pre")]


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (psycopg.errors.DiskFull, StoreFull),
        (psycopg.errors.DeadlockDetected, StoreBusy),
        (psycopg.errors.LockNotAvailable, StoreBusy),
        (psycopg.errors.QueryCanceled, StoreBusy),
        (psycopg.errors.TooManyConnections, StoreUnavailable),
        (psycopg.errors.AdminShutdown, StoreUnavailable),
        (psycopg.errors.CannotConnectNow, StoreUnavailable),
        (psycopg.errors.ConnectionFailure, StoreUnavailable),
        (psycopg.errors.UndefinedTable, StoreUnavailable),
        (psycopg.errors.ReadOnlySqlTransaction, StoreUnavailable),
        (psycopg.errors.InsufficientPrivilege, StoreUnavailable),
        (psycopg.errors.NumericValueOutOfRange, NotSerialisable),
        (psycopg.OperationalError, StoreUnavailable),
    ],
)
def test_an_error_of_the_driver_has_one_meaning(error: type[psycopg.Error], meaning: type[Exception]) -> None:
    assert type(translated(error("why"), "store")) is meaning


async def test_a_schema_that_was_dropped_is_unavailable(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        with raw(postgres) as connection:
            connection.execute(f"drop schema {place_of(postgres).schema} cascade".encode())
        with pytest.raises(StoreUnavailable, match="does not exist"):
            await scene.append(hold, event())
        with pytest.raises(StoreUnavailable, match="does not exist"):
            scene.store.renew(ANNA, [], LEASE)


async def test_text_comes_back_as_it_went_in(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        payload = json.dumps({"a": 'q"\\\u2028é😀%s{}', "b": [1e300, 0.1, "\u0000"], "c ": None}, ensure_ascii=True)
        odd = '{"b":1,"a":1.50,  "a":"\\ud800"}'
        await scene.append(hold, event(payload=payload, key="%s"), event(payload=odd), event(payload=payload * 4000))
        assert [entry.payload for entry in (await scene.log())[2:]] == [payload, odd, payload * 4000]
        with pytest.raises(NotSerialisable, match="NUL"):
            await scene.append(hold, event(key="a\0b"))


async def test_user_sql_may_not_end_its_transaction_nor_write_the_stores_tables(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        async with scene.store.transaction() as transaction:
            for sql in (
                "commit", " /* now */ COMMIT", "-- end it\nrollback", "end", "abort", "begin", "start transaction",
                "prepare transaction 'x'", "set synchronous_commit = off", "discard all",
            ):  # fmt: skip
                with pytest.raises(Refused):
                    await transaction.execute(sql)
            assert await transaction.execute("select epoch from run where id = %s", ("r",)) == [(1,)]
            assert await transaction.execute("select '100%'") == [("100%",)]
            hold.head = await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        for sql in ("update run set epoch = 9", "delete from entry", "select 1; commit"):
            with pytest.raises((Refused, psycopg.errors.SyntaxError)):
                async with scene.store.transaction() as transaction:
                    await transaction.execute(sql)
                    await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        assert [entry.kind for entry in await scene.log()] == ["started", "claimed", "emitted"]


async def test_a_failed_statement_fails_its_transaction(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        with pytest.raises(Refused, match="a statement of its transaction failed"):
            async with scene.store.transaction() as transaction:
                with pytest.raises(psycopg.errors.DivisionByZero):
                    await transaction.execute("select 1 / 0")
                await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        async with scene.store.transaction() as transaction:
            await transaction.execute("savepoint before")
            with pytest.raises(psycopg.errors.DivisionByZero):
                await transaction.execute("select 1 / 0")
            await transaction.execute("rollback to before")
            await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        assert len(await scene.log()) == 3


async def test_a_deferred_constraint_that_does_not_hold_refuses_the_append(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        with raw(postgres) as connection:
            connection.execute("create table effect (number integer unique deferrable initially deferred)")
        with pytest.raises(Refused, match="deferred constraint"):
            async with scene.store.transaction() as transaction:
                await transaction.execute("insert into effect values (1), (1)")
                await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
        assert len(await scene.log()) == 2


async def test_other_writers_do_not_wait_for_a_transaction(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold, other = await scene.hold("r"), await scene.hold("other")
        store = await scene.other()
        async with scene.store.transaction() as transaction:
            await transaction.execute("create table effect (number integer)")
            await scene.append(other, event(), store=store)
            assert await scene.post(store=store)
            await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)


async def test_a_damaged_entry_is_found(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        hold = await scene.hold()
        await scene.append(hold, event("a", payload='"small"'), event("b", payload='"' + "x" * 40_000 + '"'))
        secret = await scene.store.key(DEFAULT_TENANT)
        with raw(postgres) as connection:
            for damage, seq in [
                ("update entry set payload = '\"smaller\"' where seq = 2", 2),
                ("update blob set payload = payload || ' '", 3),
            ]:
                connection.execute(damage.encode())
                entries = await scene.store.entries(DEFAULT_TENANT, hold.run)
                with pytest.raises(ChainBroken) as raised:
                    verify(secret, hold.run, entries[seq:], entries[seq - 1].digest)
                assert raised.value.seq == seq


async def test_the_views_answer_the_three_questions(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        owned = await scene.hold("owned")
        await scene.act(owned, Append(owned.authority, owned.head, (event(),), operations=(operation(owned),)))
        await scene.become(await scene.hold("asleep"), "waiting", wake_at=scene.now + 60_000)
        await scene.become(await scene.hold("asking"), "waiting", reason="approval")
        doubt = Change("blocked", "operation in doubt", "charge 7")
        await scene.append(await scene.hold("stuck"), event(), change=doubt)
        await scene.become(await scene.hold("over"), "succeeded")
        await scene.start("queued")
        await scene.post("asking")
    with raw(postgres) as connection:

        def rows(sql: str) -> list[Any]:
            return connection.execute(sql.encode()).fetchall()

        owns = rows("select run, owner, lease_ends from who_owns_it where owner is not null")
        done = rows("select run, tool, status, arguments from what_has_it_done")
        waits = dict(rows("select run, waits_for from what_is_it_waiting_for"))
        unread = rows("select run from what_is_it_waiting_for where unread > 0")
    assert owns == [("owned", "anna", "2025-06-15T15:07:10Z")]
    assert done == [("owned", "charge", "pending", '{"cents":4200}')]
    assert waits == {
        "owned": "its owner, or a takeover when the lease has ended",
        "asleep": "a timer",
        "asking": "approval",
        "stuck": "a person: operation in doubt",
        "queued": "a worker that serves clerk",
    }
    assert unread == [("asking",)]


async def test_a_paused_run_is_not_claimed(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        lapsed = await scene.hold("lapsed")
        await scene.become(await scene.hold("timer"), "waiting", wake_at=scene.now)
        await scene.start("ready")
        scene.advance(milliseconds=LEASE)
        everything = replace(wish(), watched=frozenset([(DEFAULT_TENANT, lapsed.run, 1)]))
        with raw(postgres) as connection:
            connection.execute("update run set paused_at = 1")
            assert await scene.claims(claim=everything) == []
            connection.execute("update run set paused_at = null")
        claimed = await scene.claims(claim=everything)
        assert sorted(one.row.id for one in claimed) == ["lapsed", "ready", "timer"]


def test_every_statement_is_used() -> None:
    source = "".join(path.read_text() for path in HERE.glob("*.py"))
    parts = set(re.findall(r"\{(\w+)\}", load(HERE / "queries.sql")["look"]))
    for name in Statements("outlive").names() - parts:
        assert f'"{name}"' in source or f"['{name}']" in source, f"{name} is not used"


def test_the_parts_of_the_store_are_its_port() -> None:
    assert issubclass(PostgresStore, PostgresWork)
