"""Real processes: a worker that is told to stop, one that is killed, one that is stuck; a run that is interrupted."""

import json
import re
import signal
import sqlite3

from outlive.cli import codes
from tests.cli.waiting import Place


def kinds(place: Place, run: str) -> list[str]:
    code, lines = place.done("log", run, "--json")
    assert code == codes.OK
    return [json.loads(line)["kind"] for line in lines]


def status(place: Place, run: str) -> str:
    _, lines = place.done("show", run, "--json")
    return str(json.loads("\n".join(lines))["run"]["status"])


def test_sigterm_drains_and_exits_with_0(place: Place) -> None:
    assert place.done("start", "wait", "x", "--id", "r1")[0] == codes.OK
    worker = place.outlive("worker")
    begun = worker.line("worker w-")
    assert re.fullmatch(rf"worker w-[0-9a-f]{{20}} pid {worker.pid} serves buy, fail, .*", begun.strip())
    worker.line("at the gate")
    worker.send(signal.SIGTERM)
    worker.line("draining: calls in flight have 30 s")
    place.open_gate()
    worker.line("has drained")
    assert worker.code() == codes.OK
    assert kinds(place, "r1")[-2:] == ["step", "released"]
    assert status(place, "r1") == "ready"
    code, printed = place.done("run", "wait", "--id", "r1", "-q")
    assert (code, sorted(printed)) == (codes.OK, ['"Xx"', "run r1"])


def test_a_worker_that_is_replaced_exits_by_itself(place: Place) -> None:
    """The old one, which was started so, leaves the waiting run to the new one, which was too and stays."""
    place.done("start", "wait", "x", "--id", "r1")
    place.env["OUTLIVE_BUILD"] = "one"
    old = place.outlive("worker", "--until-replaced", "--lease", "3s")
    old.line("at the gate")
    place.env["OUTLIVE_BUILD"] = "two"
    new = place.outlive("worker", "--until-replaced", "--lease", "3s")
    new.line("worker w-")
    place.open_gate()
    said = old.line("has drained")
    assert "no run needs it any more; others serve" in said
    assert "wait version 1, build two" in said
    assert old.code() == codes.OK
    code, lines = place.done("log", "r1", "-f")
    assert (code, lines[-1].split()[2:]) == (codes.OK, ["ended", "succeeded"])
    new.send(signal.SIGTERM)
    new.line("has drained")
    assert new.code() == codes.OK


def test_the_run_of_a_killed_worker_is_taken_over(place: Place) -> None:
    place.done("start", "wait", "x", "--id", "r1")
    first = place.outlive("worker", "tests.cli.agents_app:app", "--lease", "1s")
    first.line("at the gate")
    first.send(signal.SIGKILL)
    assert first.code() == -signal.SIGKILL
    second = place.outlive("worker", "--lease", "1s")
    second.line("run r1: taken over at epoch 2")
    second.line("at the gate")
    place.open_gate()
    code, lines = place.done("log", "r1", "-f")
    assert code == codes.OK
    assert lines[-1].split()[2:] == ["ended", "succeeded"]
    second.send(signal.SIGINT)
    assert second.code() == codes.OK


def test_a_thread_that_never_returns_does_not_keep_the_worker(place: Place) -> None:
    place.done("start", "hold", "--id", "r1")
    worker = place.outlive("worker", "--drain", "200ms")
    worker.line("holding")
    worker.send(signal.SIGTERM)
    worker.line("calls are still in flight after the drain")
    assert worker.code() == codes.OK
    assert status(place, "r1") == "running"


def test_a_second_signal_exits_at_once(place: Place) -> None:
    place.done("start", "hold", "--id", "r1")
    worker = place.outlive("worker")
    worker.line("holding")
    worker.send(signal.SIGTERM)
    worker.line("draining")
    worker.send(signal.SIGTERM)
    assert worker.code() == codes.TERMINATED


def test_a_worker_serves_the_queues_and_the_tenant_that_it_is_told(place: Place) -> None:
    place.done("start", "greet", "x", "--id", "other", "--queue", "other")
    place.done("start", "greet", "x", "--id", "here", "--queue", "slow")
    place.done("start", "greet", "x", "--id", "foreign", "--queue", "slow", "--tenant", "acme")
    worker = place.outlive("worker", "--queue", "default", "--queue", "slow", "--tenant", "default")
    worker.line("worker w-")
    assert place.done("log", "here", "-f")[1][-1].split()[2:] == ["ended", "succeeded"]
    worker.send(signal.SIGTERM)
    assert worker.code() == codes.OK
    database = sqlite3.connect(place.path / "outlive.db")
    found = dict(database.execute("select id, status from run"))
    database.close()
    assert found == {"other": "ready", "here": "succeeded", "foreign": "ready"}


def test_a_run_that_is_interrupted_is_kept(place: Place) -> None:
    run = place.outlive("run", "wait", "x", "--id", "r1")
    run.line("at the gate")
    run.send(signal.SIGINT)
    place.open_gate()
    run.line("run r1 is kept; any worker goes on with it, or: outlive run wait --id r1")
    assert run.code() == codes.INTERRUPTED
    assert place.done("run", "wait", "--id", "r1", "-q")[0] == codes.OK


def test_run_watches_a_run_that_another_worker_drives(place: Place) -> None:
    place.done("start", "wait", "x", "--id", "r1")
    worker = place.outlive("worker")
    worker.line("at the gate")
    run = place.outlive("run", "wait", "x", "--id", "r1")
    run.line("claimed")
    place.open_gate()
    assert run.code() == codes.OK
    assert '"Xx"' in run.seen
    worker.send(signal.SIGTERM)
    assert worker.code() == codes.OK


def test_an_operation_in_doubt_is_resolved_while_a_worker_serves(place: Place) -> None:
    code, lines = place.done("run", "buy", "5", "--id", "r1")
    assert code == codes.BLOCKED
    (command,) = [line.split() for line in lines if " happened " in line and "outlive resolve" in line]
    worker = place.outlive("worker")
    worker.line("worker w-")
    done = place.outlive(*command[1:5], "--outcome", '{"id": "c-1"}', "--why", "seen at the bank", "--who", "ada")
    done.line("happened; the run is ")
    assert done.code() == codes.OK
    last = place.done("log", "r1", "-f")[1]
    assert last[-1].split()[2:] == ["ended", "succeeded"]
    assert (place.path / "paid").read_text("utf-8") == "x"
    worker.send(signal.SIGTERM)
    assert worker.code() == codes.OK
