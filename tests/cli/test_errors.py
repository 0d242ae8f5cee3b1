"""Every error is one line on stderr that says what and where, with its exit code, and no traceback unless asked for."""

import sqlite3
from pathlib import Path

import pytest

from outlive import errors
from outlive.cli import codes
from outlive.cli.screen import span
from tests.cli.conftest import Cli

MODULES = {
    "broken.py": "import outlive\nvalue = 1 / 0\n",
    "unwritten.py": "def (\n",
    "needy.py": "import no_such_library\n",
    "twins.py": (
        "from outlive import Outlive, Run\napp = Outlive()\n"
        "@app.agent()\nasync def one(run: Run, n: int) -> int:\n    return n\n"
        "@app.agent(name='one')\nasync def two(run: Run, n: int) -> int:\n    return n\n"
    ),
    "including.py": "from outlive import Outlive\napp = Outlive(include=['no_such_agents'])\n",
    "including_broken.py": "from outlive import Outlive\napp = Outlive(include=['broken'])\n",
}


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("shop", "error: app = 'shop' (from option): say module:attribute, as in shop.app:app"),
        ("nowhere.app:app", "error: app = 'nowhere.app:app' (from option): there is no module nowhere (searched "),
        ("broken:app", "module broken cannot be imported: ZeroDivisionError: division by zero (broken.py:2)"),
        ("unwritten:app", "module unwritten cannot be imported: SyntaxError: "),
        ("needy:app", "needy cannot be imported: ModuleNotFoundError: No module named 'no_such_library' (needy.py:1)"),
        ("including:app", "error: include='no_such_agents' is refused: it cannot be imported: "),
        ("including_broken:app", "it includes cannot be imported: ZeroDivisionError: division by zero (broken.py:2)"),
        ("twins:app", "error: two agents are called 'one': "),
        ("tests.cli.agents_app:ap", "module tests.cli.agents_app has no 'ap'; it has tests.cli.agents_app:app, "),
        ("tests.cli.agents_app:number", "number is a int, not an Outlive; it has tests.cli.agents_app:app, "),
    ],
)  # fmt: skip
def test_an_application_that_cannot_be_imported(cli: Cli, tmp_path: Path, named: str, says: str) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text, "utf-8")
    for verb in (("run", "greet", "x"), ("start", "greet", "x"), ("worker",)):
        done = cli(*verb, "--app", named)
        assert done.exit_code in (codes.USAGE, codes.ERROR)
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert done.stdout == ""


def test_an_application_that_is_not_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLIVE_APP")
    done = cli("worker")
    assert done.exit_code == codes.USAGE
    assert "no application is named; use --app or OUTLIVE_APP" in done.stderr
    assert cli("worker", "a:b", "--app", "c:d").exit_code == codes.USAGE


def test_dependencies_that_do_not_open(cli: Cli) -> None:
    done = cli("run", "greet", "x", "--app", "tests.cli.agents_app:unlucky")
    assert (done.exit_code, done.stderr) == (codes.ERROR, "error: ConnectionRefusedError: the shop is closed\n")


def test_an_unknown_agent(cli: Cli) -> None:
    done = cli("run", "nobody", "x")
    assert done.exit_code == codes.USAGE
    assert done.stderr.startswith("error: no agent is called 'nobody'; registered: buy, fail, greet, ")


def test_a_missing_directory(cli: Cli, tmp_path: Path) -> None:
    for verb in (("ps",), ("start", "greet", "x")):
        done = cli(*verb, "--store", f"sqlite:///{tmp_path}/nowhere/runs.db")
        assert done.exit_code == codes.ERROR
        assert f"cannot be used: there is no directory {tmp_path}/nowhere\n" in done.stderr


def test_a_directory_and_a_file_that_is_no_database(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all\n" * 100, "utf-8")
    assert "is a directory, not a file" in cli("ps", "--store", f"sqlite:///{tmp_path}").stderr
    done = cli("ps", "--store", "sqlite:///text.db")
    assert done.exit_code == codes.ERROR
    assert done.stderr.startswith("error: text.db is not a store of outlive (it is no SQLite database)\n")


def test_a_database_of_a_newer_release(cli: Cli, tmp_path: Path) -> None:
    cli("start", "greet", "x")
    database = sqlite3.connect(tmp_path / "outlive.db", isolation_level=None)
    database.execute("insert into migration (number, name, sha256, applied_at) values (9999, 'new', 'x', 0)")
    database.close()
    for verb in (("ps",), ("run", "greet", "x"), ("log", "r1"), ("retry", "r1", "--why", "x")):
        done = cli(*verb)
        assert done.exit_code == codes.ERROR
        assert done.stderr.startswith("error: sqlite:///outlive.db has schema 9999, this release knows up to ")


def test_a_locked_database_is_worth_another_try(cli: Cli, tmp_path: Path) -> None:
    cli("start", "greet", "x", "--id", "r1")
    database = sqlite3.connect(tmp_path / "outlive.db", isolation_level=None)
    database.execute("begin immediate")
    try:
        done = cli("start", "greet", "y", "--id", "r2")
        listed = cli("ps")
    finally:
        database.close()
    assert done.exit_code == codes.AGAIN
    assert done.stderr.startswith("error: sqlite:///outlive.db is locked: ")
    assert listed.exit_code == codes.OK


def test_each_kind_of_error_has_its_code() -> None:
    assert codes.of_error(errors.StoreBusy(store="s", why="w")) == codes.AGAIN
    assert codes.of_error(errors.StoreFull(store="s")) == codes.AGAIN
    assert codes.of_error(errors.CommitUnknown(store="s")) == codes.AGAIN
    assert codes.of_error(errors.LeaseLost(run="r", epoch=1)) == codes.AGAIN
    assert codes.of_error(errors.StoreUnavailable(store="s", why="w")) == codes.ERROR
    assert codes.of_error(errors.SettingInvalid(name="n", value="v", source="s", why="w")) == codes.USAGE
    assert codes.of_error(errors.UnknownRun(run="r")) == codes.ERROR


def test_a_traceback_is_shown_when_asked_for(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("start", "greet", "x")
    assert "Traceback" not in cli("show", "r9").stderr
    shown = cli("show", "r9", "--debug")
    assert "Traceback" in shown.stderr
    assert "UnknownRun" in shown.stderr
    monkeypatch.setenv("OUTLIVE_DEBUG", "1")
    assert "Traceback" in cli("show", "r9").stderr


def test_a_log_level_that_is_none(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_LOG_LEVEL", "loud")
    done = cli("worker")
    assert (done.exit_code, done.stderr) == (
        codes.USAGE, "error: log_level = 'LOUD' (from OUTLIVE_LOG_LEVEL): say DEBUG, INFO, WARNING or ERROR\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "0s"), (-5, "0s"), (59_999, "59s"), (200_000, "3m 20s"), (3_600_000, "1h"), (90_061_000, "1d 1h")],
)
def test_lengths_of_time(milliseconds: int, said: str) -> None:
    assert span(milliseconds) == said
