"""`run` and `start` in this process: results, inputs, and an exit code for each way a run can go."""

import json
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli


def test_the_result_is_json_on_stdout_and_the_log_is_on_stderr(cli: Cli) -> None:
    done = cli("run", "greet", "world", "--id", "r1")
    assert (done.exit_code, done.stdout) == (codes.OK, '"hello WORLD"\n')
    assert "run r1" in done.stderr
    assert 'shout(line="world")' in done.stderr


def test_quiet_shows_no_log(cli: Cli) -> None:
    done = cli("run", "greet", "world", "--id", "r1", "--quiet")
    assert (done.stdout, done.stderr) == ('"hello WORLD"\n', "run r1\n")


@pytest.mark.parametrize(
    ("typed", "stdin", "result"),
    [
        ('{"item": "pen", "count": 2}', None, 2),
        ("@order.json", None, 3),
        ("-", '{"item": "pen", "count": 4}', 4),
    ],
)
def test_input_comes_from_the_argument_a_file_or_stdin(
    cli: Cli, tmp_path: Path, typed: str, stdin: str | None, result: int
) -> None:
    (tmp_path / "order.json").write_text('{"item": "pen", "count": 3}', "utf-8")
    done = cli("run", "order", typed, input=stdin)
    assert json.loads(done.stdout) == [{"item": "pen", "count": result}] * result


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("order", '{"count": 2}'), "error: order: the input does not fit: not a Order: item: Field required"),
        (("order", "nonsense"), "error: order: the input is not JSON ("),
        (("order",), "error: order: it needs an input, a Order: "),
        (("order", "@nowhere.json"), "INPUT: nowhere.json cannot be read: No such file or directory"),
        (("greet", "17"), "error: greet: the input does not fit: not a str"),
        (("greet", "x", "--deadline", "soon"), "--deadline 'soon': a duration is a number with a unit"),
        (("greet", "x", "--label", "blue"), "--label 'blue': say key=value"),
        (("greet", "x", "--id", "a\nb"), "is not a printable text of 1 to 200 characters"),
        (("greet", "x", "--lease", "1ms"), "error: lease = '1ms' (from option): a lease is at least 500ms"),
        (("greet", "x", "--store", "redis://x"), "error: store = 'redis://x' (from option): known are sqlite:///"),
    ],
)
def test_what_is_typed_wrong_is_a_usage_error_and_starts_nothing(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    done = cli("run", *arguments)
    assert done.exit_code == codes.USAGE
    assert says in done.stderr
    assert done.stdout == ""
    if (tmp_path / "outlive.db").exists():
        assert cli("ps", "--all", "--json").stdout == "[]\n"


def test_the_same_id_and_input_is_the_same_run(cli: Cli) -> None:
    first, second = cli("run", "greet", "world", "--id", "r1"), cli("run", "greet", "world", "--id", "r1")
    assert (first.stdout, second.stdout) == ('"hello WORLD"\n', '"hello WORLD"\n')
    assert len(json.loads(cli("ps", "--all", "--json").stdout)) == 1


def test_an_id_without_input_finds_the_run_that_exists(cli: Cli) -> None:
    cli("start", "greet", "world", "--id", "r1")
    assert cli("run", "greet", "--id", "r1").stdout == '"hello WORLD"\n'
    other = cli("run", "order", "--id", "r1")
    assert (other.exit_code, other.stderr) == (
        codes.USAGE, "error: run r1 exists with another agent (greet); nothing was started\n",
    )  # fmt: skip


def test_an_id_with_another_input_is_an_error(cli: Cli) -> None:
    cli("start", "greet", "world", "--id", "r1")
    done = cli("start", "greet", "moon", "--id", "r1")
    assert (done.exit_code, done.stdout) == (codes.USAGE, "")
    assert done.stderr == "error: run r1 exists with another input; nothing was started\n"


def test_start_prints_the_id_and_keeps_what_it_was_told(cli: Cli) -> None:
    told = ("--priority", "7", "--queue", "slow", "--label", "team=a", "--label", "k=v=w", "--deadline", "3d")
    done = cli("start", "greet", "world", *told, "--principal", "ada", "--purpose", "audit")
    assert done.exit_code == codes.OK
    run = done.stdout.strip()
    (shown,) = json.loads(cli("ps", "--json").stdout)
    assert (shown["id"], shown["status"], shown["priority"], shown["queue"]) == (run, "ready", 7, "slow")
    assert shown["labels"] == {"team": "a", "k": "v=w"}
    assert (shown["principal"], shown["purpose"]) == ("ada", "audit")
    assert shown["deadline_at"] > shown["created_at"]


def test_run_serves_the_queue_that_a_run_waits_in(cli: Cli) -> None:
    cli("start", "greet", "world", "--id", "r1", "--queue", "slow")
    assert cli("run", "greet", "--id", "r1").stdout == '"hello WORLD"\n'


def test_a_failed_run_exits_with_3(cli: Cli) -> None:
    done = cli("run", "fail", "--id", "r1")
    assert (done.exit_code, done.stdout) == (codes.FAILED, "")
    assert "run r1 failed: ValueError: out of stock" in done.stderr


def test_an_expired_run_exits_with_5(cli: Cli) -> None:
    cli("start", "greet", "world", "--id", "r1", "--deadline", "1ms")
    done = cli("run", "greet", "world", "--id", "r1")
    assert (done.exit_code, done.stdout) == (codes.GONE, "")
    assert "run r1 expired: its deadline passed" in done.stderr


def test_tenants_do_not_see_each_other(cli: Cli) -> None:
    assert cli("run", "greet", "world", "--id", "r1", "--tenant", "acme").exit_code == codes.OK
    assert cli("show", "r1").exit_code == codes.ERROR
    assert cli("show", "r1", "--tenant", "acme").exit_code == codes.OK


def test_each_status_has_its_code() -> None:
    got = {status: codes.of_status(status) for status in ("succeeded", "failed", "blocked", "cancelled", "expired")}
    assert got == {"succeeded": 0, "failed": 3, "blocked": 4, "cancelled": 5, "expired": 5}
