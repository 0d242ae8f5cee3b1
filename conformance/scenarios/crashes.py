"""A worker is killed at one line of a call, and another one is started in its place."""

from __future__ import annotations

from contextlib import suppress

from conformance.judge import Verdict, Wanted
from conformance.plans import acts, at_once, call, charge, fail, mail, ship
from conformance.scenarios.stage import Stage, all_of, recovered, scenario
from conformance.scene import RETRY_S, TooLate
from conformance.waiting import pause


@scenario("killed after a call has begun, before its request is sent")
def killed_before_send(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    scene.service.rule("about", "hold_before", "charge")
    scene.start()
    scene.worker()
    scene.service.wait_held("about")
    scene.kill()
    scene.service.release(go_on=False)
    recovered(scene)
    return stage.judged(all_of(charge(), ship()))


@scenario("killed after the service has acted, before its answer is recorded", fast=True)
def killed_after_act(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    _kill_after_act(stage)
    recovered(scene)
    return stage.judged(all_of(charge(), ship()))


@scenario("the same, and look-ups see an effect only seconds after it was made", "asked")
def killed_after_act_and_look_ups_lag(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    scene.service.look_up_lag_s = 2.5
    _kill_after_act(stage)
    recovered(scene)
    return stage.judged(all_of(charge(), ship()))


def _kill_after_act(stage: Stage) -> None:
    scene = stage.scene
    assert scene is not None
    scene.service.rule("act", "hold_after", "charge")
    scene.start()
    scene.worker()
    scene.service.wait_held("act")
    scene.kill()
    scene.service.release(go_on=False)


@scenario("killed when the next call has begun, so that the first one is recorded", fast=True)
def killed_after_record(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    scene.service.rule("about", "hold_before", "ship")
    scene.start()
    scene.worker()
    scene.service.wait_held("about", "ship")
    scene.kill()
    scene.service.release(go_on=False)
    recovered(scene)
    return stage.judged(all_of(charge(), ship()))


@scenario("three calls at once; killed when two are done and one has acted without being recorded", "parallel")
def killed_among_parallel_calls(stage: Stage) -> Verdict:
    calls = at_once(charge(), ship(), mail())
    scene = stage.open([calls])
    scene.service.rule("act", "hold_after", "ship")
    scene.start()
    scene.worker()
    scene.service.wait_held("act", "ship")
    # An engine that makes them one after the other has not begun the third.
    with suppress(TooLate):
        scene.service.wait_effects(1, "mail", 2)
    pause(0.5)
    scene.kill()
    scene.service.release(go_on=False)
    recovered(scene)
    return stage.judged(all_of(calls))


@scenario("refused twice; killed while it waits for the first retry")
def killed_in_retry_wait(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    scene.service.rule("act", "refuse", "charge", times=2)
    scene.start()
    scene.worker()
    scene.service.wait_requests(1, "act")
    pause(RETRY_S / 3)
    scene.kill()
    recovered(scene)
    return stage.judged(all_of(charge(), ship()), limit=stage.row.limit + 6 * RETRY_S)


@scenario("the service acts and its answer is lost; nobody dies", fast=True)
def answer_lost(stage: Stage) -> Verdict:
    scene = stage.open([charge(), ship()])
    scene.service.rule("act", "drop_after", "charge")
    scene.start()
    scene.worker()
    return stage.judged(all_of(charge(), ship()), limit=stage.row.limit + 6 * RETRY_S)


@scenario("a run fails and is undone; killed after the first undoing has acted, before that is recorded", "rollback")
def killed_in_rollback(stage: Stage) -> Verdict:
    scene = stage.open([charge(undo="refund"), ship(undo="recall"), fail("out of stock")])
    scene.service.rule("act", "hold_after", "recall")
    scene.start()
    scene.worker()
    scene.service.wait_held("act", "recall")
    scene.kill()
    scene.service.release(go_on=False)
    recovered(scene)
    undone = (call("recall", {"to": "Ada"}), call("refund", {"cents": 100}))
    return stage.judged(Wanted(acts(charge(), ship(), *undone), ends="failed", told=False, fails_as="out of stock"))
