"""Business keys outlive their runs, for ever or for a time of their own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from outlive.duty.retention import KEYS, Ages, Retention
from outlive.model.business import KeyFilter
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.port import Append, Change
from outlive.testing.store_cases_keys import K, key, mark, take
from outlive.testing.store_scene import Scene, event, operation
from tests.duty.ground import kept, shift_of

DAY = timedelta(days=1)


async def succeeds(scene: Scene) -> None:
    """A run that ends well, with a key."""
    hold = await scene.hold("a")
    await take(scene, hold)
    done = replace(operation(hold), status="succeeded", business_key=K)
    said = (mark(hold, status="succeeded", outcome="1"),)
    await scene.act(
        hold, Append(hold.authority, hold.head, (event(),), Change("succeeded"), (done,), marks=said)
    )  # fmt: skip


async def test_a_key_outlives_its_run_with_its_outcome(scene: Scene) -> None:
    await succeeds(scene)
    scene.advance(hours=24 * 400)
    done = await Retention(kept(scene), Ages((("succeeded", DAY),))).work(shift_of(scene))
    assert done.report.startswith("forgot 1 runs") and "keys" not in done.report
    assert await scene.store.operations(DEFAULT_TENANT, (await key(scene)).mark.run) == []
    assert ((await key(scene)).mark.status, (await key(scene)).mark.outcome) == ("succeeded", "1")


async def test_keys_go_after_an_age_of_their_own(scene: Scene) -> None:
    await succeeds(scene)
    hold = await scene.hold("b")
    for number in range(KEYS):
        said = (mark(hold, number, "free", key=f"k{number}"),)
        await scene.act(hold, Append(hold.authority, hold.head, (event(),), marks=said))
    scene.advance(hours=25)
    done = await Retention(kept(scene), Ages((), keys=DAY)).work(shift_of(scene))
    assert done.report == f"forgot 0 runs, 0 entries, 0 blobs, {KEYS + 1} business keys" and not done.idle
    assert await scene.store.business_keys(DEFAULT_TENANT, KeyFilter()) == []
    again = await Retention(kept(scene), Ages((), keys=DAY)).work(shift_of(scene))
    assert again.idle
