"""Deploys: which workers a run is left to, what a divergence does while builds come and go, and pins."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from outlive import Agent, Outlive, Run
from outlive.app.explain import builds_of, explain
from outlive.app.versions import Standing, standings
from outlive.cli.versions import needs
from outlive.engine.cancelling import Request
from outlive.engine.control import Control
from outlive.engine.definition import AgentSpec
from outlive.engine.worker import Worker, owner_name
from outlive.errors import Refused
from outlive.store.port import WorkerRow
from outlive.store.survey import Seen, Surveyed
from tests.engine.rig import Rig
from tests.engine.subject import RUN, add, begin, carry_on, does, double, subject


async def old(run: Run[None]) -> object:
    await run.step(add, 1)
    await run.sleep(timedelta(hours=1))
    return await run.step(double, 2)


async def bad(run: Run[None]) -> object:
    await run.step(add, 2)
    await run.sleep(timedelta(hours=1))
    return await run.step(double, 2)


def of_version(worker: Worker, version: str, *, pin: bool = False) -> Worker:
    """The same worker, whose agent has another version."""
    worker.agents = {"subject": AgentSpec("subject", version, subject.fn, pin=pin)}
    return worker


async def test_a_run_stays_ready_for_another_build_and_is_blocked_once_that_is_gone(rig: Rig) -> None:
    await rig.settle(await begin(rig, old, code="old"))
    rig.clock.advance(timedelta(hours=1))
    good = await carry_on(rig, old, code="old")
    await good._patiently_announce()
    worker = await carry_on(rig, bad, code="bad")
    await worker._patiently_announce()
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("ready", "diverged")
    await rig.settle(worker)
    assert (await rig.row(RUN)).status == "ready", "it may still be taken by the good one"

    rig.clock.advance(timedelta(seconds=61))
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert "the log has add(x=1" in row.detail
    assert (await rig.kinds(RUN))[-2:] == ["blocked", "blocked"]

    # It heals by itself all the same.
    await rig.settle(await carry_on(rig, old, code="old"))
    assert (await rig.row(RUN)).status == "succeeded"
    assert does.steps == ["add 1", "double 2"]


async def test_a_pause_does_not_hide_that_a_run_was_left_to_builds_that_are_gone(rig: Rig) -> None:
    await rig.settle(await begin(rig, old, code="old"))
    rig.clock.advance(timedelta(hours=1))
    await (await carry_on(rig, old, code="old"))._patiently_announce()
    worker = await carry_on(rig, bad, code="bad")
    await rig.settle(worker)
    assert (await rig.row(RUN)).reason == "diverged"
    who = Control(rig.store, rig.clock, owner_name(rig.clock))
    await who.pause(await rig.row(RUN), Request("pause", "ada", ""), key="k")
    await who.resume(await rig.row(RUN), who="ada", why="")
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("ready", "diverged")
    rig.clock.advance(timedelta(seconds=61))
    await rig.settle(worker)
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")


async def test_rolling_back_heals_although_two_bad_builds_have_tried(rig: Rig) -> None:
    await rig.settle(await begin(rig, old, code="old"))
    rig.clock.advance(timedelta(hours=1))
    for code in ("bad", "worse"):
        await rig.settle(await carry_on(rig, bad, code=code))
        assert (await rig.row(RUN)).status == "blocked"
    await rig.settle(await carry_on(rig, old, code="old"))
    assert (await rig.row(RUN)).status == "succeeded"


async def test_a_pinned_run_waits_for_a_worker_of_its_version(rig: Rig) -> None:
    app = rig.app(_only(pin=True, version="3"))
    does.body = old
    await app.start(app.registry.agent("subject"), "task", id=RUN)  # type: ignore[arg-type]  # any agent will do
    assert (await rig.row(RUN)).pin == "3"
    await rig.settle(of_version(await carry_on(rig, old, code="new"), "4"))
    assert (await rig.row(RUN)).status == "ready"
    third = of_version(await carry_on(rig, old, code="another build"), "3")
    await rig.settle(third)
    assert (await rig.row(RUN)).status == "waiting"
    rig.clock.advance(timedelta(hours=1))
    await rig.settle(of_version(await carry_on(rig, old, code="new"), "4"))
    assert (await rig.row(RUN)).status == "waiting"
    await rig.settle(third)
    assert (await rig.row(RUN)).status == "succeeded"


async def test_a_pinned_run_that_diverged_is_not_left_to_another_version(rig: Rig) -> None:
    app = rig.app(_only(pin=True, version="3"))
    does.body = old
    await app.start(app.registry.agent("subject"), "task", id=RUN)  # type: ignore[arg-type]  # any agent will do
    await rig.settle(of_version(await carry_on(rig, old, code="old"), "3"))
    rig.clock.advance(timedelta(hours=1))
    fourth = of_version(await carry_on(rig, old, code="new"), "4")
    await fourth._patiently_announce()
    await rig.settle(of_version(await carry_on(rig, bad, code="bad"), "3"))
    row = await rig.row(RUN)
    assert (row.status, row.reason) == ("blocked", "diverged")
    assert (await rig.kinds(RUN)).count("blocked") == 1, "it was never left to the other version"


async def test_what_nobody_serves_is_said_by_version(rig: Rig) -> None:
    app = rig.app(_only(pin=True, version="3"))
    await app.start(app.registry.agent("subject"), "task", id=RUN)  # type: ignore[arg-type]  # any agent will do
    row, serving = await rig.row(RUN), builds_of([])
    for version, fault in (("4", "unserved run"), ("3", None)):
        worker = of_version(await carry_on(rig, old), version)
        await worker._patiently_announce()
        serving = builds_of(await rig.store.workers(within_ms=60_000, now=rig.clock.now()))
        found = explain(Seen(row, False, frozenset()), serving, rig.clock.now())
        assert found.fault == fault
        assert fault is None or "no live worker serves subject version 3, to which it is pinned" in found.why
    assert explain(Seen(replace(row, pin="5"), False, frozenset()), serving, rig.clock.now()).fault is not None
    assert explain(Seen(replace(row, pin=None), False, frozenset()), serving, rig.clock.now()).fault is None


async def test_versions_count_runs_workers_and_what_nobody_serves(rig: Rig) -> None:
    app = rig.app(_only(pin=True, version="3"))
    for name in ("pinned-1", "pinned-2"):
        await app.start(app.registry.agent("subject"), "task", id=name)  # type: ignore[arg-type]  # any agent will do
    await rig.settle(await begin(rig, old, code="old"))
    rig.clock.advance(timedelta(hours=1))
    worker = of_version(await carry_on(rig, bad, code="bad"), "4")
    await worker._patiently_announce()
    await rig.settle(worker)
    first, third, fourth = await standings(cast(Surveyed, _Now(rig)))
    assert (first.version, dict(first.runs), first.unserved, dict(first.diverged)) == (
        "1",
        {"blocked": 1},
        1,
        {"bad": 1},
    )
    assert (third.version, dict(third.runs), third.pinned, third.unserved) == ("3", {"ready": 2}, 2, 2)
    assert (fourth.version, dict(fourth.runs), dict(fourth.workers)) == ("4", {}, {"bad": 1})
    healing = of_version(await carry_on(rig, old, code="third"), "3")
    await healing._patiently_announce()
    assert [one.unserved for one in await standings(cast(Surveyed, _Now(rig)))] == [0, 0, 0]
    assert await standings(cast(Surveyed, _Now(rig)), "nobody") == [
        Standing("subject", "3", workers=Counter({"third": 1}), beside=True),
        Standing("subject", "4", workers=Counter({"bad": 1}), beside=True),
    ]


async def test_versions_say_what_still_needs_an_old_worker(either: Rig) -> None:
    """One run is pinned, one cannot be gone on with by the new code, and one by any: the old has to stay for two."""
    rig = either
    does.body = old
    for run, pinned in (("pinned", True), ("free", False)):
        app = rig.app(_only(version="1", pin=pinned))
        await app.start(cast("Agent[str, str]", app.registry.agents["subject"]), "task", id=run)
    first = of_version(await begin(rig, old, code="first"), "1", pin=True)
    await first._patiently_announce()
    alone = await standings(cast(Surveyed, _Now(rig)))
    assert [(one.version, needs(one)) for one in alone] == [("1", "")], "there is nothing to compare it with"
    await rig.settle(first)
    rig.clock.advance(timedelta(hours=1))
    second = of_version(await carry_on(rig, bad, code="second"), "2")
    await first._patiently_announce()
    await second._patiently_announce()
    both = {one.version: one for one in await standings(cast(Surveyed, _Now(rig)))}
    assert needs(both["1"]) == "subject version 1: 1 run needs it (1 pinned)"

    await rig.settle(second)
    both = {one.version: one for one in await standings(cast(Surveyed, _Now(rig)))}
    assert needs(both["1"]) == "subject version 1: 3 runs need it (1 pinned, 2 diverged with second)"
    assert needs(both["2"]) == "subject version 2: no runs left; its workers can be stopped"
    assert (both["1"].stoppable, both["2"].stoppable) == (False, True)

    does.body = old
    await rig.settle(first)
    both = {one.version: one for one in await standings(cast(Surveyed, _Now(rig)))}
    assert needs(both["1"]) == "subject version 1: no runs left; its workers can be stopped"
    await first.store.leave(first.owner)
    assert [one.version for one in await standings(cast(Surveyed, _Now(rig)))] == ["2"]
    assert not (await standings(cast(Surveyed, _Now(rig)), "nobody"))[0].stoppable


async def test_a_pinned_run_without_a_worker_is_told_of(rig: Rig) -> None:
    app = rig.app(_only(version="1", pin=True))
    await app.start(cast("Agent[str, str]", app.registry.agents["subject"]), "task", id="pinned")
    await of_version(await carry_on(rig, bad, code="second"), "2")._patiently_announce()
    first, _ = await standings(cast(Surveyed, _Now(rig)))
    assert needs(first) == "subject version 1: 1 run needs it (1 pinned), and no live worker serves it"


class _Now:
    """The store of a rig as people read it, who have no clock of their own."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def __getattr__(self, name: str) -> object:
        return getattr(self._rig.store, name)

    async def workers(self, *, within_ms: int) -> list[WorkerRow]:
        return await self._rig.store.workers(within_ms=within_ms, now=self._rig.clock.now())


def _only(*, version: str, pin: bool) -> Outlive[None]:
    app: Outlive[None] = Outlive()
    app.agent(name="subject", version=version, pin=pin)(subject.fn)
    return app


@pytest.mark.parametrize("version", ["", " ", "1\n"])
def test_a_version_that_cannot_be_read_is_refused(version: str) -> None:
    with pytest.raises(Refused, match="a version is a printable text"):
        _only(version=version, pin=False)
