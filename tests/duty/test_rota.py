"""Who does a duty, on both stores: one worker at a time, another one when that is gone, and nobody pays for asking."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from outlive.duty.rota import LEASE_S, RETRY_S, Done, Rotation, Shift
from outlive.engine.aside import Aside
from outlive.errors import StoreUnavailable
from outlive.model.ids import Owner
from outlive.store.keeping import DutyRow, Kept
from outlive.testing.store_scene import ANNA, BORIS, Scene
from tests.duty.ground import CARL, kept

LEASE_MS = int(LEASE_S * 1000)


class Chore:
    """A duty that counts, and can be held or made to fail."""

    name = "chore"
    due = timedelta(minutes=10)

    def __init__(self) -> None:
        self.done = 0
        self.failing: Exception | None = None
        self.begun, self.free = asyncio.Event(), asyncio.Event()
        self.free.set()
        self.went_on: list[bool] = []
        self.due_s: float | None = None

    async def work(self, shift: Shift) -> Done:
        self.begun.set()
        await self.free.wait()
        self.went_on.append(await shift.goes_on())
        if self.failing is not None:
            raise self.failing
        self.done += 1
        return Done(f"done {self.done} times", self.due_s)


def rotation(scene: Scene, chore: Chore, owner: Owner = ANNA, store: Kept | None = None) -> Rotation:
    return Rotation(store or kept(scene), scene.clock, owner, [chore])


async def due(scene: Scene) -> tuple[str, ...]:
    return (await scene.look()).duties


async def test_a_look_says_what_is_due_and_only_one_worker_gets_it(scene: Scene) -> None:
    chore, store = Chore(), kept(scene)
    assert await due(scene) == ()
    anna, boris = rotation(scene, chore), rotation(scene, chore, BORIS)
    await anna.begin()
    await boris.begin()
    assert await due(scene) == ("chore",)
    chore.free.clear()
    working = asyncio.ensure_future(anna.serve(("chore",)))
    await chore.begun.wait()
    assert await due(scene) == ()
    await boris.serve(("chore",))
    assert chore.done == 0
    assert [(one.owner, one.expires_at) for one in await store.duties()] == [(ANNA, scene.now + LEASE_MS)]
    chore.free.set()
    await working
    assert await store.duties() == [
        DutyRow("chore", scene.now + 600_000, None, None, scene.now, "done 1 times"),
    ]
    await boris.serve(("chore",))
    scene.advance(minutes=10)
    assert await due(scene) == ("chore",)
    await boris.serve(("chore",))
    assert chore.done == 2


async def test_a_worker_that_dies_at_it_is_followed_after_its_lease(scene: Scene) -> None:
    store, chore = kept(scene), Chore()
    await rotation(scene, chore).begin()
    assert await store.take_duty("chore", owner=CARL, token="his", lease_ms=LEASE_MS)
    scene.advance(seconds=LEASE_S - 1)
    assert await due(scene) == ()
    await rotation(scene, chore).serve(("chore",))
    assert chore.done == 0
    scene.advance(seconds=1)
    assert await due(scene) == ("chore",)
    await rotation(scene, chore).serve(("chore",))
    assert chore.done == 1
    assert not await store.keep_duty("chore", "his", lease_ms=LEASE_MS)
    assert not await store.leave_duty("chore", "his", after_ms=0, report="too late")
    assert (await store.duties())[0].report == "done 1 times"


async def test_a_shift_keeps_its_lease_and_ends_when_it_has_lost_it(scene: Scene) -> None:
    store, chore = kept(scene), Chore()
    await rotation(scene, chore).begin()
    assert await store.take_duty("chore", owner=ANNA, token="hers", lease_ms=LEASE_MS)
    shift = Shift(store, scene.clock, "chore", "hers")
    for _ in range(5):
        scene.advance(seconds=LEASE_S / 2)
        assert await shift.goes_on()
    assert not await store.take_duty("chore", owner=BORIS, token="his", lease_ms=LEASE_MS)
    scene.advance(seconds=LEASE_S)
    assert await store.take_duty("chore", owner=BORIS, token="his", lease_ms=LEASE_MS)
    assert not await shift.goes_on()
    assert not await shift.goes_on()


async def test_a_duty_that_fails_says_so_and_is_tried_again_soon(scene: Scene) -> None:
    chore = Chore()
    rota = rotation(scene, chore)
    await rota.begin()
    for error, says in ((StoreUnavailable(store="x", why="gone"), "gone"), (ValueError("a\0b"), "ValueError: a b")):
        chore.failing = error
        await rota.serve(("chore",))
        [row] = await kept(scene).duties()
        assert row.report.startswith("failed: ")
        assert says in row.report
        assert row.next_at == scene.now + RETRY_S * 1000
        scene.advance(seconds=RETRY_S)


async def test_a_duty_may_be_due_sooner_than_usual(scene: Scene) -> None:
    chore = Chore()
    chore.due_s = 0.5
    rota = rotation(scene, chore)
    await rota.begin()
    await rota.serve(("chore",))
    assert (await kept(scene).duties())[0].next_at == scene.now + 500


async def test_what_a_worker_does_not_know_it_leaves_to_others(scene: Scene) -> None:
    await kept(scene).enlist(["unheard of"])
    await rotation(scene, Chore()).serve(("unheard of",))
    assert (await kept(scene).duties())[0].owner is None


async def test_beside_its_runs_a_worker_does_each_duty_once_at_a_time(scene: Scene) -> None:
    chore = Chore()
    aside = Aside(rotation(scene, chore))
    aside.offer(())
    while not await due(scene):
        await asyncio.to_thread(lambda: None)
    chore.free.clear()
    while not chore.begun.is_set():
        aside.offer(("chore",))
        await asyncio.to_thread(lambda: None)
    doing = aside._tasks["chore"]
    aside.offer(("chore",))
    assert aside._tasks["chore"] is doing
    ending = asyncio.ensure_future(aside.end(60))
    chore.free.set()
    await ending
    assert (chore.done, chore.went_on) == (1, [False])


async def test_a_duty_that_takes_long_holds_up_no_other(scene: Scene) -> None:
    long, short = Chore(), Chore()
    long.name, short.name = "long", "short"
    long.free.clear()
    aside = Aside(Rotation(kept(scene), scene.clock, ANNA, [long, short]))
    aside.offer(())
    while await due(scene) != ("long", "short"):
        await asyncio.to_thread(lambda: None)
    aside.offer(("long",))
    await long.begun.wait()
    aside.offer(("long", "short"))
    while not short.done:
        await asyncio.to_thread(lambda: None)
    assert long.done == 0
    long.free.set()
    await aside.end(60)
    assert (long.done, long.went_on) == (1, [False])


async def test_a_stop_cuts_short_what_does_not_end(scene: Scene) -> None:
    chore = Chore()
    chore.free.clear()
    await kept(scene).enlist(["chore"])
    aside = Aside(rotation(scene, chore))
    aside.offer(("chore",))
    await chore.begun.wait()
    await aside.end(0)
    assert chore.done == 0
    assert (await kept(scene).duties())[0].owner == ANNA


async def test_a_store_that_does_not_answer_is_asked_again(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Rotation):
        times = 0

        async def begin(self) -> None:
            self.times += 1
            if self.times == 1:
                raise StoreUnavailable(store="x", why="gone")
            if self.times == 2:
                raise ValueError("a defect")
            await super().begin()

    aside = Aside(Failing(kept(scene), scene.clock, ANNA, [Chore()]))
    while not await due(scene):
        aside.offer(())
        await asyncio.to_thread(lambda: None)
    await aside.end(60)
    assert [record.message for record in caplog.records if "duty could not be done" in record.message] == [
        "a duty could not be done, it is tried again: x cannot be used: gone",
        "a duty could not be done, it is tried again",
    ]
