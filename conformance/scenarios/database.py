"""The database goes away under a call that has just acted, and comes back."""

from __future__ import annotations

from conformance.judge import Verdict
from conformance.plans import charge, ship
from conformance.scenarios.stage import Stage, all_of, recovered, scenario
from conformance.scene import Scene
from conformance.waiting import pause


@scenario("the database is stopped under a call that has acted, and started again", "server")
def database_stopped(stage: Stage) -> Verdict:
    scene = _acted(stage)
    scene.server.stop()
    scene.note("database stopped")
    return _back(stage, scene)


@scenario("the database is killed (SIGKILL) under a call that has acted, and started again", "server")
def database_killed(stage: Stage) -> Verdict:
    scene = _acted(stage)
    scene.server.kill()
    scene.note("database killed")
    return _back(stage, scene)


@scenario("all connections to the database are cut under a call that has acted, three times in a row", "connection")
def connections_cut(stage: Stage) -> Verdict:
    scene = _acted(stage, cuttable=True)
    assert scene.way is not None
    for after in (0.0, 0.3, 1.0):
        pause(after)
        scene.note(f"{scene.way.cut()} ends of connections cut")
        scene.service.release()
    return _finished(stage, scene)


def _acted(stage: Stage, *, cuttable: bool = False) -> Scene:
    scene = stage.open([charge(), ship()], cuttable=cuttable)
    scene.service.rule("act", "hold_after", "charge")
    scene.start()
    scene.worker()
    scene.service.wait_held("act", "charge")
    return scene


def _back(stage: Stage, scene: Scene) -> Verdict:
    scene.service.release()
    pause(2.0)
    scene.server.start()
    scene.note("database started")
    return _finished(stage, scene)


def _finished(stage: Stage, scene: Scene) -> Verdict:
    """A worker that has ended by itself is started again, as a supervisor does."""
    pause(2.0)
    if not scene.alive("a"):
        scene.note("worker a has ended by itself")
        recovered(scene)
    return stage.judged(all_of(charge(), ship()), limit=stage.row.limit + 20)
