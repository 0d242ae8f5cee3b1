"""`outlive rollback`: what would be undone, what is undone, and how `show` tells of it."""

import json
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli


@pytest.fixture
def booked(cli: Cli) -> None:
    assert cli("run", "travel", '"12A"', "--id", "t1").exit_code == codes.OK


def booked_seats(tmp_path: Path) -> list[str]:
    return (tmp_path / "booked").read_text().splitlines()


def test_a_dry_run_prints_the_plan_and_changes_nothing(cli: Cli, booked: None, tmp_path: Path) -> None:
    planned = cli("rollback", "t1", "--dry-run")
    assert planned.exit_code == codes.OK, planned.stderr
    lines = planned.stdout.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["is", "compensate"], "newest first"
    assert "tool tell has no compensation" in lines[1]
    assert "by book.compensate" in lines[2]
    steps = json.loads(cli("rollback", "t1", "--dry-run", "--json").stdout)["steps"]
    assert [(one["what"], one["operation"]["tool"]) for one in steps] == [("left", "tell"), ("compensate", "book")]
    assert cli("show", "t1-rollback").exit_code == codes.ERROR
    assert booked_seats(tmp_path) == ["12A"]


def test_a_run_is_rolled_back_and_says_so(cli: Cli, booked: None, tmp_path: Path) -> None:
    assert cli("rollback", "t1").exit_code == codes.USAGE, "--why is said"
    made = cli("rollback", "t1", "--why", "she stays at home", "--who", "ada")
    assert (made.exit_code, made.stdout) == (codes.OK, "t1-rollback\n"), made.stderr
    assert "is rolling it back already" in cli("rollback", "t1", "--dry-run").stderr
    done = cli("run", "travel", "--id", "t1-rollback")
    assert done.exit_code == codes.OK, done.stderr
    assert json.loads(done.stdout)["left"][0]["why"] == "tool tell has no compensation"
    assert booked_seats(tmp_path) == ["12A", "seat 12A is free again"]
    shown = cli("show", "t1").stdout
    assert "rolled back: by t1-rollback, which is succeeded" in shown
    assert ": compensated (call)  book(seat='12A')" in shown
    assert "undone by:" in shown
    back = cli("show", "t1-rollback").stdout
    assert "rolls back:  t1" in back and "undoes:" in back
    found = json.loads(cli("show", "t1", "--json").stdout)
    assert found["rollbacks"] == [{"id": "t1-rollback", "status": "succeeded", "reason": ""}]
    assert [one["status"] for one in found["operations"]] == ["compensated", "succeeded"]
    assert "she stays at home" in cli("log", "t1-rollback", "--json").stdout
    assert cli("audit", "verify").exit_code == codes.OK
    assert cli("rollback", "t1-rollback", "--why", "again").exit_code == codes.ERROR
    assert cli("rollback", "nobody", "--why", "again").exit_code == codes.ERROR
    again = cli("rollback", "t1", "--dry-run").stdout.splitlines()
    assert again[2].split()[1] == "compensated"


def test_what_a_rollback_cannot_undo_is_shown_with_what_to_do(cli: Cli, booked: None, tmp_path: Path) -> None:
    (tmp_path / "shut").touch()
    cli("rollback", "t1", "--why", "she stays at home")
    assert cli("run", "travel", "--id", "t1-rollback").exit_code == codes.BLOCKED
    shown = cli("show", "t1-rollback").stdout
    assert "compensation failed" in shown and "the shop is shut" in shown and "retry t1-rollback" in shown
    told = cli("notifications").stdout
    assert "t1-rollback" in told and "blocked" in told
    (tmp_path / "shut").unlink()
    assert cli("retry", "t1-rollback", "--why", "it is open").exit_code == codes.OK
    assert cli("run", "travel", "--id", "t1-rollback").exit_code == codes.OK
    assert booked_seats(tmp_path)[-1] == "seat 12A is free again"


def test_what_a_rollback_waits_for_in_the_other_run_is_shown_there(cli: Cli) -> None:
    cli("run", "buy", "5", "--id", "b1")
    made = cli("rollback", "b1", "--why", "nobody knows")
    assert "which is blocked and is cancelled first" in made.stderr
    (doubtful,) = json.loads(cli("show", "b1", "--json").stdout)["operations"]
    assert cli("run", "buy", "--id", "b1-rollback").exit_code == codes.BLOCKED
    assert f"resolve b1 {doubtful['id']} happened" in cli("show", "b1-rollback").stdout
    assert cli("resolve", "b1", doubtful["id"], "abandon", "--why", "written off").exit_code == codes.OK
    done = cli("run", "buy", "--id", "b1-rollback")
    assert done.exit_code == codes.OK, done.stderr
    assert "it was abandoned" in done.stdout
