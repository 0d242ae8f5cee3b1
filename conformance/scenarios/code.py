"""The code changes under a run that has begun: killed between two calls, and gone on with by other code."""

from __future__ import annotations

from conformance.judge import Verdict, Wanted
from conformance.plans import Call, acts, charge, mail, pay, ship, sleep
from conformance.scenarios.stage import Stage, all_of, recovered, scenario
from conformance.scene import Scene
from conformance.waiting import pause

_WAIT = sleep(6)


def _deployed(stage: Stage, old: list[Call], new: list[Call]) -> Scene:
    """What the old code has before its sleep is recorded; the worker is killed in it, and the next one has new code."""
    scene = stage.open(old)
    scene.start()
    scene.worker()
    scene.service.wait_effects(len(acts(*old[: old.index(_WAIT)])))
    pause(2.0)
    scene.kill()
    scene.deploy(new)
    scene.worker("b", replaces="a", ready=True)
    return scene


@scenario("a call that was made has another name now, and does the same", "code")
def call_renamed(stage: Stage) -> Verdict:
    _deployed(stage, [charge(), _WAIT, ship()], [charge(name="charge_card"), _WAIT, ship()])
    return stage.judged(all_of(charge(), ship()))


@scenario("a call that was made is not in the code any more", "code")
def call_removed(stage: Stage) -> Verdict:
    _deployed(stage, [charge(), mail(), _WAIT, ship()], [charge(), _WAIT, ship()])
    return stage.judged(Wanted(acts(charge(), ship())))


@scenario("a call is new, before one that was made", "code")
def call_inserted(stage: Stage) -> Verdict:
    _deployed(stage, [charge(), _WAIT, ship()], [mail(), charge(), _WAIT, ship()])
    # Ended as the code was when it began is as good, if the result says so.
    return stage.judged(Wanted(acts(mail(), charge(), ship()), may_miss=("mail",)))


@scenario("two calls that were made have changed places", "code")
def calls_reordered(stage: Stage) -> Verdict:
    _deployed(stage, [charge(), mail(), _WAIT, ship()], [mail(), charge(), _WAIT, ship()])
    return stage.judged(all_of(mail(), charge(), ship()))


@scenario("a call that was made has other arguments now: 200 cents instead of 100", "code", fast=True)
def argument_changed(stage: Stage) -> Verdict:
    _deployed(stage, [charge(), _WAIT, ship()], [charge(args={"cents": 200}), _WAIT, ship()])
    return stage.judged(all_of(charge(args={"cents": 200}), ship()))


@scenario("a call that waits for an approval has another name now; then it is approved", "code", "approval")
def renamed_while_approval_is_pending(stage: Stage) -> Verdict:
    scene = stage.open([charge(), pay(), ship()])
    _approved_by_other_code(scene, [charge(), pay(name="pay_out"), ship()])
    return stage.judged(all_of(charge(), pay(), ship()))


@scenario(
    "a person was shown 7 cents and approves; the code, changed meanwhile, pays 700", "code", "approval", fast=True
)
def approved_one_thing_and_another_is_done(stage: Stage) -> Verdict:
    other = pay(args={"cents": 700, "iban": "DE01"})
    scene = stage.open([charge(), pay(), ship()])
    _approved_by_other_code(scene, [charge(), other, ship()])
    never = [("pay", {"cents": 700, "iban": "DE01"}, "700 cents were paid, and a person had agreed to 7")]
    return stage.judged(Wanted(acts(charge(), pay(), ship()), never=never))


def _approved_by_other_code(scene: Scene, new: list[Call]) -> None:
    scene.start()
    scene.worker()
    approval = scene.approval("r1")
    scene.kill()
    scene.deploy(new)
    scene.worker("b", replaces="a", ready=True)
    pause(2.0)
    scene.approve("r1", approval)


@scenario("a deploy that does not fit a run is rolled back", "code")
def bad_deploy_rolled_back(stage: Stage) -> Verdict:
    good, bad = [charge(), _WAIT, ship()], [mail(), charge(name="charge_card"), _WAIT, ship()]
    scene = _deployed(stage, good, bad)
    pause(10.0)
    seen = scene.seen("r1")
    scene.note(f"under the bad deploy r1 is {seen.status}: {seen.says}")
    scene.kill("b")
    scene.deploy(good)
    recovered(scene, "b", "c")
    return stage.judged(all_of(charge(), ship()))
