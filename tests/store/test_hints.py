"""Hints: what is worth one arrives at whoever listens, on both stores; what goes wrong with them is noticed."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from outlive.app.compose import open_store
from outlive.app.settings import Settings
from outlive.model.clock import SystemClock
from outlive.model.errors import SettingInvalid, StoreUnavailable
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.run import Status
from outlive.store.hints import NEAR_MS, worth_a_hint
from outlive.store.port import Append, Change, Store
from outlive.store.postgres import PostgresStore, hints, open_postgres
from outlive.store.postgres.connection import place_of
from outlive.store.postgres.hints import Sender
from outlive.store.postgres.tasks import Tasks
from outlive.store.sqlite import SQLiteStore
from outlive.store.sqlite import hints as file_hints
from outlive.store.sqlite.hints import HintFile
from outlive.testing.clock import ManualClock
from outlive.testing.store_cases_keys import mark
from outlive.testing.store_scene import Scene, event, new_run
from tests.store.pooler import binary, pooled
from tests.store.postgres_scene import raw, scene_on

PATIENCE_S = 60


async def hint(arriving: AsyncGenerator[bool]) -> bool:
    """The next hint."""
    async with asyncio.timeout(PATIENCE_S):
        return await anext(arriving)


@asynccontextmanager
async def scene_in(folder: Path) -> AsyncIterator[Scene]:
    async def open_store(clock: ManualClock) -> Store:
        store = SQLiteStore(
            folder / "outlive.db", name="test", clock=clock, unsafe_durability=True, synchronous="off"
        )  # fmt: skip
        await store.open()
        return store

    scene = await Scene.set(open_store)
    try:
        yield scene
    finally:
        await scene.close()


async def a_hint_for_each(scene: Scene, *, at_first: bool) -> None:
    """Whatever somebody else may claim from now on, or has to look after, is heard of in another process."""
    other = await scene.other()
    async with aclosing(other.hints()) as arriving:
        if at_first:
            assert await hint(arriving)
        heard = asyncio.ensure_future(hint(arriving))
        await asyncio.wait([heard], timeout=0.05)

        async def follows() -> None:
            nonlocal heard
            assert await heard
            heard = asyncio.ensure_future(hint(arriving))
            await asyncio.wait([heard], timeout=0.05)

        assert not heard.done(), "nothing has happened yet"
        await scene.start()
        await follows()
        [claimed] = await scene.claims()
        await scene.post()
        await follows()
        head = await scene.store.append(
            Append(claimed.authority, claimed.row.head, (event(),), Change("ready")), now=scene.now
        )
        await follows()
        assert head.seq == 3
        heard.cancel()
        await asyncio.wait([heard])


async def test_a_hint_for_each_on_sqlite(tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        await a_hint_for_each(scene, at_first=False)


async def test_a_hint_for_each_on_postgres(postgres: str) -> None:
    async with scene_on(postgres) as scene:
        await a_hint_for_each(scene, at_first=True)


@pytest.mark.parametrize(
    ("status", "later", "worth"),
    [
        ("ready", None, True),
        ("waiting", 0, True),
        ("waiting", NEAR_MS, True),
        ("waiting", NEAR_MS + 1, False),
        ("waiting", None, False),
        ("blocked", None, False),
        ("succeeded", None, False),
        (None, None, False),
    ],
)
async def test_what_is_worth_a_hint(status: Status | None, later: int | None, worth: bool, tmp_path: Path) -> None:
    async with scene_in(tmp_path) as scene:
        hold = await scene.hold()
        now = event().at
        change = Change(status, wake_at=None if later is None else now + later) if status else None
        append = Append(hold.authority, hold.head, (event(),), change)
        assert worth_a_hint(append) == worth
        number = HintFile(tmp_path / "outlive.db")
        before = number._number()
        await scene.act(hold, append)
        assert (number._number() != before) == worth
        number.close()


# ---- SQLite


async def test_what_became_of_a_business_key_is_worth_one(tmp_path: Path) -> None:
    """Whoever waits for it may go on in another process."""
    async with scene_in(tmp_path) as scene:
        hold = await scene.hold()
        append = Append(hold.authority, hold.head, (event(),), marks=(mark(hold, status="free"),))
        assert worth_a_hint(append) and not worth_a_hint(replace(append, marks=()))


async def test_a_hint_is_heard_where_the_kernel_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_hints, "_told_by_kernel", lambda *_: None)
    async with scene_in(tmp_path) as scene, aclosing((await scene.other()).hints()) as arriving:
        heard = asyncio.ensure_future(hint(arriving))
        await asyncio.wait([heard], timeout=0)
        await scene.start()
        assert await heard


async def test_a_file_that_cannot_be_had_gives_no_hints(tmp_path: Path) -> None:
    number = HintFile(tmp_path / "missing" / "outlive.db")
    number.count_up()
    async with aclosing(number.changes()) as arriving:
        assert await hint(arriving) is False


async def test_a_number_that_overflows_begins_anew(tmp_path: Path) -> None:
    number = HintFile(tmp_path / "outlive.db")
    (tmp_path / "outlive.db-hint").write_bytes(b"\xff" * 8)
    number.count_up()
    assert (tmp_path / "outlive.db-hint").read_bytes() == bytes(8)
    number.close()
    assert len(os.listdir(tmp_path)) == 1


# ---- PostgreSQL


async def test_hints_that_come_together_are_sent_together() -> None:
    sent: list[str] = []
    go_on = asyncio.Event()

    async def notify(payload: str) -> None:
        sent.append(payload)
        await go_on.wait()

    tasks = Tasks()
    sender = Sender(notify, tasks)
    sender.send()
    await asyncio.wait([asyncio.ensure_future(go_on.wait())], timeout=0.01)
    for _ in range(20):
        sender.send()
    assert len(sent) == 1, "the first one at once, the others while it is on its way"
    go_on.set()
    await tasks.join()
    assert len(sent) == 2


async def test_a_hint_that_cannot_be_sent_is_forgotten() -> None:
    async def notify(payload: str) -> None:
        raise StoreUnavailable(store="s", why="restarting")

    tasks = Tasks()
    sender = Sender(notify, tasks)
    sender.send()
    await tasks.join()
    sender.send()
    await tasks.join()


async def test_what_is_pending_is_sent_before_a_store_is_closed(postgres: str) -> None:
    await (await open_postgres(postgres, clock=SystemClock())).close()
    place = place_of(postgres)
    async with await psycopg.AsyncConnection.connect(place.conninfo, autocommit=True) as listening:
        await listening.execute(f"listen {place.schema}".encode())
        store = await open_postgres(postgres, clock=SystemClock())
        await store.start(new_run())
        await store.close()
        heard = [one.payload async for one in listening.notifies(timeout=PATIENCE_S, stop_after=1)]
    assert heard == [""]


async def test_a_listener_that_was_cut_off_connects_again(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "outlive.store")
    store = await open_postgres(postgres, clock=SystemClock())
    async with aclosing(store.hints()) as arriving:
        assert await hint(arriving) is True
        with raw(postgres) as connection:
            listening = "select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%%'"
            assert connection.execute(f"{listening} and query like %s", (f"%{place_of(postgres).schema}%",)).fetchall()
        assert await hint(arriving) is False, "until it listens again, hints cannot be relied on"
        while not await hint(arriving):
            pass
        await store.start(new_run())
        assert await hint(arriving) is True
    await store.close()
    said = [record.getMessage() for record in caplog.records]
    assert sum("no hints arrive" in one for one in said) == 1
    assert sum("hints arrive again" in one for one in said) == 1


async def test_hints_that_do_not_arrive_are_noticed(
    postgres: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "PATIENCE_S", 0.2)
    # Notifications stay within a database.
    elsewhere = postgres.replace("/postgres?", "/template1?")
    assert elsewhere != postgres
    store = PostgresStore(place_of(postgres), clock=SystemClock(), listen_url=elsewhere)
    await store.open()
    async with aclosing(store.hints()) as arriving:
        assert await hint(arriving) is False
    await store.close()
    [said] = [record.getMessage() for record in caplog.records if "no hints arrive" in record.getMessage()]
    assert "listen_url" in said


async def test_nobody_has_to_listen(postgres: str) -> None:
    async def nobody_listens(store: Store) -> None:
        async with aclosing(store.hints()) as arriving:
            assert await hint(arriving) is False
        with raw(postgres) as connection:
            listening = "select count(*) from pg_stat_activity where query like 'listen%%' and query like %s"
            assert connection.execute(listening, (f"%{place_of(postgres).schema}%",)).fetchone() == (0,)
        await store.start(new_run())
        await store.close()

    await nobody_listens(await open_postgres(f"{postgres}&listen_url=no", clock=SystemClock()))
    await nobody_listens(await open_store(Settings.load({}, store=postgres, listen_url="no"), SystemClock()))


def test_a_listen_url_is_checked_and_its_password_not_shown() -> None:
    with pytest.raises(SettingInvalid, match="postgresql://"):
        place_of("postgresql://h/d?listen_url=mysql://h/d")
    with pytest.raises(SettingInvalid, match="OUTLIVE_LISTEN_URL"):
        Settings.load({"OUTLIVE_LISTEN_URL": "yes"})
    place = place_of("postgresql://ada@pool/d?listen_url=postgresql%3A%2F%2Fada%3Ahush%40h%2Fd")
    assert place.listen == "postgresql://ada:hush@h/d"
    assert "hush" not in place.name
    assert "listen_url" not in place.conninfo


@pytest.mark.long
@pytest.mark.skipif(binary() is None and "CI" not in os.environ, reason="PgBouncer is not installed")
async def test_behind_a_pooler_hints_need_a_direct_connection(postgres: str) -> None:
    with pooled(postgres, place_of(postgres).schema) as through:
        store = PostgresStore(place_of(through), clock=SystemClock())
        await store.open()
        async with aclosing(store.hints()) as arriving:
            assert await hint(arriving) is False
        await store.close()
        store = PostgresStore(place_of(through), clock=SystemClock(), listen_url=postgres)
        await store.open()
        async with aclosing(store.hints()) as arriving:
            assert await hint(arriving) is True
            await store.start(new_run())
            assert await hint(arriving) is True
        assert await store.run(DEFAULT_TENANT, RunId("r")) is not None
        await store.close()
