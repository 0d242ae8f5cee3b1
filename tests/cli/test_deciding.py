"""`resolve` and `retry`: what people decide, and what is refused."""

import json
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli


@pytest.fixture
def operation(cli: Cli) -> str:
    """The operation in doubt of the blocked run `r1`."""
    done = cli("run", "buy", "5", "--id", "r1")
    assert done.exit_code == codes.BLOCKED
    (found,) = json.loads(cli("show", "r1", "--json").stdout)["operations"]
    return str(found["id"])


def entries(cli: Cli, kind: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in cli("log", "r1", "--json").stdout.splitlines()]
    return [entry["data"] for entry in found if entry["kind"] == kind]


def test_a_blocked_run_says_what_to_type(cli: Cli, operation: str) -> None:
    done = cli("run", "buy", "--id", "r1")
    assert (done.exit_code, done.stdout) == (codes.BLOCKED, "")
    assert "run r1 is blocked: operation in doubt" in done.stderr
    for decision in ("happened --outcome JSON", "did-not-happen", "abandon"):
        assert f"  outlive resolve r1 {operation} {decision} --why 'how you know'\n" in done.stderr


def test_the_commands_name_what_the_options_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLIVE_APP")
    to = ("--app", "tests.cli.agents_app:app", "--store", "sqlite:///other.db", "--tenant", "acme")
    done = cli("run", "buy", "5", "--id", "r1", *to)
    assert f"--why 'how you know' {' '.join(to)}\n" in done.stderr
    assert f"abandon --why 'how you know' {' '.join(to[2:])}\n" in done.stderr


def test_happened_gives_the_agent_the_outcome(cli: Cli, operation: str, tmp_path: Path) -> None:
    done = cli(
        "resolve", "r1", operation[:6], "happened", "--outcome", '{"id": "c-9"}', "--why", "seen", "--who", "ada"
    )
    assert (done.exit_code, done.stdout) == (codes.OK, "")
    assert done.stderr == f"operation {operation} (pay) of run r1: happened; the run is ready\n"
    assert cli("run", "buy", "--id", "r1").stdout == '"c-9"\n'
    assert entries(cli, "resolution") == [
        {"operation": operation, "decision": "happened", "who": "ada", "why": "seen"}
    ]  # fmt: skip
    assert (tmp_path / "paid").read_text("utf-8") == "x"


def test_abandon_needs_no_application_and_fails_the_agent_that_does_not_catch_it(
    cli: Cli, operation: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OUTLIVE_APP", "no.such.module:app")
    monkeypatch.setenv("LOGNAME", "grace")
    assert cli("resolve", "r1", operation, "abandon", "--why", "written off").exit_code == codes.OK
    assert [one["who"] for one in entries(cli, "resolution")] == ["grace"]
    monkeypatch.setenv("OUTLIVE_APP", "tests.cli.agents_app:app")
    done = cli("run", "buy", "--id", "r1")
    assert done.exit_code == codes.FAILED
    assert "Abandoned" in done.stderr
    assert (tmp_path / "paid").read_text("utf-8") == "x"


def test_did_not_happen_is_refused_while_a_request_may_be_on_its_way(cli: Cli, operation: str) -> None:
    done = cli("resolve", "r1", operation, "did-not-happen", "--why", "not in the ledger")
    assert done.exit_code == codes.AGAIN
    assert done.stderr.startswith(
        f"error: a request of operation {operation} may still be on its way; say did-not-happen"
    )
    assert entries(cli, "resolution") == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("r1", "op-", "happened", "--why", "x", "--outcome", "{}"), codes.USAGE, "pay: happened needs"),
        (("r1", "op-", "happened", "--why", "x", "--outcome", "c-9"), codes.USAGE, "pay: happened needs"),
        (("r1", "op-", "happened", "--why", "x"), codes.USAGE, "pay: happened needs"),
        (("r1", "op-", "abandon", "--why", "x", "--outcome", "1"), codes.USAGE, "--outcome is said with happened only"),
        (("r1", "op-", "abandon", "--why", " "), codes.USAGE, "--why: say how you know"),
        (("r1", "op-", "abandon"), codes.USAGE, "--why"),
        (("r1", "op-", "perhaps", "--why", "x"), codes.USAGE, "perhaps"),
        (("r1", "op-zz", "abandon", "--why", "x"), codes.ERROR, "error: run r1 has no operation 'op-zz'"),
        (("r2", "op-", "abandon", "--why", "x"), codes.ERROR, "error: no run is called 'r2' in this store\nhint: "),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_is_one_line(
    cli: Cli, operation: str, arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = cli("resolve", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert says in done.stderr
    assert entries(cli, "resolution") == []
    assert operation


def test_what_is_settled_cannot_be_resolved(cli: Cli, operation: str) -> None:
    cli("resolve", "r1", operation, "abandon", "--why", "x")
    done = cli("resolve", "r1", operation, "abandon", "--why", "x")
    assert (done.exit_code, done.stderr) == (
        codes.ERROR, f"error: operation {operation} is abandoned, not in doubt\n",
    )  # fmt: skip


def test_retry_lets_one_blocked_run_be_tried_again(cli: Cli, operation: str) -> None:
    assert cli("retry", "r1", "--dry-run").stdout == "r1  blocked: operation in doubt\n"
    assert json.loads(cli("ps", "--json").stdout)[0]["status"] == "blocked"
    done = cli("retry", "r1", "--why", "the bank answers", "--who", "ada")
    assert (done.exit_code, done.stdout) == (codes.OK, "r1  ready again\n")
    assert entries(cli, "retried") == [{"who": "ada", "why": "the bank answers"}]
    again = cli("retry", "r1", "--why", "so")
    assert (again.exit_code, again.stderr) == (
        codes.ERROR, "error: run r1 is ready; only a blocked run can be retried\n",
    )  # fmt: skip
    assert operation


def test_retry_in_bulk_takes_those_that_match(cli: Cli, operation: str) -> None:
    cli("run", "buy", "6", "--id", "r2")
    chosen = ("--blocked", "--reason", "operation in doubt", "--agent", "buy")
    listed = sorted(cli("retry", *chosen, "--dry-run").stdout.splitlines())
    assert listed == ["r1  blocked: operation in doubt", "r2  blocked: operation in doubt"]
    for other in (("--reason", "poison"), ("--agent", "greet")):
        done = cli("retry", "--blocked", *other, "--why", "so")
        assert (done.exit_code, done.stdout, done.stderr) == (codes.OK, "", "0 runs are ready again\n")
    done = cli("retry", *chosen, "--why", "so")
    assert sorted(done.stdout.splitlines()) == ["r1  ready again", "r2  ready again"]
    assert done.stderr == "2 runs are ready again\n"
    assert {run["status"] for run in json.loads(cli("ps", "--json").stdout)} == {"ready"}
    assert operation


@pytest.mark.parametrize("arguments", [(), ("r1", "--blocked"), ("r1", "--reason", "poison"), ("r1", "--agent", "buy")])
def test_retry_takes_one_run_or_all_blocked_ones(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli("retry", *arguments, "--why", "so").exit_code == codes.USAGE
