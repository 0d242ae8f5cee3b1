"""`cancel`, `terminate`, `pause` and `resume`: what they do where no worker lives, and what they say."""

from __future__ import annotations

import json

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli


@pytest.fixture
def ready(cli: Cli) -> None:
    assert cli("start", "greet", "world", "--id", "r1").exit_code == codes.OK


@pytest.fixture
def blocked(cli: Cli) -> None:
    assert cli("run", "buy", "5", "--id", "r1").exit_code == codes.BLOCKED


def run_of(cli: Cli) -> dict[str, object]:
    shown = json.loads(cli("show", "r1", "--json").stdout)
    run: dict[str, object] = shown["run"]
    return run


def entries(cli: Cli, kind: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in cli("log", "r1", "--json").stdout.splitlines()]
    return [entry["data"] for entry in found if entry["kind"] == kind]


@pytest.mark.usefixtures("ready")
def test_cancel_ends_a_run_that_nobody_serves(cli: Cli) -> None:
    done = cli("cancel", "r1", "--why", "wrong one", "--who", "ada")
    assert (done.exit_code, done.stdout, done.stderr) == (codes.OK, "", "run r1 is cancelled\n")
    found = run_of(cli)
    assert (found["status"], found["reason"], found["detail"]) == ("cancelled", "cancel", "ada: wrong one")
    assert entries(cli, "cancelling")[0]["why"] == "wrong one"
    again = cli("run", "greet", "--id", "r1")
    assert again.exit_code == codes.GONE
    assert "run r1 cancelled: cancelled by ada: wrong one" in again.stderr


@pytest.mark.usefixtures("blocked")
def test_cancel_ends_a_blocked_run_and_its_doubt_stays(cli: Cli) -> None:
    assert cli("cancel", "r1", "--why", "written off").exit_code == codes.OK
    shown = cli("show", "r1").stdout
    assert "status:      cancelled" in shown
    assert "may have happened" in shown
    (operation,) = json.loads(cli("show", "r1", "--json").stdout)["operations"]
    done = cli("resolve", "r1", operation["id"], "abandon", "--why", "it does not matter")
    assert "the run is cancelled" in done.stderr


def test_cancel_of_an_ended_run_is_too_late(cli: Cli) -> None:
    cli("run", "greet", "world", "--id", "r1")
    done = cli("cancel", "r1", "--why", "changed my mind", "--who", "ada")
    assert (done.exit_code, done.stderr) == (codes.ERROR, "error: too late: run r1 has succeeded\n")
    assert entries(cli, "too late") == [{"what": "cancel", "who": "ada", "why": "changed my mind"}]


@pytest.mark.usefixtures("blocked")
def test_terminate_ends_it_without_asking(cli: Cli) -> None:
    done = cli("terminate", "r1", "--why", "hopeless", "--who", "ada")
    assert (done.exit_code, done.stderr) == (codes.OK, "run r1 is cancelled\n")
    assert run_of(cli)["reason"] == "terminated"
    again = cli("terminate", "r1", "--why", "again")
    assert again.exit_code == codes.ERROR
    assert "only an open run can be terminated" in again.stderr


@pytest.mark.usefixtures("ready")
def test_a_paused_run_stands_still_until_it_is_resumed(cli: Cli) -> None:
    done = cli("pause", "r1", "--why", "until noon", "--who", "ada")
    assert (done.exit_code, done.stderr) == (codes.OK, "run r1 is paused\n")
    assert run_of(cli)["paused_at"] is not None
    assert "paused" in cli("ps").stdout
    assert "somebody to resume it; paused" in cli("show", "r1").stdout
    done = cli("resume", "r1", "--why", "noon", "--who", "ada")
    assert (done.exit_code, done.stderr) == (codes.OK, "run r1 goes on; it is ready\n")
    assert entries(cli, "paused") == [{"who": "ada", "why": "until noon", "status": "ready"}]
    assert cli("run", "greet", "--id", "r1").stdout == '"hello WORLD"\n'
    assert "only a paused run can be resumed" in cli("resume", "r1", "--why", "again").stderr
    assert "only an open run can be paused" in cli("pause", "r1", "--why", "again").stderr


@pytest.mark.parametrize("verb", ["cancel", "terminate", "pause", "resume"])
def test_a_run_that_is_not_there_is_named_and_a_reason_is_asked_for(cli: Cli, verb: str) -> None:
    cli("start", "greet", "world", "--id", "r1")
    done = cli(verb, "r2", "--why", "no reason")
    assert (done.exit_code, done.stderr.splitlines()[0]) == (
        codes.ERROR, "error: no run is called 'r2' in this store"
    )  # fmt: skip
    assert cli(verb, "r1").exit_code == codes.USAGE


@pytest.mark.usefixtures("ready")
def test_a_time_that_is_none_is_refused(cli: Cli) -> None:
    assert "--grace 'soon'" in cli("cancel", "r1", "--why", "x", "--grace", "soon").stderr
    assert "--wait 'soon'" in cli("pause", "r1", "--why", "x", "--wait", "soon").stderr
    assert run_of(cli)["status"] == "ready"
