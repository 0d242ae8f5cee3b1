"""What waits for a person."""

from __future__ import annotations

import threading

from conformance.judge import Verdict
from conformance.plans import charge, pay, ship
from conformance.scenarios.stage import Stage, all_of, recovered, scenario


@scenario("killed while it waits for an approval, which is given while nobody lives", "approval", fast=True)
def killed_in_approval_wait(stage: Stage) -> Verdict:
    scene = stage.open([charge(), pay(), ship()])
    scene.start()
    scene.worker()
    approval = scene.approval("r1")
    scene.kill()
    scene.approve("r1", approval)
    recovered(scene)
    return stage.judged(all_of(charge(), pay(), ship()))


@scenario("an approval is given twice at the same moment, with two workers", "approval")
def approved_twice(stage: Stage) -> Verdict:
    scene = stage.open([charge(), pay(), ship()])
    for name in ("a", "b"):
        scene.worker(name, ready=True)
    scene.start()
    approval = scene.approval("r1")
    both = [threading.Thread(target=scene.approve, args=("r1", approval)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    return stage.judged(all_of(charge(), pay(), ship()))
