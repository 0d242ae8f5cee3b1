"""The SQLite file: opening, durability, migrations, errors of the driver, and the views that people read."""

import asyncio
import hashlib
import re
import resource
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from outlive.log.entry import verify
from outlive.model.clock import SystemClock
from outlive.model.errors import (
    ChainBroken,
    CommitUnknown,
    NotAStore,
    SchemaTooNew,
    SettingInvalid,
    StoreBusy,
    StoreUnavailable,
    UnsafeDurability,
)
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.port import Append, Change
from outlive.store.sql import load
from outlive.store.sqlite import SQLiteStore, open_sqlite
from outlive.store.sqlite.connection import HERE, QUERIES, SETUP
from outlive.store.sqlite.migrate import migrations, schema, statements
from outlive.store.sqlite.work import candidates
from outlive.testing.clock import ManualClock
from outlive.testing.store_scene import LEASE, Scene, event, held, new_run, operation, together, wish


async def opened(path: Path, *, wait: float = 10.0) -> SQLiteStore:
    store = SQLiteStore(path, name="test", clock=ManualClock(), wait=wait)
    await store.open()
    return store


async def scene_in(folder: Path, *, wait: float = 10.0) -> Scene:
    async def open_store(clock: ManualClock) -> SQLiteStore:
        store = SQLiteStore(folder / "outlive.db", name="test", clock=clock, wait=wait)
        await store.open()
        return store

    return await Scene.set(open_store)


def raw(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(path, isolation_level=None))


async def test_a_url_names_a_relative_or_an_absolute_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in [
        ("sqlite:///here.db", tmp_path / "here.db"),
        (f"sqlite:///{tmp_path}/there.db", tmp_path / "there.db"),
    ]:
        store = await open_sqlite(url, clock=SystemClock())
        await store.close()
        assert store.name == url
        assert path.is_file()


@pytest.mark.parametrize(
    "url",
    ["sqlite://host/file.db", "postgres:///x", "sqlite:///x.db?cache=shared", "sqlite:///x.db?synchronous=normal"],
)
async def test_another_url_is_invalid(url: str) -> None:
    with pytest.raises(SettingInvalid, match="sqlite|synchronous"):
        await open_sqlite(url, clock=SystemClock())


@pytest.mark.parametrize("url", ["sqlite:///:memory:", "sqlite:///"])
async def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="name a file"):
        await open_sqlite(url, clock=SystemClock())


async def test_settings_that_lose_commits_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db?synchronous=off"
    with pytest.raises(UnsafeDurability, match="synchronous = off"):
        await open_sqlite(url, clock=SystemClock())
    store = await open_sqlite(url, clock=SystemClock(), unsafe_durability=True)
    assert await store.durability() == ["synchronous = off"]
    await store.close()
    store = await opened(tmp_path / "x.db")
    assert await store.durability() == []
    await store.close()


async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is a letter and no database. " * 100)
    for path in (tmp_path / "missing" / "x.db", tmp_path, tmp_path / "text.db"):
        store = SQLiteStore(path, name=f"sqlite:///{path}", clock=ManualClock())
        with pytest.raises(StoreUnavailable, match=str(path)):
            await store.open()
        with pytest.raises(StoreUnavailable, match="not open"):
            await store.now()


async def test_a_closed_store_answers_that_it_is_closed(tmp_path: Path) -> None:
    store = await opened(tmp_path / "x.db")
    pending = asyncio.ensure_future(store.leave(wish().owner))
    await asyncio.wait([pending], timeout=0)
    await store.close()
    await pending  # a write in flight ends first
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.now()
    with pytest.raises(StoreUnavailable):
        store.renew(wish().owner, [], LEASE)
    await store.open()
    assert await store.durability() == []
    await store.close()


async def test_many_open_a_new_file_at_once(tmp_path: Path) -> None:
    stores = [SQLiteStore(tmp_path / "x.db", name="test", clock=ManualClock()) for _ in range(6)]
    assert await together(*[store.open() for store in stores]) == [None] * 6
    for store in stores:
        await store.close()
    with raw(tmp_path / "x.db") as database:
        assert database.execute("select number from migration").fetchall() == [(1,)]


async def test_a_newer_schema_is_not_touched(tmp_path: Path) -> None:
    await (await opened(tmp_path / "x.db")).close()
    with raw(tmp_path / "x.db") as database:
        database.execute("insert into migration values (7, '0007_later.sql', 'x', 0)")
    with pytest.raises(SchemaTooNew) as raised:
        await opened(tmp_path / "x.db")
    assert (raised.value.found, raised.value.known) == (7, 1)


async def test_a_migration_that_was_edited_is_an_error(tmp_path: Path) -> None:
    await (await opened(tmp_path / "x.db")).close()
    with raw(tmp_path / "x.db") as database:
        database.execute("update migration set sha256 = 'other'")
    with pytest.raises(StoreUnavailable, match="another content than .* or a new store"):
        await opened(tmp_path / "x.db")


async def test_a_migration_is_applied_in_full_or_not_at_all(tmp_path: Path) -> None:
    with raw(tmp_path / "x.db") as database:
        for name in ("migration", "run", "entry", "operation"):
            database.execute(f"create table {name} (number integer, name text, sha256 text)")
        before = database.execute("select name, sql from sqlite_schema").fetchall()
    with pytest.raises(StoreUnavailable, match="already exists"):
        await opened(tmp_path / "x.db")
    with raw(tmp_path / "x.db") as database:
        assert database.execute("select name, sql from sqlite_schema").fetchall() == before


def migrated() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.row_factory = sqlite3.Row
    for migration in migrations():
        for statement in statements(migration.text):
            database.execute(statement)
    return database


def test_the_schema_file_is_what_the_migrations_make() -> None:
    with closing(migrated()) as database:
        heading, _, text = (HERE / "schema.sql").read_text().partition("\n\n")
        assert heading.startswith("--")
        assert text == schema(database).rstrip() + "\n"


def test_the_digests_of_migrations_are_recorded() -> None:
    lines = (HERE / "migrations" / "hashes.txt").read_text().splitlines()
    assert lines == [f"{migration.sha256}  {migration.name}" for migration in migrations()]
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))
    assert migrations()[0].sha256 == hashlib.sha256(migrations()[0].text.encode()).hexdigest()


def test_every_statement_is_used_and_every_use_is_there() -> None:
    source = "".join(path.read_text() for path in HERE.glob("*.py"))
    dynamic = {"append", "append_and_change", "use_synchronous_full", "use_synchronous_off"}
    parts = set(re.findall(r"\{(\w+)\}", load(HERE / "queries.sql")["look"]))
    for name in {*QUERIES, *SETUP} - dynamic - parts:
        assert f'"{name}"' in source or f"['{name}']" in source, f"{name} is not used"


def test_no_statement_reads_a_whole_table() -> None:
    small = {"worker", "json_each", "CONSTANT", "wanted", "has", "served", "asked", "watched", "unread"}
    small |= {"coming", "overdue", "past", "sent", "lying", "stranded", "can", "duty", "due", "timed", "agent", "queue"}
    small |= {"waiter"}
    with closing(migrated()) as database:
        for name, sql in QUERIES.items():
            parameters: list[None] | Everything = [None] * 15 if name == "add_entry" else Everything()
            for row in database.execute("explain query plan " + sql, parameters):
                step = row["detail"]
                reads_all = step.startswith("SCAN") and "USING" not in step
                assert not reads_all or step.split()[1] in small, f"{name}: {step}"
                few = any(index in step for index in ("run_running", "run_left", "run_cancelling"))
                assert not step.startswith("SCAN run") or few, f"{name}: {step}"
                unread = "inbox_unread" in step or "inbox_control" in step
                assert not step.startswith("SCAN inbox") or unread, f"{name}: {step}"


class Everything(dict[str, None]):
    """Parameters for a statement that is only explained."""

    def __missing__(self, key: str) -> None:
        return None


def test_a_claim_costs_the_same_beside_100_000_runs_that_it_cannot_have() -> None:
    with closing(migrated()) as database:
        fill = """
            with recursive n (i) as (select :first union all select i + 1 from n where i < :last)
            insert into run (tenant, id, agent, version, status, epoch, next_seq, head, created_at, updated_at,
                input_digest, origin, queue, priority, ready_at, wake_at, ended_at, paused_at, reason)
            select 'default', 'r' || i, case when i % 5 = 0 then 'pilot' else 'clerk' end, '1',
                case i % 5 when 0 then 'ready' when 1 then 'waiting' when 2 then 'succeeded' when 3 then 'blocked'
                    else 'ready' end,
                1, 1, x'00', i, i, '', 'r' || i, 'default', 0, case when i % 5 in (0, 4) then i end,
                case i % 5 when 1 then 1000000 + i end, case i % 5 when 2 then i end, case i % 5 when 4 then i end,
                case i % 5 when 3 then 'poison' else '' end
            from n
        """
        database.execute(fill, {"first": 1, "last": 50})
        before = steps(database)
        database.execute(fill, {"first": 51, "last": 100_000})
        assert steps(database) <= before + 50


def steps(database: sqlite3.Connection) -> int:
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    database.set_progress_handler(count, 1)
    assert candidates(database, wish(), 500_000) == []
    everything = {
        "serves": '{"clerk":"b1"}', "versions": '{"clerk":"1"}', "queues": '["default"]', "tenants": None, "most": 100,
        "lease_ms": 30_000, "grace_ms": 30_000, "owner": "w", "now": 500_000,
    }  # fmt: skip
    assert database.execute(QUERIES["look"], everything).fetchone()["claimable"] == 0
    database.set_progress_handler(None, 0)
    return counted


async def test_a_damaged_entry_is_found(tmp_path: Path) -> None:
    scene = await scene_in(tmp_path)
    hold = await scene.hold()
    await scene.append(hold, event("a", payload='"small"'), event("b", payload='"' + "x" * 40_000 + '"'), event("c"))
    secret = await scene.store.key(DEFAULT_TENANT)
    for damage, seq in [
        ("update entry set payload = '\"smaller\"' where seq = 2", 2),
        ("update blob set payload = payload || ' '", 3),
        ("delete from blob", 3),
        ("update entry set epoch = 9 where seq = 4", 4),
    ]:
        with raw(tmp_path / "outlive.db") as database:
            database.execute("begin")
            database.execute(damage)
            database.execute("commit")
        entries = await scene.store.entries(DEFAULT_TENANT, hold.run)
        with pytest.raises(ChainBroken) as raised:
            verify(secret, hold.run, entries[seq:], entries[seq - 1].digest)
        assert raised.value.seq == seq
    await scene.close()


async def test_a_write_lock_that_is_held_past_the_turnstile_is_busy(tmp_path: Path) -> None:
    scene = await scene_in(tmp_path, wait=0.05)
    hold = await scene.hold()
    with raw(tmp_path / "outlive.db") as database:
        database.execute("begin immediate")
        with pytest.raises(StoreBusy, match="process"):
            await scene.append(hold, event())
        with pytest.raises(StoreBusy):
            scene.store.renew(wish().owner, [hold.authority], LEASE, now=scene.now)
        assert len(await scene.log()) == 2, "reading goes on"
        database.execute("rollback")
    await scene.append(hold, event())
    assert len(await scene.log()) == 3
    await scene.close()


async def test_a_commit_that_may_have_happened_is_unknown_and_then_known(tmp_path: Path) -> None:
    scene = await scene_in(tmp_path)
    hold = await scene.hold()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on file sizes makes the device fail in the middle of the commit.
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "outlive.db-wal").stat().st_size, hard))
    try:
        with pytest.raises(CommitUnknown):
            await scene.append(hold, event())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    claimed = await scene.store.again(hold.authority, owner=wish().owner, lease_ms=LEASE, now=scene.now)
    assert claimed is not None
    await scene.append(held(claimed), event("after"))
    assert [entry.kind for entry in await scene.log()] == ["started", "claimed", "claimed", "emitted"]
    await scene.close()


async def test_one_failing_request_does_not_take_others_with_it(tmp_path: Path) -> None:
    scene = await scene_in(tmp_path)
    good, bad = await scene.hold("good"), await scene.hold("bad")
    too_big = replace(operation(bad), attempt=2**70)
    calls = [
        scene.append(good, event()),
        scene.store.append(Append(bad.authority, bad.head, (event(),), operations=(too_big,)), now=scene.now),
        scene.post("good"),
    ]
    first, second, third = await together(*calls)
    assert (first, third) == (None, True)
    assert isinstance(second, OverflowError)
    assert (await scene.row("bad")).head == bad.head
    await scene.close()


async def test_a_cancelled_caller_leaves_the_store_usable(tmp_path: Path) -> None:
    scene = await scene_in(tmp_path)
    hold = await scene.hold()
    tasks = [asyncio.ensure_future(scene.post(key=f"k{number}")) for number in range(20)]
    await asyncio.wait(tasks, timeout=0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [answer for answer in answers[1::2] if answer is not True] == []
    await scene.append(hold, event())
    await scene.close()


def test_a_caller_whose_loop_has_closed_leaves_the_store_usable(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db", name="test", clock=ManualClock())
    first = asyncio.new_event_loop()
    first.run_until_complete(store.open())
    task = first.create_task(store.key(DEFAULT_TENANT))
    first.run_until_complete(asyncio.wait([task], timeout=0))
    task.cancel()
    first.run_until_complete(asyncio.wait([task], timeout=0))
    first.close()

    async def go_on() -> bytes:
        try:
            return await store.key(DEFAULT_TENANT)
        finally:
            await store.close()

    assert len(asyncio.run(go_on())) == 32


async def test_the_views_answer_the_three_questions(tmp_path: Path) -> None:
    scene = await scene_in(tmp_path)
    owned = await scene.hold("owned")
    await scene.act(owned, Append(owned.authority, owned.head, (event(),), operations=(operation(owned),)))
    await scene.become(await scene.hold("asleep"), "waiting", wake_at=scene.now + 60_000)
    await scene.become(await scene.hold("asking"), "waiting", reason="approval")
    await scene.append(await scene.hold("stuck"), event(), change=Change("blocked", "operation in doubt", "charge 7"))
    await scene.become(await scene.hold("over"), "succeeded")
    await scene.start("queued")
    await scene.post("asking")
    await scene.close()
    with raw(tmp_path / "outlive.db") as database:
        owns = database.execute("select run, owner, lease_ends from who_owns_it where owner is not null").fetchall()
        done = database.execute("select run, tool, status, arguments from what_has_it_done").fetchall()
        waits = dict(database.execute("select run, waits_for from what_is_it_waiting_for"))
        unread = database.execute("select run from what_is_it_waiting_for where unread > 0").fetchall()
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


async def test_a_paused_run_is_not_claimed(tmp_path: Path) -> None:
    scene = await scene_in(tmp_path)
    lapsed = await scene.hold("lapsed")
    await scene.become(await scene.hold("timer"), "waiting", wake_at=scene.now)
    await scene.start("ready")
    scene.advance(milliseconds=LEASE)
    everything = replace(wish(), watched=frozenset([(DEFAULT_TENANT, lapsed.run, 1)]))
    with raw(tmp_path / "outlive.db") as database:
        database.execute("update run set paused_at = 1")
        assert await scene.claims(claim=everything) == []
        database.execute("update run set paused_at = null")
    assert sorted(claimed.row.id for claimed in await scene.claims(claim=everything)) == ["lapsed", "ready", "timer"]
    await scene.close()


async def test_user_sql_may_not_touch_the_stores_tables(tmp_path: Path) -> None:
    scene = await scene_in(tmp_path)
    hold = await scene.hold()
    async with scene.store.transaction() as transaction:
        for sql in (
            "update run set epoch = 9",
            "delete from entry",
            "drop table inbox",
            "commit",
            "pragma synchronous = off",
            "attach 'second.db' as second",
        ):
            with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
                await transaction.execute(sql)
        assert await transaction.execute("select epoch from run where id = ?", ("r",)) == [(1,)]
        hold.head = await transaction.append(Append(hold.authority, hold.head, (event(),)), now=scene.now)
    assert (await scene.row()).id == RunId("r")
    await scene.close()


class Meddling(ManualClock):
    """Somebody is faster: when a claim asks for a token, after reading and before writing, `act` happens."""

    act: Callable[[], object] | None = None

    def token(self) -> str:
        if self.act is not None:
            self.act()
        return super().token()


@pytest.mark.parametrize(
    "change",
    [
        "update run set epoch = epoch + 1, next_seq = next_seq + 1",
        "update run set status = 'waiting'",
        "update run set paused_at = 1",
        "update run set expires_at = expires_at + 1 where status = 'running'",
    ],
)
async def test_a_claim_leaves_out_what_has_changed_since_it_was_read(tmp_path: Path, change: str) -> None:
    clock = Meddling()
    store = SQLiteStore(tmp_path / "outlive.db", name="test", clock=clock)
    await store.open()
    await store.start(new_run("r"))
    if "expires_at" in change:
        await store.claim(wish())
        clock.advance(timedelta(milliseconds=LEASE))
    with raw(tmp_path / "outlive.db") as database:
        clock.act = partial(database.execute, change)
        assert await store.claim(replace(wish(), watched=frozenset([(DEFAULT_TENANT, RunId("r"), 1)]))) == []
        assert database.execute("select count(*) from entry where epoch > 1").fetchone() == (0,)
    await store.close()


def remove_all(folder: Path) -> None:
    for file in folder.glob("outlive.db*"):
        file.unlink()


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_file_that_was_deleted_under_a_store_takes_no_more_writes(tmp_path: Path, replaced: bool) -> None:
    """What is committed to a file without a name is lost with the process: effects would go on without a record."""
    store = await opened(tmp_path / "outlive.db")
    await store.start(new_run("r"))
    remove_all(tmp_path)
    if replaced:
        await (await opened(tmp_path / "outlive.db")).close()
    with pytest.raises(StoreUnavailable):
        await store.start(new_run("s"))
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        await asyncio.to_thread(store.renew, wish().owner, [], LEASE)
    await store.close()


async def test_a_file_of_somebody_else_is_named_and_left_alone(tmp_path: Path) -> None:
    with raw(tmp_path / "outlive.db") as database:
        database.execute("create table mine (a)")
    with pytest.raises(NotAStore, match="it has table mine"):
        await opened(tmp_path / "outlive.db")
    with raw(tmp_path / "outlive.db") as database:
        assert database.execute("select name from sqlite_master").fetchall() == [("mine",)]
