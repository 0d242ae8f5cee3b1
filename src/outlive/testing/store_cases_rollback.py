"""Cases of the store suite: a run that rolls another one back, and what its commits say of that one's operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.model.errors import LeaseLost
from outlive.model.ids import DEFAULT_TENANT, OperationId, RunId
from outlive.model.operation import OperationRow, OperationStatus
from outlive.store.port import Append, Change
from outlive.testing.store_scene import BORIS, Hold, Raises, Scene, event, held, new_run, operation

BACK = "r-rollback"


async def ended(scene: Scene, run: str = "r", *, status: OperationStatus = "succeeded") -> OperationRow:
    """A run that has ended, with one operation."""
    hold = await scene.hold(run)
    row = replace(operation(hold), status=status)
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), Change("failed"), (row,)))
    return row


async def rolling_back(scene: Scene, run: str = "r", id: str = BACK) -> Hold:
    """A claimed rollback of that run."""
    await scene.store.start(replace(new_run(id), rolls_back=RunId(run)), now=scene.now)
    [claimed] = await scene.claims()
    return held(claimed)


def undoing(hold: Hold, target: OperationRow, status: OperationStatus = "succeeded", number: int = 1) -> OperationRow:
    """The record of what compensates it."""
    return replace(operation(hold, number), status=status, compensates=target.id)


async def say(scene: Scene, hold: Hold, *rows: OperationRow) -> None:
    """An append of the rollback with these records."""
    await scene.act(hold, Append(hold.authority, hold.head, (event(),), operations=rows))


async def found(scene: Scene, id: OperationId) -> OperationRow:
    """A record that is there."""
    row = await scene.store.operation(DEFAULT_TENANT, id)
    assert row is not None
    return row


async def a_rollback_says_what_it_rolls_back(scene: Scene) -> None:
    await ended(scene)
    assert (await scene.row()).rolls_back is None
    await rolling_back(scene)
    await scene.start("another")
    assert (await scene.row(BACK)).rolls_back == "r"
    assert [row.id for row in await scene.store.rollbacks(DEFAULT_TENANT, RunId("r"))] == [BACK]
    assert await scene.store.rollbacks(DEFAULT_TENANT, RunId(BACK)) == []


async def rollbacks_are_listed_in_order_of_their_start_also_when_they_have_ended(scene: Scene) -> None:
    await ended(scene)
    await scene.become(await rolling_back(scene, id="z"), "cancelled")
    scene.advance(seconds=1)
    await rolling_back(scene, id="a")
    assert [row.id for row in await scene.store.rollbacks(DEFAULT_TENANT, RunId("r"))] == ["z", "a"]


async def an_operation_is_compensated_with_the_record_that_says_so(scene: Scene) -> None:
    target = await ended(scene)
    hold = await rolling_back(scene)
    await say(scene, hold, undoing(hold, target, "pending"))
    assert await found(scene, target.id) == target
    scene.advance(seconds=5)
    await say(scene, hold, undoing(hold, target))
    by = OperationId(f"{BACK}/op1")
    assert await found(scene, target.id) == replace(
        target, status="compensated", compensated_by=by, updated_at=scene.now
    )  # fmt: skip
    assert (await found(scene, by)).compensates == target.id


async def what_is_refused_compensates_nothing(scene: Scene) -> None:
    target = await ended(scene)
    hold = await rolling_back(scene)
    lost = replace(hold.authority, token="another")
    async with Raises(LeaseLost):
        append = Append(lost, hold.head, (event(),), operations=(undoing(hold, target),))
        await scene.store.append(append, now=scene.now)
    assert await found(scene, target.id) == target


async def only_operations_of_the_run_that_is_rolled_back_are_compensated(scene: Scene) -> None:
    target, other = await ended(scene), await ended(scene, "other")
    hold = await rolling_back(scene)
    await say(scene, hold, undoing(hold, other))
    assert await found(scene, other.id) == other
    stranger = await scene.hold("stranger")
    await say(scene, stranger, undoing(stranger, target))
    assert await found(scene, target.id) == target


async def a_compensated_operation_stays_so_whatever_its_own_run_says_later(scene: Scene) -> None:
    target = await ended(scene)
    hold = await rolling_back(scene)
    await say(scene, hold, undoing(hold, target))
    claimed = await scene.store.seize(
        DEFAULT_TENANT, RunId("r"), owner=BORIS, lease_ms=30_000, unless_live=False, now=scene.now
    )
    assert claimed is not None
    # Evidence that came late was judged by a record that was read before the compensation.
    stale = replace(target, duplicates=1)
    own = held(claimed)
    await scene.act(own, Append(own.authority, own.head, (event(),), Change("failed"), (stale,)))
    row = await found(scene, target.id)
    assert (row.status, row.compensated_by, row.duplicates) == ("compensated", f"{BACK}/op1", 1)


async def the_first_that_has_compensated_it_is_named(scene: Scene) -> None:
    target = await ended(scene)
    hold = await rolling_back(scene)
    await say(scene, hold, undoing(hold, target))
    await say(scene, hold, undoing(hold, target, number=2))
    assert (await found(scene, target.id)).compensated_by == f"{BACK}/op1"


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_rollback_says_what_it_rolls_back,
    rollbacks_are_listed_in_order_of_their_start_also_when_they_have_ended,
    an_operation_is_compensated_with_the_record_that_says_so,
    what_is_refused_compensates_nothing,
    only_operations_of_the_run_that_is_rolled_back_are_compensated,
    a_compensated_operation_stays_so_whatever_its_own_run_says_later,
    the_first_that_has_compensated_it_is_named,
)
