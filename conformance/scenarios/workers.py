"""More than one worker: frozen ones that wake, living ones beside dead ones, and nobody at all."""

from __future__ import annotations

import signal
from contextlib import suppress

from conformance.judge import Verdict
from conformance.plans import charge, ship
from conformance.scenarios.stage import Stage, all_of, scenario
from conformance.scene import LEASE_S
from conformance.service import Path
from conformance.waiting import TooLate, pause, until

# How long a diagnosis may take to see that nobody is left.
NOTICED_S = 90.0


@scenario("frozen (SIGSTOP) with a request under way, replaced, and awake again after the other one had its time")
def frozen_with_a_request_under_way(stage: Stage) -> Verdict:
    return _frozen(stage, "act")


@scenario("frozen just before a request is sent, replaced, and awake again")
def frozen_before_send(stage: Stage) -> Verdict:
    return _frozen(stage, "about")


def _frozen(stage: Stage, where: Path) -> Verdict:
    scene = stage.open([charge(), ship()])
    scene.service.rule(where, "hold_before", "charge")
    scene.start()
    scene.worker()
    scene.service.wait_held(where, "charge")
    scene.signal("a", signal.SIGSTOP)
    # The other one has its time only from when it serves.
    scene.worker("b", replaces="a", ready=True)
    pause(3 * LEASE_S)
    scene.service.release()
    pause(0.5)
    scene.signal("a", signal.SIGCONT)
    return stage.judged(all_of(charge(), ship()))


@scenario("two workers and ten runs")
def two_workers_at_once(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    for name in ("a", "b"):
        scene.worker(name, ready=True)
    runs = [scene.start(f"r{number}") for number in range(1, 11)]
    return stage.judged(all_of(charge(), ship()), *runs)


@scenario("a call takes longer than a dead worker is waited for, and another worker is there", fast=True)
def call_longer_than_the_lease(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    scene.service.rule("act", "late", "charge", seconds=2.5 * LEASE_S)
    for name in ("a", "b"):
        scene.worker(name, ready=True)
    scene.start()
    return stage.judged(all_of(charge(), ship()), limit=stage.row.limit + 3 * LEASE_S)


@scenario("killed between two calls, not replaced, and another worker is there", "workers")
def survivor_takes_over(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    for name in ("a", "b"):
        scene.worker(name, ready=True)
    scene.service.rule("about", "hold_before", "ship")
    scene.start()
    held = scene.service.wait_held("about", "ship")
    scene.kill(held.worker)
    scene.service.release(go_on=False)
    return stage.judged(all_of(charge(), ship()))


@scenario("killed, and nobody is left: does anything say that the run stands still?", "workers", fast=True)
def nobody_is_left(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    scene.service.rule("about", "hold_before", "ship")
    scene.start()
    scene.worker()
    scene.service.wait_held("about", "ship")
    scene.kill()
    scene.service.release(go_on=False)
    with suppress(TooLate):
        until(lambda: bool(scene.trouble()), "the engine says that something stands still", NOTICED_S, every=3.0)
    return stage.judged(all_of(charge(), ship()), limit=1)
