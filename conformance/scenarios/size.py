"""A run that becomes long: what its store takes, and what a turn costs then."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from conformance.adapter import NotOffered, Refused
from conformance.judge import Verdict, Wanted
from conformance.plans import CHARGE, call
from conformance.scenarios.stage import Stage, scenario
from conformance.scene import Scene, TooLate
from conformance.waiting import now

_LIMIT_S = 420.0


@scenario("one run of 2,000 turns with a call in each: how its store grows, and what a turn takes")
def two_thousand_turns(stage: Stage) -> Verdict:
    turns = stage.turns
    scene = stage.open([{"turns": turns, **call("turn", CHARGE)}])
    scene.start()
    began = now()
    scene.worker()
    marks: list[tuple[int, int, float]] = [(0, _size(stage), 0.0)]
    for count in (turns // 4, turns // 2, turns * 3 // 4, turns):
        if _reached(scene, count, began + _LIMIT_S):
            marks.append((count, _size(stage), now() - began))
    if marks[-1][0] < turns and scene.seen("r1").status != "failed":
        done = len(scene.service.effects)
        return Verdict("no verdict", f"{done} turns in {_LIMIT_S:.0f} s, and the time was over: try --turns")
    verdict = stage.judged(Wanted([("turn", CHARGE)] * turns, told=False), limit=30)
    notes = [
        f"turns {one[0]} to {other[0]}: {(other[1] - one[1]) / (other[0] - one[0]) / 1024:.1f} KiB and "
        f"{1000 * (other[2] - one[2]) / (other[0] - one[0]):.1f} ms each"
        for one, other in zip(marks, marks[1:], strict=False)
    ]
    return replace(verdict, notes=notes)


def _reached(scene: Scene, count: int, end: float) -> bool:
    """Whether so many turns were made before the time was over or the run had failed."""
    while now() < end and scene.seen("r1").status != "failed":
        with suppress(TooLate):
            scene.service.wait_effects(count, limit=min(10.0, max(1.0, end - now())))
            return True
    return False


def _size(stage: Stage) -> int:
    assert stage.scene is not None
    try:
        return int(str(stage.scene.ask("size")["bytes"]))
    except (Refused, NotOffered):
        return 0
