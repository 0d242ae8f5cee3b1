"""Retention on both stores: what is old enough goes with all that belongs to it, and nothing that is still needed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from outlive.app.audit import Progress, verify_all
from outlive.app.settings import Settings
from outlive.duty.retention import ENTRIES, Ages, OrphanBlobs, Retention, Tally
from outlive.errors import SettingInvalid, UnknownRun, WrongState
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.operation import OperationStatus
from outlive.model.run import Status
from outlive.store.keeping import Aged
from outlive.store.keeping import Ages as ByStatus
from outlive.store.port import Append, Divergence, Message
from outlive.testing.store_cases_fork import fork
from outlive.testing.store_scene import Scene, event, held, operation
from tests.duty.ground import LARGE, end, is_there, kept, left, shift_of, sql

MONTH = Ages((("succeeded", timedelta(days=30)), ("failed", timedelta(days=90))))
NOTHING = {"run": 0, "entry": 0, "operation": 0, "inbox": 0, "divergence": 0, "blob": 0}


async def retain(scene: Scene, ages: Ages = MONTH) -> str:
    done = await Retention(kept(scene), ages).work(shift_of(scene))
    return done.report


async def test_a_run_goes_with_all_that_belongs_to_it_when_it_is_old_enough(scene: Scene) -> None:
    hold = await scene.hold("old")
    await scene.post("old", key="k")
    [message] = await scene.store.unread(DEFAULT_TENANT, RunId("old"))
    report = Divergence("b9", "other calls")
    await scene.act(hold, Append(hold.authority, hold.head, (event(payload=LARGE),), divergence=report))
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), taken=(message.id,)))
    await scene.become(hold, "succeeded")
    await end(scene, "with operations", operations=("succeeded", "absent"))
    scene.advance(days=30, seconds=-1)
    assert await retain(scene) == "forgot 0 runs, 0 entries, 0 blobs"
    scene.advance(seconds=1)
    assert await retain(scene) == "forgot 2 runs, 9 entries, 1 blobs"
    assert left(scene) == NOTHING
    assert [one async for one in verify_all(kept(scene), DEFAULT_TENANT, Progress())] == []


async def test_each_status_has_its_own_age_and_one_that_is_not_named_is_kept(scene: Scene) -> None:
    ends: dict[str, Status] = {"done": "succeeded", "bad": "failed", "off": "cancelled"}
    for run, status in ends.items():
        await end(scene, run, status)
    scene.advance(days=40)
    await retain(scene)
    assert [await is_there(scene, run) for run in ("done", "bad", "off")] == [False, True, True]
    scene.advance(days=4000)
    await retain(scene)
    assert [await is_there(scene, run) for run in ("done", "bad", "off")] == [False, False, True]


@pytest.mark.parametrize("status", ["pending", "unknown"])
async def test_an_operation_in_doubt_is_kept_whatever_its_age(scene: Scene, status: OperationStatus) -> None:
    await end(scene, "doubtful", "failed", operations=("succeeded", status))
    scene.advance(days=4000)
    assert "; 1 kept for an operation in doubt" in await retain(scene)
    sql(scene, "update operation set status = 'absent'")
    assert (await retain(scene)).startswith("forgot 1 runs")


async def test_a_run_is_kept_for_what_is_unread_but_not_for_messages_to_its_code(scene: Scene) -> None:
    await end(scene, "told")
    await end(scene, "mailed")
    await scene.post("told")
    await scene.store.post(Message(DEFAULT_TENANT, RunId("mailed"), "mail:offers", "k", '"late"'))
    scene.advance(days=4000)
    assert await retain(scene) == "forgot 1 runs, 4 entries, 0 blobs; 1 kept for an unread message"
    sql(scene, "update inbox set taken_seq = 3")
    assert (await retain(scene)).startswith("forgot 1 runs")
    assert left(scene) == NOTHING


@pytest.mark.parametrize(
    "tie",
    [
        "root = 'old', parent = 'old'",
        "root = 'old', parent = 'between'",
        "rolls_back = 'old'",
    ],
)
async def test_what_a_run_that_goes_on_may_need_is_kept(scene: Scene, tie: str) -> None:
    await end(scene, "old")
    await scene.start("live")
    sql(scene, f"update run set {tie} where id = 'live'")
    scene.advance(days=4000)
    assert "; 1 kept for a run that goes on" in await retain(scene)
    sql(scene, "update run set status = 'succeeded', ended_at = ?, ready_at = null where id = 'live'", scene.now)
    assert (await retain(scene)).startswith("forgot 1 runs")


@pytest.mark.parametrize(
    "tie",
    ["root = 'live', parent = 'live'", "root = 'x', parent = 'live'", "root = 'live', parent = 'x'", "origin = 'live'"],
)
async def test_the_child_and_the_fork_of_a_run_that_goes_on_are_kept(scene: Scene, tie: str) -> None:
    await end(scene, "old")
    await scene.start("live")
    sql(scene, f"update run set {tie} where id = 'old'")
    scene.advance(days=4000)
    assert "; 1 kept for a run that goes on" in await retain(scene)


async def test_a_rollback_stays_as_long_as_the_run_that_it_has_undone(scene: Scene) -> None:
    """What says that an operation is compensated can be verified for as long as it is said."""
    await end(scene, "old", "failed")
    await end(scene, "back")
    sql(scene, "update run set rolls_back = 'old' where id = 'back'")
    scene.advance(days=31)
    assert "forgot 0 runs" in (said := await retain(scene)) and "1 kept for the run that it has rolled back" in said
    scene.advance(days=4000)
    await retain(scene)
    await retain(scene)
    assert left(scene) == NOTHING


async def ended_fork(scene: Scene, run: str, of: str, status: Status) -> None:
    await fork(scene, run, 1, of)
    [claimed] = await scene.claims()
    await scene.become(held(claimed), status)


async def test_a_run_is_kept_while_another_one_of_its_origin_can_be_forked(scene: Scene) -> None:
    """A fork of the fork would ask what the first one has done to the world."""
    await end(scene, "old")
    scene.advance(days=29)
    await ended_fork(scene, "fork", "old", "failed")
    scene.advance(days=89)
    assert await retain(scene) == "forgot 0 runs, 0 entries, 0 blobs; 1 kept for a run of its origin that is kept"
    await fork(scene, "fork of the fork", 1, "fork")
    scene.advance(days=1)
    assert "; 2 kept for a run that goes on" in await retain(scene)
    [claimed] = await scene.claims()
    await scene.become(held(claimed), "succeeded")
    scene.advance(days=29)
    assert "; 2 kept for a run of its origin that is kept" in await retain(scene)
    scene.advance(days=1)
    assert (await retain(scene)).startswith("forgot 3 runs")
    assert left(scene) == NOTHING


@pytest.mark.parametrize("because", ["its status is kept for ever", "it is in doubt", "it was imported"])
async def test_what_keeps_a_fork_keeps_the_runs_of_its_origin(scene: Scene, because: str) -> None:
    await end(scene, "old")
    await ended_fork(scene, "fork", "old", "cancelled" if "ever" in because else "failed")
    scene.advance(days=4000)
    if "doubt" in because:
        hold = await scene.hold("doubtful")
        await scene.act(hold, Append(hold.authority, hold.head, (event(),), operations=(operation(hold),)))
        sql(scene, "update operation set run_id = 'fork'")
    if "imported" in because:
        sql(scene, "update run set imported_at = ? where id = 'fork'", scene.now)
    assert (await retain(scene)).startswith("forgot 0 runs")


async def test_when_the_first_of_an_origin_goes_no_other_is_forked_any_more(scene: Scene) -> None:
    await end(scene, "old", entries=900)
    await ended_fork(scene, "fork", "old", "succeeded")
    scene.advance(days=31)
    old = Aged(DEFAULT_TENANT, RunId("old"))
    part = await kept(scene).forget("succeeded", [old], older_ms=86_400_000, most=500)
    assert (part.runs, part.entries) == (0, 500)
    with pytest.raises((WrongState, UnknownRun)):
        await fork(scene, "late", 1, "fork")
    with pytest.raises(UnknownRun):
        await scene.post("fork")
    assert (await retain(scene)).startswith("forgot 2 runs")
    assert left(scene) == NOTHING


async def test_siblings_are_kept_while_one_of_the_tree_goes_on(scene: Scene) -> None:
    for run in ("parent", "ended child"):
        await end(scene, run)
    await scene.start("live child")
    sql(scene, "update run set root = 'parent', parent = 'parent' where id in ('ended child', 'live child')")
    scene.advance(days=4000)
    assert "; 2 kept for a run that goes on" in await retain(scene)


async def test_other_runs_keep_nothing(scene: Scene) -> None:
    await end(scene, "old")
    await scene.start("live")
    scene.advance(days=31)
    assert await retain(scene) == "forgot 1 runs, 4 entries, 0 blobs"
    assert await is_there(scene, "live")


async def test_what_keeps_a_run_is_judged_again_in_the_commit_that_would_forget_it(scene: Scene) -> None:
    await end(scene, "old")
    scene.advance(days=31)
    day = 86_400_000
    [found] = await kept(scene).aged("succeeded", older_ms=30 * day, after=Aged(), limit=10)
    assert found.why == ""
    await scene.post("old")
    gone = await kept(scene).forget("succeeded", [found], older_ms=30 * day, most=100)
    assert (gone.runs, gone.entries, gone.left) == (0, 0, ())
    gone = await kept(scene).forget("failed", [found], older_ms=30 * day, most=100)
    gone = await kept(scene).forget("succeeded", [found], older_ms=40 * day, most=100)
    assert await is_there(scene, "old")
    assert len(await scene.log("old")) == 4


async def test_a_long_run_goes_in_small_commits_and_is_gone_for_everybody_meanwhile(scene: Scene) -> None:
    await end(scene, "long", entries=1500)
    await end(scene, "short")
    scene.advance(days=31)
    day = 86_400_000
    found = await kept(scene).aged("succeeded", after=Aged(), limit=10, older_ms=day)
    first = await kept(scene).forget("succeeded", found, most=1000, older_ms=day)
    assert (first.runs, first.entries) == (0, 1000)
    assert {one.run for one in first.left} == {"long", "short"}
    assert left(scene)["entry"] == 503 + 4
    with pytest.raises(UnknownRun):
        await scene.post("long")
    assert [row.id for row in await kept(scene).runs_of(DEFAULT_TENANT, after=RunId(""), limit=9)] == ["short"]
    misfits = [one.run async for one in verify_all(kept(scene), DEFAULT_TENANT, Progress())]
    assert "long" not in misfits
    # Begun, it goes on going, also when something turns up that would have kept it.
    sql(scene, "update run set imported_at = ? where id = 'long'", scene.now)
    [again] = [
        one for one in await kept(scene).aged("succeeded", after=Aged(), limit=9, older_ms=day) if one.run == "long"
    ]
    assert again.why == ""
    assert await retain(scene) == "forgot 2 runs, 507 entries, 0 blobs"
    assert left(scene) == NOTHING


async def test_no_commit_takes_more_entries_than_it_may(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        await end(scene, f"run {number}", entries=900)
    scene.advance(days=31)
    taken: list[int] = []
    store = kept(scene)
    forget = store.forget

    async def counted(status: Status, runs: list[Aged], *, older_ms: int, most: int, ages: ByStatus) -> object:
        gone = await forget(status, runs, older_ms=older_ms, most=most, ages=ages)
        taken.append(gone.entries)
        return gone

    monkeypatch.setattr(store, "forget", counted)
    assert await retain(scene) == "forgot 3 runs, 2709 entries, 0 blobs"
    assert max(taken) == ENTRIES
    assert len(taken) == 3


async def test_a_blob_goes_with_the_last_entry_that_names_it(scene: Scene) -> None:
    for number in range(3):
        await end(scene, f"run {number}", payload=LARGE)
        scene.advance(days=1)
    assert left(scene)["blob"] == 1
    scene.advance(days=28)
    assert await retain(scene) == "forgot 2 runs, 8 entries, 0 blobs"
    assert (await scene.log("run 2"))[2].payload == LARGE
    scene.advance(days=2)
    assert await retain(scene) == "forgot 1 runs, 4 entries, 1 blobs"


async def test_blobs_of_another_tenant_are_its_own(scene: Scene) -> None:
    await end(scene, "old", payload=LARGE)
    sql(scene, "insert into blob select 'other', address, payload, data_class, key_id, created_at from blob")
    scene.advance(days=31)
    assert await retain(scene) == "forgot 1 runs, 4 entries, 1 blobs"
    assert sql(scene, "select tenant from blob") == [("other",)]


async def test_what_an_interruption_has_left_is_found_by_the_duty_for_blobs(scene: Scene) -> None:
    await end(scene, "named", payload=LARGE)
    sql(scene, "insert into blob select 'other', address, payload, data_class, key_id, created_at from blob")
    done = await OrphanBlobs(kept(scene), kept(scene)).work(shift_of(scene, "blobs"))
    assert done.report == "dropped 1 blobs that no entry named"
    assert sql(scene, "select tenant from blob") == [("default",)]
    assert (await scene.log("named"))[2].payload == LARGE


async def test_an_imported_run_is_kept_for_as_long_again(scene: Scene) -> None:
    await end(scene, "old")
    scene.advance(days=100)
    sql(scene, "update run set imported_at = ? where id = 'old'", scene.now)
    assert "; 1 kept for imported not long ago" in await retain(scene)
    scene.advance(days=30)
    assert (await retain(scene)).startswith("forgot 1 runs")


async def test_stopped_halfway_it_is_due_again_at_once(scene: Scene) -> None:
    for number in range(30):
        await end(scene, f"run {number:02}")
    scene.advance(days=31)
    shift = shift_of(scene)
    shift.stopping = True
    done = await Retention(kept(scene), MONTH).work(shift)
    assert (done.report, done.due_s) == ("forgot 20 runs, 80 entries, 0 blobs; not done yet", 0.0)
    assert left(scene)["run"] == 10


async def test_an_id_can_be_used_again_when_its_run_is_forgotten(scene: Scene) -> None:
    await end(scene, "id")
    scene.advance(days=31)
    await retain(scene)
    await scene.start("id")
    [claimed] = await scene.claims()
    await scene.append(held(claimed), event())
    assert len(await scene.log("id")) == 3


def test_a_tally_says_what_was_kept() -> None:
    tally = Tally(runs=2, entries=9, blobs=1)
    tally.kept.update(["an unread message", "a run that goes on", "a run that goes on"])
    assert str(tally) == (
        "forgot 2 runs, 9 entries, 1 blobs; 2 kept for a run that goes on; 1 kept for an unread message"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("off", "off"),
        ("succeeded=7d", "succeeded=7d"),
        (" succeeded = 36h , failed=90m", "succeeded=36h,failed=90m"),
        ("expired=90s,cancelled=1.5d", "expired=90s,cancelled=36h"),
        ("keys=400d,succeeded=7d", "succeeded=7d,keys=400d"),
    ],
)
def test_the_setting_is_read_and_shown(text: str, shown: str) -> None:
    assert str(Settings.load({"OUTLIVE_RETENTION": text}).retention) == shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("running=7d", "'running=7d': say succeeded=30d,failed=90d"),
        ("succeeded=7d,succeeded=8d", "'succeeded=8d': say"),
        ("", "'': say"),
        ("succeeded=7", "a duration is a number with a unit"),
        ("succeeded=59s", "a run is kept for 1m at least"),
        ("keys=59s", "a key is kept for 1m at least"),
        ("keys=7d,keys=8d", "'keys=8d': say"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(SettingInvalid, match=says):
        Settings.load({"OUTLIVE_RETENTION": text})


def test_retention_is_on_unless_it_is_turned_off() -> None:
    assert str(Settings.load({}).retention) == "succeeded=30d,failed=90d,cancelled=90d,expired=90d"
    assert str(replace(Settings(), retention=Ages(())).retention) == "off"
