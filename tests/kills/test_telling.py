"""Somebody is told, by real workers over real HTTP: whoever delivers dies in the middle of it, or a worker is stuck."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from outlive.model.ids import DEFAULT_TENANT
from outlive.store.keeping import Kept
from tests.duty.receiver import SECRET, Receiver, Request, genuine, receiving
from tests.kills.consent_scene import asked, start, worker
from tests.kills.scene import BOTH, SQLITE_FIRST, Scene, kill, scene
from tests.kills.waiting import until
from tests.store.postgres_scene import raw


def told(receiver: Receiver) -> dict[str, str]:
    """What a worker needs to know to tell the receiver."""
    routes = {"ops": {"url": receiver.url, "secret": "notify/ops"}}
    return {"OUTLIVE_NOTIFY": json.dumps(routes), "OUTLIVE_SECRET_NOTIFY_OPS": SECRET}


def due(here: Scene, duty: str) -> None:
    """Its lease, and its time, are over: both take a minute, and nothing else is to be seen in it."""
    change = f"update duty set next_at = 0, expires_at = null, owner = null, token = null where name = '{duty}'"
    store = here.environment["OUTLIVE_STORE"]
    if not store.startswith("sqlite"):
        with raw(store) as connection:
            connection.execute(change.encode())
        return
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"), isolation_level=None, timeout=60)) as database:
        database.execute(change)


@BOTH
async def test_who_delivers_is_killed_in_the_middle_of_it(tmp_path: Path, store: str) -> None:
    """The receiver has one and has not answered yet: it gets that one again, under its id, and all the others once."""
    async with receiving() as receiver, scene(tmp_path, store=store) as here:
        kept = list[Request]()

        def silent_once(request: Request) -> bytes | None:
            if len(receiver.accepted) >= 2 and not kept:
                kept.append(request)
                return None
            return b"HTTP/1.1 204 No Content\r\n\r\n"

        receiver.answer = silent_once
        first = worker(here, **told(receiver))
        runs = [f"run {number}" for number in range(6)]
        for run in runs:
            await start(here, "checked", run)

        async def is_kept() -> bool:
            return bool(kept)

        await until(is_kept, "the receiver has one that it does not answer", within=60)
        for run in runs:
            await asked(here, run)
        kill(first)
        before = [one.id for one in receiver.accepted]
        assert kept[0].id not in before
        due(here, "telling")
        worker(here, **told(receiver))

        async def all_are() -> bool:
            return len({one.told["run"] for one in receiver.accepted}) == len(runs)

        await until(all_are, "every run was told of", within=60)
        assert isinstance(here.store, Kept)
        stored = await here.store.notifications(DEFAULT_TENANT, undelivered=False, limit=100)
        assert sorted(receiver.ids()) == sorted(one.notification.id for one in stored)
        again = [one for one in receiver.got if one.id == kept[0].id]
        assert len(again) == 2 and again[0].body == again[1].body
        doubled = {id for id, count in receiver.ids().items() if count > 1}
        assert doubled <= set(before), "only what was answered as its worker died may come twice"
        assert all(genuine(one.headers, one.body, int(one.headers["outlive-timestamp"])) for one in receiver.got)
        assert {one.told["kind"] for one in receiver.got} == {"approval"}


@SQLITE_FIRST
async def test_another_worker_tells_of_one_that_is_stuck(tmp_path: Path, store: str) -> None:
    async with receiving() as receiver, scene(tmp_path, store=store) as here:
        here.arm("stick")
        stuck = here.worker(OUTLIVE_STALL_NOTICE="300ms", OUTLIVE_STALL_LIMIT="600s")
        owner = await here.owner(stuck)
        await here.pay("blind", "A")
        await here.reached("stick")

        async def is_known() -> bool:
            known = await here.store.workers(within_ms=3_600_000)
            return any(one.stalled_by == "A" for one in known if one.owner == owner)

        await until(is_known, "the store knows that it is stuck", within=60)
        other = here.worker(**told(receiver))
        await here.owner(other)
        due(here, "stalls")

        async def is_told() -> Request | None:
            return next(iter(receiver.accepted), None)

        letter = (await until(is_told, "somebody is told", within=60)).told
        assert (letter["kind"], letter["run"], letter["facts"]["worker"]) == ("stalled run", "A", owner)
        assert "this run blocks it; see: outlive show A" in letter["text"]
        assert here.counted() == {"A": 1}
