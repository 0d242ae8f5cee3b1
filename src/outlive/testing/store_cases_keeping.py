"""Cases of the store suite: duties, which one worker at a time does, and how ended runs are forgotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from outlive.log.entry import BLOB_BYTES
from outlive.model.errors import UnknownRun
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.model.operation import OperationStatus
from outlive.model.run import Status
from outlive.store.keeping import Aged, DutyRow, Forgotten, Kept
from outlive.store.port import Append, Change, Divergence
from outlive.testing.store_cases_fork import fork
from outlive.testing.store_scene import ANNA, BORIS, LEASE, Raises, Scene, event, held, operation, together

DAY = 86_400_000
MONTH = 30 * DAY
_LARGE = f'"{"x" * BLOB_BYTES}"'


def kept(scene: Scene) -> Kept:
    """The store as what can be kept in order."""
    assert isinstance(scene.store, Kept), f"{type(scene.store).__name__} lacks a part of the keeping port"
    return scene.store


# ---- duties


async def a_duty_that_is_known_stays_as_it_is(scene: Scene) -> None:
    await kept(scene).enlist(["b", "a"], now=scene.now)
    assert await kept(scene).duties() == [DutyRow("a", scene.now), DutyRow("b", scene.now)]
    assert await _take(scene, "a")
    before = await kept(scene).duties()
    scene.advance(seconds=1)
    await kept(scene).enlist(["a"], now=scene.now)
    assert await kept(scene).duties() == before


async def one_worker_at_a_time_has_a_duty(scene: Scene) -> None:
    await kept(scene).enlist(["sweep"], now=scene.now)
    other = cast(Kept, await scene.other())
    taken = await together(
        kept(scene).take_duty("sweep", owner=ANNA, token="a", lease_ms=LEASE, now=scene.now),
        other.take_duty("sweep", owner=BORIS, token="b", lease_ms=LEASE, now=scene.now),
    )
    assert sorted(map(str, taken)) == ["False", "True"]
    assert not await _take(scene, "unheard of")
    winner, loser = ("a", "b") if taken[0] is True else ("b", "a")
    assert not await kept(scene).keep_duty("sweep", loser, lease_ms=LEASE, now=scene.now)
    assert not await kept(scene).leave_duty("sweep", loser, after_ms=0, report="mine", now=scene.now)
    scene.advance(milliseconds=LEASE - 1)
    assert await kept(scene).keep_duty("sweep", winner, lease_ms=LEASE, now=scene.now)
    scene.advance(milliseconds=LEASE - 1)
    assert not await _take(scene, "sweep"), "its lease was extended"
    assert (await scene.look()).duties == ()
    scene.advance(milliseconds=1)
    assert (await scene.look()).duties == ("sweep",)
    assert await _take(scene, "sweep", token="c"), "its lease has expired"
    assert not await kept(scene).keep_duty("sweep", winner, lease_ms=LEASE, now=scene.now)


async def a_duty_is_due_again_when_it_was_said_to_be(scene: Scene) -> None:
    await kept(scene).enlist(["sweep"], now=scene.now)
    assert await _take(scene, "sweep")
    assert await kept(scene).leave_duty("sweep", "t", after_ms=5000, report="swept", now=scene.now)
    assert await kept(scene).duties() == [DutyRow("sweep", scene.now + 5000, done_at=scene.now, report="swept")]
    scene.advance(milliseconds=4999)
    assert ((await scene.look()).duties, await _take(scene, "sweep")) == ((), False)
    scene.advance(milliseconds=1)
    assert ((await scene.look()).duties, await _take(scene, "sweep")) == (("sweep",), True)


async def _take(scene: Scene, name: str, *, token: str = "t") -> bool:
    return await kept(scene).take_duty(name, owner=ANNA, token=token, lease_ms=LEASE, now=scene.now)


# ---- forgetting


async def ended(
    scene: Scene, run: str = "r", status: Status = "succeeded", *, operations: tuple[OperationStatus, ...] = (),
    entries: int = 1, payload: str | None = None,
) -> None:  # fmt: skip
    """A run that ends now; its log has so many entries beside three."""
    hold = await scene.hold(run)
    rows = tuple(replace(operation(hold, number), status=one) for number, one in enumerate(operations, start=1))
    await scene.append(hold, *(event(payload=payload) for _ in range(entries)))
    await scene.act(hold, Append(hold.authority, hold.head, (event("end"),), Change(status), operations=rows))


async def aged(scene: Scene, status: Status = "succeeded", *, older_ms: int = MONTH) -> dict[str, str]:
    """What ended so long ago, and why it is kept, the longest ago first."""
    found = await kept(scene).aged(status, older_ms=older_ms, after=Aged(), limit=100, now=scene.now)
    return {one.run: one.why for one in found}


async def forget(scene: Scene, *runs: str, status: Status = "succeeded", most: int = 1000) -> Forgotten:
    """Ask for it, whatever keeps them."""
    asked = [Aged(DEFAULT_TENANT, RunId(run)) for run in runs]
    return await kept(scene).forget(status, asked, older_ms=MONTH, most=most, now=scene.now)


async def what_ended_long_ago_is_found_by_status_and_age(scene: Scene) -> None:
    await ended(scene, "first")
    scene.advance(seconds=1)
    await ended(scene, "second")
    await ended(scene, "bad", "failed")
    await scene.start("live")
    scene.advance(milliseconds=MONTH - 1)
    assert await aged(scene) == {"first": ""}
    scene.advance(milliseconds=1)
    assert list((await aged(scene)).items()) == [("first", ""), ("second", "")]
    assert await aged(scene, "failed") == {"bad": ""}
    assert await aged(scene, "cancelled") == {}
    [page] = await kept(scene).aged("succeeded", older_ms=MONTH, after=Aged(), limit=1, now=scene.now)
    rest = await kept(scene).aged("succeeded", older_ms=MONTH, after=page, limit=10, now=scene.now)
    assert [one.run for one in rest] == ["second"]


async def a_run_is_forgotten_with_all_that_is_its_own(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.post(key="read")
    [message] = await scene.store.unread(DEFAULT_TENANT, RunId("r"))
    row = replace(operation(hold), status="succeeded")
    report = Divergence("b9", "other calls")
    first = Append(
        hold.authority, hold.head, (event(payload=_LARGE),), operations=(row,), taken=(message.id,), divergence=report
    )
    await scene.act(hold, first)
    await scene.become(hold, "succeeded")
    await ended(scene, "other", payload=_LARGE)
    scene.advance(milliseconds=MONTH)
    gone = await forget(scene, "r")
    assert (gone.runs, gone.entries, gone.left, len(gone.blobs)) == (1, 4, (), 1)
    run = RunId("r")
    assert await scene.store.run(DEFAULT_TENANT, run) is None
    assert await scene.store.entries(DEFAULT_TENANT, run) == []
    assert await scene.store.operations(DEFAULT_TENANT, run) == []
    assert await scene.store.divergences(DEFAULT_TENANT, run) == []
    assert await kept(scene).homeless(DEFAULT_TENANT, limit=10) == []
    async with Raises(UnknownRun):
        await scene.post()
    await scene.start()
    assert await scene.post(key="read"), "a new run of this id knows no message of the old one"
    assert await kept(scene).drop_blobs(gone.blobs) == 0, "another run names it"
    await forget(scene, "other")
    assert await kept(scene).drop_blobs([(Tenant("t2"), gone.blobs[0][1])]) == 0
    assert await kept(scene).drop_blobs(gone.blobs) == 1


async def what_keeps_a_run_is_judged_where_it_is_forgotten(scene: Scene) -> None:
    for run, rows in (("doubt", ("succeeded", "unknown")), ("pending", ("pending",)), ("done", ("absent", "held"))):
        await ended(scene, run, operations=cast("tuple[OperationStatus, ...]", rows))
    await scene.start("young")
    scene.advance(milliseconds=MONTH)
    assert await aged(scene) == {"doubt": "an operation in doubt", "pending": "an operation in doubt", "done": ""}
    assert (await forget(scene, "doubt", "pending", "young", "nobody")).runs == 0
    assert (await forget(scene, "done", status="failed")).runs == 0, "it has not failed"
    assert (await forget(scene, "done")).runs == 1
    for run in ("doubt", "pending", "young"):
        await scene.log(run)


async def all_runs_of_an_origin_are_kept_and_go_together(scene: Scene) -> None:
    """As long as one of them can be forked, its fork may have to ask what the others have done."""
    await ended(scene)
    scene.advance(milliseconds=MONTH)
    await fork(scene, "f", 1)
    assert await aged(scene) == {"r": "a run that goes on"}
    [claimed] = await scene.claims()
    await scene.become(held(claimed), "failed")
    assert await aged(scene) == {"r": "a run of its origin that is kept"}
    assert (await forget(scene, "r")).runs == 0
    scene.advance(milliseconds=MONTH)
    store, run = kept(scene), Aged(DEFAULT_TENANT, RunId("r"))
    longer: dict[Status, int] = {"succeeded": MONTH, "failed": MONTH + 1}
    without: dict[Status, int] = {"succeeded": MONTH}
    for some in (longer, without):
        gone = await store.forget("succeeded", [run], older_ms=MONTH, most=9, ages=some, now=scene.now)
        assert gone.runs == 0, "a status that is not named is kept for ever"
    assert (await store.forget("succeeded", [run], older_ms=MONTH, most=2, now=scene.now)).entries == 2
    async with Raises(UnknownRun):
        await fork(scene, "late", 1, "f")
    assert (await forget(scene, "r")).runs == 1
    assert (await forget(scene, "f", status="failed")).runs == 1


async def a_long_run_goes_in_parts_and_is_nobodys_meanwhile(scene: Scene) -> None:
    await ended(scene, entries=7)
    scene.advance(milliseconds=MONTH)
    part = await forget(scene, "r", most=4)
    assert (part.runs, part.entries, [one.run for one in part.left]) == (0, 4, ["r"])
    async with Raises(UnknownRun):
        await scene.post()
    assert [entry.seq for entry in await scene.store.entries(DEFAULT_TENANT, RunId("r"))] == [4, 5, 6, 7, 8, 9]
    assert await aged(scene) == {"r": ""}
    part = await forget(scene, "r", most=6)
    assert (part.runs, part.entries, part.left) == (1, 6, ())
    assert await scene.store.run(DEFAULT_TENANT, RunId("r")) is None


async def no_commit_takes_more_entries_than_it_may(scene: Scene) -> None:
    for run in ("a", "b", "c"):
        await ended(scene, run)
    scene.advance(milliseconds=MONTH)
    gone = await forget(scene, "a", "b", "c", most=6)
    assert (gone.runs, gone.entries, [one.run for one in gone.left]) == (1, 6, ["b", "c"])
    gone = await kept(scene).forget("succeeded", gone.left, older_ms=MONTH, most=6, now=scene.now)
    assert (gone.runs, gone.entries, gone.left) == (2, 6, ())


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_duty_that_is_known_stays_as_it_is,
    one_worker_at_a_time_has_a_duty,
    a_duty_is_due_again_when_it_was_said_to_be,
    what_ended_long_ago_is_found_by_status_and_age,
    a_run_is_forgotten_with_all_that_is_its_own,
    what_keeps_a_run_is_judged_where_it_is_forgotten,
    all_runs_of_an_origin_are_kept_and_go_together,
    a_long_run_goes_in_parts_and_is_nobodys_meanwhile,
    no_commit_takes_more_entries_than_it_may,
)
