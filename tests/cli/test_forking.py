"""`fork`, `restart`, and verbs on many runs: what is made, what is held back, what is refused."""

import json
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli


def held(cli: Cli, run: str) -> str:
    """The operation of a run that is held."""
    (found,) = json.loads(cli("show", run, "--json").stdout)["operations"]
    assert found["status"] == "held"
    return str(found["id"])


@pytest.fixture
def paid(cli: Cli) -> None:
    """The run `r1`, which has paid once."""
    cli("run", "buy", "5", "--id", "r1")
    (operation,) = json.loads(cli("show", "r1", "--json").stdout)["operations"]
    cli("resolve", "r1", operation["id"], "happened", "--outcome", '{"id": "ch_1"}', "--why", "seen")
    assert cli("run", "buy", "--id", "r1").exit_code == codes.OK


def test_a_restart_pays_again_only_when_somebody_says_so(cli: Cli, paid: None, tmp_path: Path) -> None:
    made = cli("restart", "r1", "--id", "r2", "--why", "once more", "--who", "ada")
    assert (made.exit_code, made.stdout) == (codes.OK, "r2\n")
    blocked = cli("run", "buy", "--id", "r2")
    assert blocked.exit_code == codes.BLOCKED
    assert "run r1 done pay(cents=5)" in blocked.stderr.replace(" has", "")
    shown = cli("show", "r2").stdout
    assert "0 attempts, not sent by this run" in shown
    (kept,) = json.loads(cli("show", "r2", "--json").stdout)["operations"]
    assert (kept["status"], kept["first_sent_at"]) == ("held", None)
    assert "fork of:     r1 at entry 0" in shown
    assert f"resolve r2 {held(cli, 'r2')} reuse" in shown
    assert "there is a fork of it" in cli("show", "r1").stdout
    assert "from r1 at entry 0, by ada: once more" in cli("log", "r2").stdout
    done = cli("resolve", "r2", held(cli, "r2"), "reuse", "--why", "it is the same")
    assert done.exit_code == codes.OK, done.stderr
    assert cli("run", "buy", "--id", "r2").stdout == '"ch_1"\n'
    assert (tmp_path / "paid").read_text() == "x"
    assert cli("audit", "verify").exit_code == codes.OK


def test_what_is_held_takes_its_own_decisions_and_no_others(cli: Cli, paid: None, tmp_path: Path) -> None:
    cli("restart", "r1", "--id", "r2", "--why", "so")
    cli("run", "buy", "--id", "r2")
    operation = held(cli, "r2")
    refused = cli("resolve", "r2", operation, "did-not-happen", "--why", "no")
    assert (refused.exit_code, refused.stderr.splitlines()[0]) == (
        codes.ERROR, f"error: operation {operation} is held, not in doubt",
    )  # fmt: skip
    (first,) = json.loads(cli("show", "r1", "--json").stdout)["operations"]
    assert cli("resolve", "r1", first["id"], "reuse", "--why", "no").exit_code == codes.ERROR
    assert cli("resolve", "r2", operation, "repeat", "--why", "they want it twice").exit_code == codes.OK
    cli("run", "buy", "--id", "r2")
    assert (tmp_path / "paid").read_text() == "xx"
    (again,) = json.loads(cli("show", "r2", "--json").stdout)["operations"]
    assert again["status"] == "unknown"
    assert again["key"] != first["key"]


def test_a_fork_is_made_once_and_where_it_can_begin(cli: Cli, paid: None) -> None:
    for _ in range(2):
        assert cli("fork", "r1", "--id", "f", "--why", "so").stdout == "f\n"
    assert cli("run", "buy", "--id", "f").stdout == '"ch_1"\n', "the payment is history"
    taken = cli("fork", "r1", "--id", "f", "--at", "0", "--why", "so")
    assert taken.exit_code == codes.USAGE
    assert "history (it is a fork of r1 at entry" in taken.stderr
    beyond = cli("fork", "r1", "--at", "99", "--why", "so")
    assert beyond.exit_code == codes.USAGE
    assert "cannot be forked at entry 99" in beyond.stderr
    assert "nearest entry" in beyond.stderr
    inside = cli("fork", "r1", "--at", "2", "--why", "so")
    assert "pay(cents=5) has no outcome there" in inside.stderr
    assert json.loads(cli("show", "f", "--json").stdout)["run"]["fork_of"] == "r1"


def test_a_run_that_goes_on_is_not_forked(cli: Cli) -> None:
    cli("run", "buy", "5", "--id", "r1")
    refused = cli("fork", "r1", "--why", "so")
    assert (refused.exit_code, refused.stderr) == (
        codes.ERROR, "error: run r1 is blocked; only a run that has ended, or is paused, can be forked\n",
    )  # fmt: skip


def test_restart_in_bulk_takes_those_that_match_once(cli: Cli) -> None:
    for name in ("a", "b"):
        cli("run", "fail", "--id", name, "--label", f"n={name}")
    cli("run", "greet", "bob", "--id", "c")
    listed = cli("restart", "--status", "failed", "--dry-run")
    assert sorted(listed.stdout.splitlines()) == ["a  failed", "b  failed"]
    assert listed.stderr == "2 runs would be restarted\n"
    assert cli("restart", "--older-than", "1h", "--why", "so").stdout == ""
    done = cli("restart", "--status", "failed", "--label", "n=a", "--why", "again")
    (line,) = done.stdout.splitlines()
    assert line.startswith("a  restarted as a-fork-")
    assert done.exit_code == codes.OK
    again = cli("restart", "--status", "failed", "--why", "so")
    assert "a  left alone: it was restarted or forked before" in again.stdout
    assert again.stderr == "1 run is restarted, 1 left alone\n"
    dry = cli("restart", "--status", "failed", "--dry-run")
    assert set(dry.stdout.splitlines()) == {f"{name}  left alone: it was restarted or forked before" for name in "ab"}
    assert dry.stderr == "0 runs would be restarted, 2 left alone\n", "a dry run tells what would come of it"
    assert len(json.loads(cli("ps", "--all", "--json").stdout)) == 5


@pytest.mark.parametrize("arguments", [(), ("r1", "--status", "failed"), ("--status", "failed", "--id", "x")])
def test_restart_takes_one_run_or_a_choice(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli("restart", *arguments, "--why", "so").exit_code == codes.USAGE


def test_a_failure_of_one_stops_no_other(cli: Cli) -> None:
    cli("run", "buy", "5", "--id", "blocked")
    cli("run", "fail", "--id", "failed")
    dry = cli("restart", "--status", "blocked", "--status", "failed", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (codes.ERROR, "failed  failed\n")
    assert dry.stderr.endswith("1 run would be restarted, 1 failed\n"), "a dry run fails where the run itself would"
    done = cli("restart", "--status", "blocked", "--status", "failed", "--why", "so")
    assert done.exit_code == codes.ERROR
    assert "blocked  error: run blocked is blocked; only a run that has ended" in done.stderr
    assert done.stderr.endswith("1 run is restarted, 1 failed\n")
    assert done.stdout.startswith("failed  restarted as failed-fork-")
