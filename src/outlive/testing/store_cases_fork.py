"""Cases of the store suite: forks, and what the runs of one origin have recorded of a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.log.entry import BLOB_BYTES, Draft
from outlive.log.kinds import Forked, Turn, draft
from outlive.model.errors import UnknownRun, WrongState
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.model.operation import OperationRow
from outlive.model.run import Head, History, RunRow
from outlive.store.port import Append, Change
from outlive.testing.store_scene import Hold, Raises, Scene, event, new_run, operation, together

ENDED = Change("failed", detail="no")


def first(parent: str, at: int) -> Draft:
    """The entry after a history."""
    return draft(Forked(parent=parent, at=at, head="", who="ada"), at=7)


async def history(scene: Scene, at: int, parent: str = "r") -> History:
    """The history that ends with entry `at`, as the engine would find it."""
    entries = await scene.log(parent)
    turns = [entry.seq for entry in entries[: at + 1] if entry.kind == Turn.KIND]
    row = await scene.row(parent)
    return History(
        RunId(parent), row.origin, Head(at + 1, entries[at].digest), entries[at].epoch,
        turns[0] if turns else None, turns[-1] if turns else None,
    )  # fmt: skip


async def fork(scene: Scene, name: str, at: int, parent: str = "r") -> RunRow:
    """Fork a run."""
    made = await history(scene, at, parent)
    return await scene.store.fork(new_run(name), made, first(parent, at), now=scene.now)


async def ended(scene: Scene, run: str = "r") -> Hold:
    """A run that has ended, with a large payload in its log."""
    hold = await scene.hold(run)
    await scene.append(hold, event(payload=f'"{"x" * BLOB_BYTES}"'), event("second"))
    await scene.append(hold, event("last"), change=ENDED)
    return hold


async def a_fork_begins_with_the_log_of_its_parent(scene: Scene) -> None:
    await ended(scene)
    parent = await scene.log()
    scene.advance(seconds=1)
    row = await fork(scene, "f", 2)
    log = await scene.log("f")
    assert [(entry.kind, entry.payload, entry.digest) for entry in log[:3]] == [
        (entry.kind, entry.payload, entry.digest) for entry in parent[:3]
    ]
    assert [entry.kind for entry in log[3:]] == ["forked"]
    assert (row.status, row.epoch, row.origin, row.fork_of, row.fork_seq) == ("ready", 1, "r", "r", 2)
    assert (row.prologue_seq, row.created_at, row.forked) == (None, scene.now, False)
    before = await scene.row("r")
    assert (before.status, before.forked, before.head.seq) == ("failed", True, len(parent))
    assert await scene.store.operations(DEFAULT_TENANT, RunId("f")) == []
    [claimed] = await scene.claims()
    assert (claimed.row.id, claimed.row.epoch, claimed.why) == ("f", 2, "resume")
    assert [entry.seq for entry in await scene.store.window(DEFAULT_TENANT, RunId("f"))] == [0, 1, 2, 3, 4]


async def a_fork_of_a_later_turn_reads_its_prologue_and_that_turn(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.append(hold, event("prologue"))
    for number in range(3):
        turn = draft(Turn(name="turns", number=number), at=0)
        await scene.act(hold, Append(hold.authority, hold.head, (turn, event(f"in {number}")), turn=True))
    await scene.append(hold, event("last"), change=ENDED)
    row = await fork(scene, "f", 6)
    assert (row.prologue_seq, row.window_seq) == (3, 5)
    seqs = [entry.seq for entry in await scene.store.window(DEFAULT_TENANT, RunId("f"))]
    assert seqs == [0, 1, 2, 5, 6, 7]


async def only_a_run_that_has_ended_or_is_paused_is_forked(scene: Scene) -> None:
    hold = await scene.hold()
    await scene.append(hold, event())
    async with Raises(WrongState) as refused:
        await fork(scene, "f", 1)
    assert "run r is running" in str(refused.error)
    await scene.append(hold, event(), change=Change("waiting", reason="a timer", wake_at=scene.now + 1))
    async with Raises(WrongState):
        await fork(scene, "f", 1)
    assert not (await scene.row("r")).forked
    assert await scene.store.run(DEFAULT_TENANT, RunId("f")) is None
    assert await scene.store.entries(DEFAULT_TENANT, RunId("f")) == []
    made = replace(await history(scene, 1), parent=RunId("nobody"))
    async with Raises(UnknownRun):
        await scene.store.fork(new_run("f"), made, first("nobody", 1), now=scene.now)


async def a_second_fork_of_the_same_id_changes_nothing(scene: Scene) -> None:
    await ended(scene)
    other, made = await scene.other(), await history(scene, 2)
    await scene.log()
    rows = await together(
        scene.store.fork(new_run("f"), made, first("r", 2), now=scene.now),
        other.fork(new_run("f"), made, first("r", 2), now=scene.now),
    )
    assert [row.id for row in rows if isinstance(row, RunRow)] == ["f", "f"]
    assert len(await scene.log("f")) == 4
    again = await scene.store.fork(new_run("f"), await history(scene, 0), first("r", 0), now=scene.now)
    assert again.fork_seq == 2
    taken = await scene.store.fork(new_run("r"), made, first("r", 2), now=scene.now)
    assert (taken.id, taken.fork_of, taken.forked) == ("r", None, True)


async def all_runs_of_an_origin_are_asked_and_no_others(scene: Scene) -> None:
    hold = await scene.hold()
    mine = replace(operation(hold), seq=2)
    await scene.act(hold, Append(hold.authority, hold.head, (event(), event()), operations=(mine,)))
    await scene.append(hold, event("last"), change=ENDED)
    for name, parent in (("f", "r"), ("g", "f")):
        await fork(scene, name, 1, parent)
        [claimed] = await scene.claims()
        its = Hold(claimed.authority, claimed.row.head)
        row = replace(operation(its), seq=4, first_sent_at=9, key="another")
        await scene.act(its, Append(its.authority, its.head, (event(),), ENDED, operations=(row,)))
    stranger = await scene.hold("s")
    await scene.act(
        stranger, Append(stranger.authority, stranger.head, (event(),), ENDED, operations=(operation(stranger),))
    )

    async def found(digest: str = "d", key: str = "", tool: str = "charge", origin: str = "r") -> list[OperationRow]:
        return await scene.store.alike(DEFAULT_TENANT, RunId(origin), tool=tool, digest=digest, key=key)

    assert [(row.run, row.seq) for row in await found()] == [("r", 2), ("f", 4), ("g", 4)]
    assert [row.run for row in await found(digest="other", key="key1")] == ["r"]
    assert await found(digest="other") == []
    assert await found(tool="refund") == []
    assert [row.run for row in await found(origin="s")] == ["s"]
    assert await scene.store.alike(Tenant("t2"), RunId("r"), tool="charge", digest="d", key="") == []


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_fork_begins_with_the_log_of_its_parent,
    a_fork_of_a_later_turn_reads_its_prologue_and_that_turn,
    only_a_run_that_has_ended_or_is_paused_is_forked,
    a_second_fork_of_the_same_id_changes_nothing,
    all_runs_of_an_origin_are_asked_and_no_others,
)
