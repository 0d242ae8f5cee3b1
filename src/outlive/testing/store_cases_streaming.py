"""Cases of the store suite about text that is streamed: by the owner alone, read in order, gone when it is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.store.keeping import Aged, Kept
from outlive.store.port import Change
from outlive.store.streaming import Delta, Over, Streaming
from outlive.testing.store_scene import BORIS, Hold, Scene, event

_HOUR = 3_600_000


def streaming(scene: Scene) -> Streaming:
    """The store as what keeps text on its way."""
    assert isinstance(scene.store, Streaming), f"{type(scene.store).__name__} keeps no text on its way"
    return scene.store


def piece(text: str, *, call: str = "/write/0", after_seq: int = 2, place: int = 0) -> Delta:
    """A piece of the first attempt in the first epoch."""
    return Delta(call, 1, 1, "write", after_seq, place, text)


async def add(scene: Scene, hold: Hold, *deltas: Delta, over: tuple[Over, ...] = ()) -> None:
    """As the owner of the run."""
    await streaming(scene).add_deltas([(hold.authority, one) for one in deltas], over, now=scene.now)


async def texts(scene: Scene, run: str = "r", *, after: int = 0, tenant: Tenant = DEFAULT_TENANT) -> list[str]:
    """What there is of a run."""
    return [one.text for one in await streaming(scene).deltas(tenant, RunId(run), after=after, limit=100)]


async def pieces_are_read_in_the_order_in_which_they_were_added(scene: Scene) -> None:
    first, other = await scene.hold("r"), await scene.hold("other")
    mine = replace(piece("née \U0001f600\n", place=3), epoch=7, attempt=2)
    await add(scene, first, piece("a"), mine, piece("c"))
    await streaming(scene).add_deltas([(other.authority, piece("x")), (first.authority, piece("d"))], (), now=scene.now)
    found = await streaming(scene).deltas(DEFAULT_TENANT, first.run, after=0, limit=3)
    assert [one.text for one in found] == ["a", mine.text, "c"]
    assert replace(found[1], position=0) == mine
    assert await texts(scene, after=found[2].position) == ["d"]
    assert (await texts(scene, "other"), await texts(scene, tenant=Tenant("else"))) == (["x"], [])


async def only_the_owner_adds_pieces(scene: Scene) -> None:
    hold = await scene.hold()
    mine = hold.authority
    for other in (
        replace(mine, epoch=2), replace(mine, token="guessed"), replace(mine, run=RunId("none")),
        replace(mine, tenant=Tenant("else")),
    ):  # fmt: skip
        await add(scene, Hold(other, hold.head), piece("a"))
    assert await texts(scene) == []
    await add(scene, hold, piece("mine"))
    await scene.become(hold, "ready")
    await scene.claims(BORIS)
    await add(scene, hold, piece("too late"))
    assert await texts(scene) == ["mine"]


async def what_is_over_goes_and_nothing_else(scene: Scene) -> None:
    hold, other = await scene.hold("r"), await scene.hold("other")
    await add(scene, hold, piece("a"), piece("b", call="/read/0"), piece("c", after_seq=3), piece("d", call="/read/1"))
    await add(scene, other, piece("x"))
    await add(scene, hold, over=(Over(DEFAULT_TENANT, hold.run, "/write/0", 2),))
    assert await texts(scene) == ["b", "c", "d"]
    await add(scene, hold, piece("e", after_seq=4), over=(Over(DEFAULT_TENANT, hold.run, None, 3),))
    assert (await texts(scene), await texts(scene, "other")) == (["e"], ["x"])


async def a_position_is_never_used_again(scene: Scene) -> None:
    hold = await scene.hold()
    await add(scene, hold, piece("a"), piece("b"))
    last = (await streaming(scene).deltas(DEFAULT_TENANT, hold.run, after=0, limit=9))[-1].position
    await add(scene, hold, over=(Over(DEFAULT_TENANT, hold.run, None, 2),))
    await add(scene, hold, piece("c"))
    assert await texts(scene, after=last) == ["c"]


async def what_a_dead_worker_left_goes_by_its_age(scene: Scene) -> None:
    hold = await scene.hold()
    await add(scene, hold, piece("old"))
    scene.advance(hours=1)
    await add(scene, hold, piece("new"))
    assert await streaming(scene).drop_deltas(older_ms=_HOUR, now=scene.now) == 1
    assert await texts(scene) == ["new"]


async def what_a_run_has_streamed_is_forgotten_with_it(scene: Scene) -> None:
    hold, other = await scene.hold("r"), await scene.hold("other")
    await add(scene, hold, piece("a"))
    await add(scene, other, piece("x"))
    await scene.append(hold, event(), change=Change("succeeded"))
    scene.advance(hours=1)
    store = scene.store
    assert isinstance(store, Kept)
    aged = await store.aged("succeeded", older_ms=0, after=Aged(), limit=9, now=scene.now)
    gone = await store.forget("succeeded", aged, older_ms=0, most=100, now=scene.now)
    assert (gone.runs, await texts(scene), await texts(scene, "other")) == (1, [], ["x"])


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    pieces_are_read_in_the_order_in_which_they_were_added,
    only_the_owner_adds_pieces,
    what_is_over_goes_and_nothing_else,
    a_position_is_never_used_again,
    what_a_dead_worker_left_goes_by_its_age,
    what_a_run_has_streamed_is_forgotten_with_it,
)
