"""What the command says: one form of errors, names that were nearly right, commands that can be pasted."""

import json
import os
import shlex
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from outlive import errors
from outlive.app.settings import duration
from outlive.cli import advice, codes
from tests.cli.conftest import Cli
from tests.cli.waiting import Place

APPS = {
    "unnamed.py": "from outlive import Outlive\napp = Outlive()\n",
    "stored.py": "from outlive import Outlive\nprint('imported')\napp = Outlive('sqlite:///own.db')\n",
    "talking.py": (
        "from outlive import Outlive, Run\nprint('imported')\napp = Outlive()\n"
        "@app.agent()\nasync def talk(run: Run, name: str) -> str:\n    print('talking')\n    return name\n"
    ),
    "secretive.py": (
        "from outlive import Outlive, Run\nfrom pydantic import SecretStr\napp = Outlive()\n"
        "@app.agent()\nasync def hide(run: Run, word: SecretStr) -> str:\n    return ''\n"
    ),
    "unannotated.py": (
        "from outlive import Outlive, Run\napp = Outlive()\n@app.agent()\nasync def hide(run: Run, word):\n    pass\n"
    ),
    "twins.py": (
        "from outlive import Outlive, Run\napp = Outlive()\n"
        "@app.agent()\nasync def one(run: Run, n: int) -> int:\n    return n\n"
        "@app.agent(name='one')\nasync def two(run: Run, n: int) -> int:\n    return n\n"
    ),
}


@pytest.fixture(autouse=True)
def _apps(tmp_path: Path) -> None:
    for name, text in APPS.items():
        (tmp_path / name).write_text(text, "utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ("start", "greet", "x", "--id", ""),
        ("run", "greet", "x", "--id", " "),
        ("start", "greet", "x", "--queue", ""),
        ("run", "greet", "x", "--queue", ""),
        ("worker", "--queue", ""),
        ("start", "greet", "x", "--tenant", ""),
        ("ps", "--tenant", ""),
        ("worker", "--tenant", ""),
        ("ps", "--store", ""),
        ("show", ""),
        ("log", ""),
        ("start", "", "x"),
        ("resolve", "r1", "", "abandon", "--why", "x"),
        ("resolve", "r1", "op-1", "abandon", "--why", "x", "--who", ""),
        ("ps", "--agent", ""),
        ("retry", "--blocked", "--agent", ""),
        ("retry", "--blocked", "--reason", ""),
        ("retry", ""),
        ("start", "greet", "x", "--queue", "a\nb"),
    ],
    ids=shlex.join,
)
def test_a_name_is_never_empty(cli: Cli, arguments: Sequence[str]) -> None:
    done = cli(*arguments)
    assert (done.exit_code, done.stdout) == (codes.USAGE, "")
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize("variable", ["OUTLIVE_TENANT", "OUTLIVE_STORE"])
def test_a_variable_is_never_empty(cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "")
    done = cli("ps")
    assert done.exit_code == codes.USAGE
    assert f"(from {variable})" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ps", "--statis", "ready"), "error: No such option: --statis"),
        (("pss",), "error: No such command 'pss'. Did you mean 'ps'?"),
        (("ps", "--limit", "0"), "error: Invalid value for '--limit': "),
        (("ps", "--status", "asleep"), "error: Invalid value for '--status' / '-s': "),
        (("show",), "error: Missing argument 'RUN'."),
        (("start", "greet", "x", "--label", "blue"), "error: --label 'blue': say key=value"),
        (("start", "greet", "x", "--priority", str(2**63)), "error: Invalid value for '--priority': "),
        (("start", "greet", "x", "--priority", str(-(2**63) - 1)), "error: Invalid value for '--priority': "),
        (("start", "greet", "x", "--deadline", "9999999999d"), "error: --deadline '9999999999d': at most "),
        (("start", "greet", "x", "--deadline", "9" * 400 + "d"), "error: --deadline '999"),
        (("log", "r1", "--after", str(2**63)), "error: Invalid value for '--after': "),
        (("ps", "--limit", str(2**63)), "error: Invalid value for '--limit': "),
        (("worker", "--concurrency", str(2**63)), "error: Invalid value for '--concurrency': "),
    ],
    ids=lambda one: shlex.join(one)[:60] if isinstance(one, tuple) else "",
)
def test_errors_have_one_form(cli: Cli, arguments: Sequence[str], says: str) -> None:
    done = cli(*arguments)
    assert (done.exit_code, done.stdout) == (codes.USAGE, "")
    first, *others = done.stderr.splitlines()
    assert first.startswith(says)
    assert len(others) <= 1
    assert all(line.startswith("hint: ") for line in others)
    assert "Usage" not in done.stderr


def test_no_verb_prints_help(cli: Cli) -> None:
    done = cli()
    assert done.exit_code == codes.USAGE
    assert "Commands:" in done.output


@pytest.mark.parametrize("text", ["9999999999d", "1e3s", f"{'9' * 400}s", "36501d"])
def test_lengths_of_time_that_no_clock_has(text: str) -> None:
    with pytest.raises(ValueError, match="at most|a number with a unit"):
        duration(text)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("SQLITE_CANTOPEN", "the file cannot be opened"),
        ("SQLITE_READONLY_DBMOVED", "it cannot be written to"),
        ("SQLITE_CORRUPT", "the file is damaged"),
        ("SQLITE_IOERR_SHORT_READ", "the disk could not be read or written"),
        ("SQLITE_MISUSE", "strange"),
    ],
)
def test_codes_of_the_driver_are_said_in_words(code: str, says: str) -> None:
    said = codes.plainly(f"sqlite:///x.db cannot be used: {code}: strange")
    assert said.startswith(f"sqlite:///x.db cannot be used: {says}")
    assert "SQLITE_" not in said


def test_a_damaged_database_is_said_in_words(cli: Cli, tmp_path: Path) -> None:
    cli("start", "greet", "x")
    with (tmp_path / "outlive.db").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 4000)
    for verb in (("ps",), ("start", "greet", "x")):
        done = cli(*verb)
        assert done.exit_code == codes.ERROR
        assert "the file is damaged" in done.stderr
        assert "SQLITE_" not in done.stderr


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("twins:app", "two agents are called 'one'"),
        ("secretive:app", "secret"),
        ("unannotated:app", "hide"),
    ],
)
def test_code_that_is_wrong_is_said_with_2(cli: Cli, app: str, says: str) -> None:
    done = cli("start", "one", "1", "--app", app)
    assert done.exit_code == codes.USAGE
    assert done.stderr.startswith("error: ")
    assert says in done.stderr


def test_codes_of_errors_follow_the_table() -> None:
    for error in (
        errors.UnknownAgent(name="a", known=()),
        errors.DuplicateName(kind="agent", name="a", first="x", second="y"),
        errors.SecretInSignature(function="f", parameter="p"),
        errors.BadArguments(function="f", why="w"),
        errors.RunExists(run="r", differs="input"),
        errors.Refused(what="w", why="y"),
    ):
        assert codes.of_error(error) == codes.USAGE
    assert codes.of_error(errors.UnknownOperation(run="r", operation="o")) == codes.ERROR


def test_an_agent_that_was_nearly_named(cli: Cli) -> None:
    done = cli("run", "ordr", "{}")
    assert done.exit_code == codes.USAGE
    assert "hint: did you mean order?" in done.stderr
    assert "did you mean" not in cli("run", "zzz", "{}").stderr


def test_an_application_without_agents_cannot_be_served(cli: Cli) -> None:
    done = cli("worker", "--app", "unnamed:app")
    assert (done.exit_code, done.stdout) == (codes.USAGE, "")
    assert "registers no agent" in done.stderr


def test_operations_that_begin_alike_are_told_from_none(cli: Cli) -> None:
    cli("run", "twice", "5", "--id", "r1")
    ids = [one["id"] for one in json.loads(cli("show", "r1", "--json").stdout)["operations"]]
    assert len(ids) == 2
    several = cli("resolve", "r1", "op-", "abandon", "--why", "x")
    assert several.exit_code == codes.ERROR
    assert several.stderr.startswith("error: run r1 has 2 operations that begin with 'op-': ")
    assert all(one in several.stderr for one in ids)
    none = cli("resolve", "r1", "op-zz", "abandon", "--why", "x")
    assert none.stderr.startswith("error: run r1 has no operation 'op-zz'\n")


def test_show_says_why_an_operation_is_in_doubt(cli: Cli) -> None:
    cli("run", "buy", "5", "--id", "r1")
    assert "the answer was lost" in cli("show", "r1").stdout
    (operation,) = json.loads(cli("show", "r1", "--json").stdout)["operations"]
    assert "the answer was lost" in operation["error"]


def test_the_printed_commands_work_as_they_are(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLIVE_APP")
    where = ("--app", "tests.cli.agents_app:app", "--store", "sqlite:///it's here.db", "--unsafe-durability")
    done = cli("run", "buy", "5", "--id", "r1", *where)
    lines = [shlex.split(line) for line in done.stderr.splitlines() if line.startswith("  outlive ")]
    assert len(lines) == 3
    happened = next(line for line in lines if "happened" in line)
    happened[happened.index("JSON")] = '{"id": "c"}'
    assert cli(*happened[1:]).exit_code == codes.OK


def test_show_says_that_the_application_must_be_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("run", "buy", "5", "--id", "r1")
    assert "--app" not in cli("show", "r1").stdout
    monkeypatch.delenv("OUTLIVE_APP")
    shown = cli("show", "r1").stdout
    (line,) = [one for one in shown.splitlines() if " happened " in one and "resolve" in one]
    assert line.endswith(" --app MODULE:ATTR")
    assert "OUTLIVE_APP is not set" in shown


@pytest.mark.usefixtures("cli")
def test_the_command_is_named_so_that_it_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert advice.program() == ["outlive"]
    monkeypatch.setenv("PATH", str(tmp_path))
    found = advice.program()
    assert subprocess.run([*found, "--version"], capture_output=True, check=True).stdout.startswith(b"outlive ")


@pytest.mark.parametrize("reason", ["foo", "Poison", "in doubt"])
def test_retry_knows_its_reasons(cli: Cli, reason: str) -> None:
    cli("start", "greet", "x")
    done = cli("retry", "--blocked", "--reason", reason, "--why", "so")
    assert done.exit_code == codes.USAGE
    assert "operation in doubt, duplicate effect, diverged, poison" in done.stderr


def test_variables_that_are_not_ours_are_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("start", "greet", "x")
    for name in ("OUTLIVE_LEESE", "OUTLIVE_SECRET_BANK", "OUTLIVE_TEST_X", "OUTLIVE_DEBUG"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("OUTLIVE_DEBUG", "")
    warned = [line for line in cli("ps").stderr.splitlines() if line.startswith("warning: ")]
    assert warned == ["warning: OUTLIVE_LEESE is not a variable of outlive; did you mean OUTLIVE_LEASE?"]


def test_what_an_agent_prints_does_not_mix_with_the_result(cli: Cli) -> None:
    done = cli("run", "talk", "x", "-q", "--app", "talking:app")
    assert done.stdout == '"x"\n'
    assert "talking\n" in done.stderr
    assert cli("start", "talk", "x", "--id", "r9", "--app", "talking:app").stdout == "r9\n"


def test_config_asks_the_application_that_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("config", "--app", "stored:app", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert (rows["store"]["value"], rows["store"]["source"]) == ("sqlite:///own.db", "application")
    given = json.loads(cli("config", "--app", "stored:app", "--store", "sqlite:///a.db", "--json").stdout)
    assert given[0]["source"] == "option"
    wrong = cli("config", "--app", "nowhere:app")
    assert wrong.exit_code == codes.USAGE
    assert "there is no module nowhere" in wrong.stderr


def test_what_is_piped_is_whole(cli: Cli) -> None:
    long = "x" * 190
    cli("run", "buy", "5", "--id", long, "--label", f"team={'y' * 200}")
    head, row = cli("ps").stdout.splitlines()
    assert (head, row) == (head.rstrip(), row.rstrip())
    assert row.startswith(f"{long}  buy")
    assert "…" not in row + cli("show", long).stdout
    (run,) = json.loads(cli("ps", "--json").stdout)
    assert run["detail"] in row
    cli("run", "greet", "w" * 500, "--id", "r2")
    assert "W" * 500 in cli("show", "r2").stdout


def test_a_terminal_gets_its_width_and_whole_ids(place: Place) -> None:
    long = "x" * 100
    place.done("start", "greet", "x", "--id", long)
    shown = terminal(place, "ps", columns=60)
    assert long in shown.replace("\r\n", "\n")


def terminal(place: Place, *arguments: str, columns: int) -> str:
    """What the command prints where there is a terminal."""
    ours, theirs = os.openpty()
    env = {**place.env, "COLUMNS": str(columns), "TERM": "xterm"}
    command = [*advice.program(), *arguments]
    with subprocess.Popen(command, cwd=place.path, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        read = b""
        while chunk := _read(ours):
            read += chunk
        process.wait()
    assert stat.S_ISCHR(os.fstat(ours).st_mode)
    os.close(ours)
    return read.decode()


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:
        return b""


def test_ps_says_when_a_lease_ends(place: Place) -> None:
    place.done("start", "wait", "x", "--id", "r1")
    first = place.outlive("worker", "--lease", "1s")
    first.line("at the gate")
    assert "lease ends in " in "\n".join(place.done("ps")[1])
    first.end()
    for _ in range(100):
        if "lease lapsed" in "\n".join(place.done("ps")[1]):
            return
    raise AssertionError("the lease of a dead worker did not lapse")


def test_run_says_whom_it_waits_for(place: Place) -> None:
    place.done("start", "wait", "x", "--id", "other")
    run = place.outlive("run", "greet", "x", "--id", "r1")
    run.line("waiting for calls in flight: other")
    place.open_gate()
    assert run.code() == codes.OK
    assert '"hello X"' in run.seen


def test_a_worker_warns_of_runs_that_fail_or_block(place: Place) -> None:
    place.done("start", "fail", "--id", "r1")
    place.done("start", "buy", "5", "--id", "r2")
    worker = place.outlive("worker")
    text = [worker.line("WARNING"), worker.line("WARNING")]
    assert any("run r1 failed: ValueError: out of stock" in line for line in text)
    assert any("run r2 is blocked: operation in doubt: " in line for line in text)


@pytest.mark.parametrize("verb", ["cancel", "terminate", "pause", "resume", "retry", "fork", "restart"])
def test_who_acts_on_a_run_says_why(cli: Cli, verb: str) -> None:
    cli("start", "greet", "x", "--id", "r1")
    done = cli(verb, "r1")
    assert done.exit_code == codes.USAGE
    assert "--why" in done.stderr
    assert json.loads(cli("show", "r1", "--json").stdout)["run"]["status"] == "ready"
    if verb not in ("fork", "resume"):
        assert "--why" not in cli(verb, "r1", "--dry-run").stderr
