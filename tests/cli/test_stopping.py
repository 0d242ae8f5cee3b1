"""`cancel`, `terminate`, `pause` and `resume`: what they do where no worker lives, and what they say."""

from __future__ import annotations

import asyncio
import json

import pytest

from outlive.app import operate
from outlive.cli import codes
from outlive.model.ids import Owner
from outlive.store.port import Claim
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
    assert (done.exit_code, done.stdout, done.stderr) == (codes.OK, "r1  cancelled\n", "")
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
    assert (done.exit_code, done.stderr) == (
        codes.ERROR, "error: run r1 has succeeded; it is too late to cancel it\n",
    )  # fmt: skip
    assert entries(cli, "too late") == [{"what": "cancel", "who": "ada", "why": "changed my mind"}]


@pytest.mark.usefixtures("blocked")
def test_terminate_ends_it_without_asking(cli: Cli) -> None:
    done = cli("terminate", "r1", "--why", "hopeless", "--who", "ada")
    assert (done.exit_code, done.stdout) == (codes.OK, "r1  terminated\n")
    assert run_of(cli)["reason"] == "terminated"
    again = cli("terminate", "r1", "--why", "again")
    assert again.exit_code == codes.ERROR
    assert "only a run that has not ended can be terminated" in again.stderr


@pytest.mark.usefixtures("ready")
def test_a_paused_run_stands_still_until_it_is_resumed(cli: Cli) -> None:
    done = cli("pause", "r1", "--why", "until noon", "--who", "ada")
    assert (done.exit_code, done.stdout) == (codes.OK, "r1  paused\n")
    assert run_of(cli)["paused_at"] is not None
    assert "paused" in cli("ps").stdout
    assert "somebody to resume it; paused" in cli("show", "r1").stdout
    done = cli("resume", "r1", "--why", "noon", "--who", "ada")
    assert (done.exit_code, done.stdout) == (codes.OK, "r1  goes on; it is ready\n")
    assert entries(cli, "paused") == [{"who": "ada", "why": "until noon", "status": "ready"}]
    assert cli("run", "greet", "--id", "r1").stdout == '"hello WORLD"\n'
    assert "only a paused run can be resumed" in cli("resume", "r1", "--why", "again").stderr
    assert "only a run that has not ended can be paused" in cli("pause", "r1", "--why", "again").stderr


@pytest.mark.parametrize("verb", ["cancel", "terminate", "pause", "resume"])
def test_a_run_that_is_not_there_is_named_and_a_reason_is_asked_for(cli: Cli, verb: str) -> None:
    cli("start", "greet", "world", "--id", "r1")
    done = cli(verb, "r2", "--why", "no reason")
    assert (done.exit_code, done.stderr.splitlines()[0]) == (
        codes.ERROR, "error: no run is called 'r2' in this store"
    )  # fmt: skip
    assert cli(verb, "r1").exit_code == codes.USAGE
    assert cli(verb, "--why", "neither").exit_code == codes.USAGE
    both = cli(verb, "r1", "--agent", "greet", "--why", "both")
    assert (both.exit_code, "say either the id of a run or which ones" in both.stderr) == (codes.USAGE, True)
    assert run_of(cli)["status"] == "ready"


@pytest.mark.usefixtures("ready")
def test_a_time_that_is_none_is_refused(cli: Cli) -> None:
    assert "--grace 'soon'" in cli("cancel", "r1", "--why", "x", "--grace", "soon").stderr
    assert "--wait 'soon'" in cli("pause", "r1", "--why", "x", "--wait", "soon").stderr
    assert run_of(cli)["status"] == "ready"


@pytest.fixture
def some(cli: Cli) -> None:
    """`r1` and `r2` are ready, `r3` is blocked, `r4` has succeeded; `r1` and `r3` have a label."""
    assert cli("run", "buy", "5", "--id", "r3", "--label", "half=one").exit_code == codes.BLOCKED
    assert cli("run", "greet", "world", "--id", "r4").exit_code == codes.OK
    assert cli("start", "greet", "world", "--id", "r1", "--label", "half=one").exit_code == codes.OK
    assert cli("start", "greet", "world", "--id", "r2", "--priority", "1").exit_code == codes.OK


def drive_elsewhere() -> str:
    """Somebody has the most urgent run, for longer than any test takes, and hears nothing; its id."""

    async def go() -> str:
        async with operate.reading(operate.settings_of(None)) as store:
            [claimed] = await store.claim(Claim(Owner("w-1"), {"greet": "b1"}, 1, 3_600_000))
            return claimed.row.id

    return asyncio.run(go())


def lines(text: str) -> list[str]:
    return sorted(text.splitlines())


def statuses(cli: Cli) -> dict[str, str]:
    return {one["id"]: one["status"] for one in json.loads(cli("ps", "--all", "--json").stdout)}


@pytest.mark.usefixtures("some")
def test_those_that_have_not_ended_are_stopped(cli: Cli) -> None:
    listed = cli("cancel", "--older-than", "1ms", "--why", "all of them", "--dry-run")
    assert lines(listed.stdout) == ["r1  ready", "r2  ready", "r3  blocked: operation in doubt"]
    assert (listed.exit_code, listed.stderr) == (codes.OK, "3 runs would be cancelled\n")
    assert statuses(cli) == {"r1": "ready", "r2": "ready", "r3": "blocked", "r4": "succeeded"}
    done = cli("cancel", "--label", "half=one", "--why", "wrong half", "--who", "ada")
    assert (done.exit_code, lines(done.stdout)) == (codes.OK, ["r1  cancelled", "r3  cancelled"])
    assert done.stderr == "2 runs are cancelled\n"
    assert entries(cli, "cancelling")[0]["who"] == "ada"
    done = cli("terminate", "--agent", "greet", "--why", "and this")
    assert (done.stdout, done.stderr) == ("r2  terminated\n", "1 run is terminated\n")
    assert statuses(cli) == {"r1": "cancelled", "r2": "cancelled", "r3": "cancelled", "r4": "succeeded"}


@pytest.mark.usefixtures("some")
def test_paused_ones_are_found_and_go_on(cli: Cli) -> None:
    done = cli("pause", "--label", "half=one", "--why", "until noon")
    assert (lines(done.stdout), done.stderr) == (["r1  paused", "r3  paused"], "2 runs are paused\n")
    paused = json.loads(cli("ps", "--paused", "--json").stdout)
    assert sorted(one["id"] for one in paused) == ["r1", "r3"]
    listed = cli("resume", "--older-than", "1ms", "--why", "noon", "--dry-run")
    assert lines(listed.stdout) == ["r1  ready, paused", "r3  blocked, paused: operation in doubt"]
    assert cli("cancel", "--paused", "--agent", "buy", "--why", "x").stdout == "r3  cancelled\n"
    done = cli("resume", "--paused", "--why", "noon")
    assert (done.exit_code, done.stdout, done.stderr) == (
        codes.OK,
        "r1  goes on; it is ready\n",
        "1 run is resumed\n",
    )
    assert cli("ps", "--paused").stderr == "no runs\n"


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(("verb", "done"), [("cancel", "cancelled"), ("pause", "paused")])
def test_what_is_only_asked_is_counted_for_itself(cli: Cli, verb: str, done: str) -> None:
    assert drive_elsewhere() == "r2"
    came = cli(verb, "--agent", "greet", "--why", "enough")  # it waits for none
    assert came.exit_code == codes.OK
    asked, own = sorted(came.stdout.splitlines(), reverse=True)
    assert (asked.startswith("r2  asked to "), own) == (True, f"r1  {done}")
    assert came.stderr == f"1 run is {done}, 1 asked\n"
    alone = cli(verb, "r2", "--why", "enough", "--wait", "0s")
    assert (alone.exit_code, alone.stdout, alone.stderr) == (codes.AGAIN, f"{asked}\n", "")


@pytest.mark.usefixtures("some")
def test_too_late_for_one_stops_no_other(cli: Cli) -> None:
    done = cli("cancel", "--status", "ready", "--status", "succeeded", "--why", "changed my mind")
    assert (done.exit_code, lines(done.stdout)) == (codes.ERROR, ["r1  cancelled", "r2  cancelled"])
    assert done.stderr.splitlines() == [
        "r4  error: run r4 has succeeded; it is too late to cancel it", "2 runs are cancelled, 1 failed",
    ]  # fmt: skip
