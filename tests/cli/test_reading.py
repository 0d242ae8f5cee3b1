"""`ps`, `show`, `log` and `config`: they need no application, and their JSON keeps its form."""

import json
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli

RUN = (
    "id tenant agent version status reason detail owner epoch queue priority created_at updated_at wake_at deadline_at "
    "paused_at ended_at lease_until lapses entries principal purpose labels "
    "pin origin fork_of fork_seq forked rolls_back"
).split()
OPERATION = (
    "id tool effect status how key attempts arguments outcome error notes duplicates first_sent_at updated_at "
    "not_before compensates compensated_by shared_run shared_operation"
).split()


@pytest.fixture
def runs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run that succeeded, one that is blocked, one that is ready; and no application from here on."""
    assert cli("run", "greet", "world", "--id", "good", "--label", "team=a").exit_code == codes.OK
    assert cli("run", "buy", "5", "--id", "doubt").exit_code == codes.BLOCKED
    assert cli("start", "greet", "x", "--id", "new").exit_code == codes.OK
    monkeypatch.setenv("OUTLIVE_APP", "no.such.module:app")


def ids(cli: Cli, *arguments: str) -> list[str]:
    return [run["id"] for run in json.loads(cli("ps", "--json", *arguments).stdout)]


@pytest.mark.usefixtures("runs")
def test_ps_lists_what_has_not_ended_and_more_when_asked(cli: Cli) -> None:
    assert ids(cli) == ["new", "doubt"]
    assert ids(cli, "--all") == ["new", "doubt", "good"]
    assert ids(cli, "--status", "succeeded", "--status", "ready") == ["new", "good"]
    assert ids(cli, "--all", "--agent", "greet") == ["new", "good"]
    assert ids(cli, "--all", "--label", "team=a") == ["good"]
    assert ids(cli, "--all", "--limit", "1") == ["new"]
    assert "there are more than 1" in cli("ps", "--limit", "1").stderr
    assert cli("ps", "--status", "asleep").exit_code == codes.USAGE


@pytest.mark.usefixtures("runs")
def test_ps_prints_a_row_for_people(cli: Cli) -> None:
    head, new, doubt = cli("ps").stdout.splitlines()
    assert head.split() == ["run", "agent", "status", "age", "owner", "reason"]
    assert new.split()[:3] == ["new", "greet", "ready"]
    assert doubt.split()[:3] == ["doubt", "buy", "blocked"]
    assert "operation in doubt" in doubt
    assert "\x1b" not in head + new + doubt


@pytest.mark.usefixtures("runs")
def test_ps_json_keeps_its_fields(cli: Cli) -> None:
    for run in json.loads(cli("ps", "--all", "--json").stdout):
        assert list(run) == [*RUN, "stalled"]
        assert run["created_at"].endswith("+00:00")


@pytest.mark.usefixtures("runs")
def test_show_answers_the_three_questions(cli: Cli) -> None:
    shown = cli("show", "doubt").stdout
    assert "nobody has it now" in shown
    assert "waiting for: a person: operation in doubt" in shown
    (operation,) = json.loads(cli("show", "doubt", "--json").stdout)["operations"]
    for part in (operation["id"], operation["key"], "pay(cents=5)", "external", "unknown"):
        assert part in shown
    assert f"outlive resolve doubt {operation['id']} did-not-happen --why" in shown
    assert "waiting for: a worker that serves greet" in cli("show", "new").stdout
    good = cli("show", "good").stdout
    assert "waiting for: nothing" in good
    assert 'result:      "hello WORLD"' in good


@pytest.mark.usefixtures("runs")
def test_show_json_keeps_its_fields(cli: Cli) -> None:
    shown = json.loads(cli("show", "doubt", "--json").stdout)
    assert list(shown) == [
        "run", "owner", "waiting_for", "operations", "divergences", "adoptable", "rollbacks",
        "awaited_keys", "unread", "questions", "result", "error",
    ]  # fmt: skip
    assert list(shown["run"]) == RUN
    assert list(shown["operations"][0]) == OPERATION
    assert shown["operations"][0]["arguments"] == {"cents": 5}
    assert json.loads(cli("show", "good", "--json").stdout)["result"] == "hello WORLD"


@pytest.mark.usefixtures("runs")
def test_log_is_one_line_or_one_object_per_entry(cli: Cli) -> None:
    lines = cli("log", "good").stdout.splitlines()
    entries = [json.loads(line) for line in cli("log", "good", "--json").stdout.splitlines()]
    assert [entry["kind"] for entry in entries] == ["started", "claimed", "step", "ended"]
    assert [int(line.split()[0]) for line in lines] == [entry["seq"] for entry in entries] == [0, 1, 2, 3]
    assert list(entries[0]) == ["seq", "at", "epoch", "kind", "scope", "text", "data", "payload"]
    assert entries[3]["payload"] == "hello WORLD"


@pytest.mark.usefixtures("runs")
def test_log_goes_on_behind_an_entry(cli: Cli) -> None:
    assert [line.split()[0] for line in cli("log", "good", "--after", "1").stdout.splitlines()] == ["2", "3"]
    assert cli("log", "good", "--after", "3", "-f").stdout == ""


def test_what_others_wrote_cannot_steer_a_terminal(cli: Cli) -> None:
    cli("run", "greet", "--id", "r1", "--", '"\\u001b[2J\\n"')
    shown = cli("log", "r1").stdout + cli("show", "r1").stdout
    assert "\x1b" not in shown
    assert len(cli("log", "r1").stdout.splitlines()) == 4


def test_config_shows_value_and_source(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_LEASE", "5s")
    rows = {row["name"]: row for row in json.loads(cli("config", "--tenant", "acme", "--json").stdout)}
    assert (rows["lease"]["value"], rows["lease"]["source"]) == ("5s", "OUTLIVE_LEASE")
    assert (rows["tenant"]["value"], rows["tenant"]["source"]) == ("acme", "option")
    assert (rows["concurrency"]["value"], rows["concurrency"]["source"]) == ("100", "default")
    assert all(list(row) == ["name", "value", "source", "help"] for row in rows.values())
    assert "OUTLIVE_LEASE" in cli("config").stdout


def test_reading_makes_no_database(cli: Cli, tmp_path: Path) -> None:
    for verb in (
        ("ps",),
        ("show", "r1"),
        ("log", "r1"),
        ("retry", "r1", "--why", "x"),
        ("retry", "--blocked", "--why", "x"),
    ):
        done = cli(*verb)
        assert done.exit_code == codes.ERROR
        assert done.stderr.startswith("error: sqlite:///outlive.db cannot be used: there is no such database")
    assert not (tmp_path / "outlive.db").exists()
