"""Cases of the store suite: which versions and builds a run is left to, and how workers are known to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from outlive.log.kinds import Started, read
from outlive.model.ids import DEFAULT_TENANT, Owner, RunId
from outlive.store.port import Append, Attention, Change, Claim, Divergence, Message, Stalled, WorkerRow
from outlive.testing.store_scene import ANNA, BORIS, LEASE, Hold, Scene, event, held, new_run, wish


def _serving(version: str, owner: Owner = ANNA, *, code: str = "b1") -> Claim:
    return replace(wish(owner, code=code), versions={"clerk": version})


async def _pinned(scene: Scene, run: str = "r", version: str = "1") -> None:
    await scene.store.start(replace(new_run(run), version=version, pin=True), now=scene.now)


async def a_pinned_run_says_so_in_its_row_and_its_log(scene: Scene) -> None:
    await _pinned(scene)
    await scene.start("free")
    assert ((await scene.row()).pin, (await scene.row("free")).pin) == ("1", None)
    for run, pin in {"r": True, "free": False}.items():
        fact = read((await scene.log(run))[0])
        assert isinstance(fact, Started)
        assert fact.pin is pin


async def a_pinned_run_is_claimed_by_its_version_alone_however_it_is_claimable(scene: Scene) -> None:
    await _pinned(scene)
    others = (_serving("2"), _serving(""), wish(), replace(wish(), versions={"pilot": "1"}))

    async def only_for_its_version(*, watched: int = 0) -> Hold:
        seen = frozenset([(DEFAULT_TENANT, RunId("r"), watched)]) if watched else frozenset()
        for other in others:
            assert await scene.claims(claim=replace(other, watched=seen)) == []
            assert watched or not (await scene.look(claim=other)).claimable
        assert watched or (await scene.look(claim=_serving("1"))).claimable
        [claimed] = await scene.claims(claim=replace(_serving("1"), watched=seen))
        return held(claimed)

    hold = await only_for_its_version()
    await scene.become(hold, "waiting", wake_at=scene.now)
    hold = await only_for_its_version()
    await scene.become(hold, "waiting")
    await scene.post()
    hold = await only_for_its_version()
    [message] = await scene.store.unread(DEFAULT_TENANT, hold.run)
    diverged = Append(
        hold.authority, hold.head, (event(),), Change("blocked", "diverged"), taken=(message.id,),
        divergence=Divergence("b0", "report"),
    )  # fmt: skip
    await scene.act(hold, diverged)
    hold = await only_for_its_version()
    scene.advance(milliseconds=LEASE)
    await only_for_its_version(watched=hold.authority.epoch)


async def an_unpinned_run_is_claimed_by_any_version(scene: Scene) -> None:
    for number, claim in enumerate((_serving("2"), wish(), _serving("1"))):
        await scene.start(f"r{number}")
        assert len(await scene.claims(claim=claim)) == 1


async def what_workers_serve_is_known_by_version(scene: Scene) -> None:
    anna = WorkerRow(
        ANNA, 11, {"clerk": "b1", "pilot": "b1"}, scene.now, scene.now, {"clerk": "2", "pilot": "7"}, skew_ms=0
    )
    await scene.store.announce(anna, now=scene.now)
    [found] = await scene.store.workers(within_ms=1, now=scene.now)
    assert found == anna
    await _pinned(scene, version="2")
    await _pinned(scene, "older", version="1")
    await scene.start("free")
    assert [found.fits(await scene.row(run)) for run in ("r", "older", "free")] == [True, False, True]
    await scene.store.announce(replace(anna, versions={"clerk": "3"}), now=scene.now)
    [found] = await scene.store.workers(within_ms=1, now=scene.now)
    assert found.versions == {"clerk": "3"}


async def _left_to_others(scene: Scene, *, pin: bool = False) -> None:
    """Start a run, and let build b1 leave it ready for others."""
    await scene.store.start(replace(new_run(), pin=pin), now=scene.now)
    [claimed] = await scene.claims(claim=_serving("1"))
    hold = held(claimed)
    report = Divergence("b1", "report")
    await scene.act(
        hold, Append(hold.authority, hold.head, (event(),), Change("ready", "diverged", "report"), divergence=report)
    )


async def _stranded(scene: Scene) -> list[str]:
    return [one.run for one in (await scene.look()).attention if one.why == "stranded"]


async def a_run_left_to_builds_that_are_gone_asks_for_attention(scene: Scene) -> None:
    await _left_to_others(scene)
    asked = Attention(DEFAULT_TENANT, RunId("r"), "stranded")
    assert (await scene.look()).attention == (asked,)
    boris = WorkerRow(BORIS, 12, {"clerk": "b2"}, scene.now, scene.now, {"clerk": "1"})
    await scene.store.announce(boris, now=scene.now)
    assert await _stranded(scene) == []
    scene.advance(milliseconds=2 * LEASE)
    assert await _stranded(scene) == []
    scene.advance(milliseconds=1)
    assert await _stranded(scene) == ["r"], "it has given no sign of life for two leases"
    await scene.store.announce(replace(boris, serves={"pilot": "b2"}), now=scene.now)
    assert await _stranded(scene) == ["r"], "it serves another agent"
    await scene.store.announce(replace(boris, serves={"clerk": "b1"}), now=scene.now)
    assert await _stranded(scene) == ["r"], "it serves the build that has diverged"
    await scene.store.announce(boris, now=scene.now)
    assert await _stranded(scene) == []
    await scene.store.leave(BORIS)
    assert await _stranded(scene) == ["r"]


async def a_pinned_run_is_not_left_to_other_versions(scene: Scene) -> None:
    await _left_to_others(scene, pin=True)
    boris = WorkerRow(BORIS, 12, {"clerk": "b2"}, scene.now, scene.now, {"clerk": "2"})
    await scene.store.announce(boris, now=scene.now)
    assert await _stranded(scene) == ["r"]
    await scene.store.announce(replace(boris, versions={"clerk": "1"}), now=scene.now)
    assert await _stranded(scene) == []


async def a_ready_run_that_has_not_diverged_is_not_stranded(scene: Scene) -> None:
    hold = await scene.hold("drained")
    await scene.become(hold, "ready")
    [claimed] = await scene.claims()
    await scene.become(held(claimed), "blocked", reason="diverged")
    await scene.start("new")
    assert await _stranded(scene) == []


async def _unserved(scene: Scene) -> list[str]:
    return sorted(one.run for one in (await scene.look(BORIS)).attention if one.why == "unserved")


async def what_is_to_end_asks_for_attention_when_nobody_serves_it(scene: Scene) -> None:
    """Ready or waiting, asked through the inbox or being cancelled already; nothing else, and nobody who is there."""
    for run in ("asked", "mailed"):
        await scene.start(run)
    await scene.start("held", agent="pilot")
    [_] = await scene.claims(claim=replace(wish(), serves={"pilot": "b1"}))
    for run in ("asked", "held"):
        await scene.store.post(Message(DEFAULT_TENANT, RunId(run), "control", "k", "{}"), now=scene.now)
    await scene.post("mailed")
    for run in ("cleaning", "later"):
        await scene.start(run, agent="cleaner")
    claimed = await scene.claims(claim=replace(wish(), serves={"cleaner": "b1"}))
    holds = {one.row.id: held(one) for one in claimed}
    await scene.become(holds[RunId("cleaning")], "ready", reason="cancelling")
    await scene.become(holds[RunId("later")], "waiting", reason="cancelling", wake_at=scene.now + 10**6)
    assert await _unserved(scene) == ["asked", "cleaning", "later"]
    anna = WorkerRow(ANNA, 11, {"clerk": "b1", "cleaner": "b1"}, scene.now, scene.now)
    await scene.store.announce(anna, now=scene.now)
    assert await _unserved(scene) == []
    await scene.store.announce(replace(anna, serves={"clerk": "b1"}), now=scene.now)
    assert await _unserved(scene) == ["cleaning", "later"]
    await scene.store.leave(ANNA)
    assert await _unserved(scene) == ["asked", "cleaning", "later"]
    taken = await scene.store.seize(DEFAULT_TENANT, RunId("later"), owner=BORIS, lease_ms=LEASE, now=scene.now)
    assert taken is not None
    await scene.append(held(taken), event(), change=Change("waiting", reason="cancelling", paused=True))
    assert await _unserved(scene) == ["asked", "cleaning"], "one that is paused is looked after otherwise"


async def a_stalled_worker_is_known_until_it_turns_again(scene: Scene) -> None:
    hold = await scene.hold()
    anna = WorkerRow(ANNA, 11, {"clerk": "b1"}, scene.now, scene.now, skew_ms=0)
    await scene.store.announce(anna, now=scene.now)
    scene.advance(seconds=40)
    renewed = scene.store.renew(ANNA, [hold.authority], LEASE, stalled=Stalled(30_000, "r"), now=scene.now)
    assert renewed.kept == {hold.authority}
    told = replace(anna, seen_at=scene.now, stalled_at=scene.now - 30_000, stalled_by="r")
    assert await scene.store.workers(within_ms=1, now=scene.now) == [told]
    scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now)
    assert await scene.store.workers(within_ms=1, now=scene.now) == [replace(anna, seen_at=scene.now)]
    scene.store.renew(ANNA, [], LEASE, stalled=Stalled(1000), now=scene.now)
    await scene.store.look(wish(ANNA), sign=True, now=scene.now)
    assert await scene.store.workers(within_ms=1, now=scene.now) == [replace(anna, seen_at=scene.now)]


async def how_far_the_clock_of_a_worker_is_off_is_known(scene: Scene) -> None:
    hold = await scene.hold()

    async def known() -> int | None:
        [found] = await scene.store.workers(within_ms=1, now=scene.now)
        return found.skew_ms

    def renew() -> None:
        assert scene.store.renew(ANNA, [hold.authority], LEASE, now=scene.now).kept

    scene.clock.wall_ahead = timedelta(seconds=12)
    await scene.store.announce(WorkerRow(ANNA, 11, {"clerk": "b1"}, scene.now, scene.now), now=scene.now)
    assert await known() == -12_000
    scene.clock.wall_ahead = -timedelta(hours=5)
    renew()
    assert await known() == -12_000, "a sign of life says what the last answer has shown"
    renew()
    assert await known() == 5 * 3_600_000
    scene.clock.wall_ahead = timedelta()
    await scene.look()
    assert await known() == 5 * 3_600_000, "a look without a sign changes nothing"
    await scene.look(sign=True)
    assert await known() == 0
    scene.clock.wall_ahead = timedelta(seconds=3)
    await scene.look(sign=True)
    await scene.look(sign=True)
    assert await known() == -3000
    scene.clock.wall_ahead = timedelta()
    await scene.store.announce(WorkerRow(ANNA, 11, {"clerk": "b1"}, scene.now, scene.now), now=scene.now)
    assert await known() == 0


async def a_lapse_counts_against_the_run_that_stalled_its_worker_alone(scene: Scene) -> None:
    await scene.store.announce(WorkerRow(ANNA, 11, {"clerk": "b1"}, scene.now, scene.now), now=scene.now)
    holds = [await scene.hold(run) for run in ("culprit", "bystander")]
    for by, lapses in (("culprit", {"culprit": 1, "bystander": 0}), ("", {"culprit": 2, "bystander": 1})):
        scene.store.renew(ANNA, [one.authority for one in holds], LEASE, stalled=Stalled(1000, by), now=scene.now)
        scene.advance(milliseconds=LEASE)
        watched = frozenset((DEFAULT_TENANT, one.run, one.authority.epoch) for one in holds)
        claimed = await scene.claims(claim=replace(wish(), watched=watched))
        assert {one.row.id: one.row.lapses for one in claimed} == lapses
        assert {run: (await scene.row(run)).lapses for run in lapses} == lapses
        holds = [held(one) for one in claimed]


CASES: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    a_pinned_run_says_so_in_its_row_and_its_log,
    a_pinned_run_is_claimed_by_its_version_alone_however_it_is_claimable,
    an_unpinned_run_is_claimed_by_any_version,
    what_workers_serve_is_known_by_version,
    a_run_left_to_builds_that_are_gone_asks_for_attention,
    a_pinned_run_is_not_left_to_other_versions,
    a_ready_run_that_has_not_diverged_is_not_stranded,
    what_is_to_end_asks_for_attention_when_nobody_serves_it,
    a_stalled_worker_is_known_until_it_turns_again,
    how_far_the_clock_of_a_worker_is_off_is_known,
    a_lapse_counts_against_the_run_that_stalled_its_worker_alone,
)
