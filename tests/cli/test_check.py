"""`outlive check`: what it prints, its options, its exit codes, and that its JSON keeps its form."""

import itertools
import json
from pathlib import Path

import pytest

from outlive.cli import codes
from tests.cli.conftest import Cli

TEXT = """
import time

from outlive import Outlive, Run

app: Outlive[None] = Outlive()


def stamp() -> float:
    print("said")
    return time.time()


@app.agent()
async def sells(run: Run[None], given: str) -> list[str]:
    stamp()
    return list(set(given))


@app.agent()
async def buys(run: Run[None], given: str) -> str:
    return given
"""

_numbers = itertools.count()


@pytest.fixture
def shop(tmp_path: Path) -> str:
    """An application under a name that no other test has imported."""
    name = f"checked{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(TEXT, "utf-8")
    return f"{name}:app"


def found(output: str) -> list[str]:
    return [one["code"] for one in json.loads(output)["findings"]]


def test_findings_and_notes_are_printed_with_their_ways(cli: Cli, shop: str) -> None:
    done = cli("check", shop)
    file = f"{shop.partition(':')[0]}.py"
    assert done.exit_code == codes.ERROR
    lines = done.stdout.splitlines()
    assert lines[0] == f"{file}:11:12: clock: time.time()"
    assert lines[1] == "    return time.time()"
    assert lines[2] == f"  by agent sells: sells ({file}:16) → stamp ({file}:11)"
    assert "run.now()" in lines[4]
    assert f"{file}:17:17: set-order: list() of a set" in lines
    assert f"{file}:10:5: note: log: print()" in lines
    assert done.stderr.splitlines()[-1] == "2 agents and 3 functions read: 2 findings, 1 note"


def test_nothing_found_says_what_was_read(cli: Cli, shop: str) -> None:
    done = cli("check", shop, "--agent", "buys")
    assert (done.exit_code, done.stdout) == (codes.OK, "")
    assert done.stderr == "1 agent and 1 function read: nothing found\n"


def test_the_application_is_named_in_each_way(cli: Cli, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(cli("check", "--app", shop, "--json").stdout) == ["clock", "set-order"]
    assert cli("check", shop, "--app", shop, "--json").exit_code == codes.ERROR
    assert cli("check", shop, "--app", "other:app").exit_code == codes.USAGE
    monkeypatch.setenv("OUTLIVE_APP", shop)
    assert found(cli("check", "--json").stdout) == ["clock", "set-order"]


def test_codes_are_selected_and_ignored(cli: Cli, shop: str) -> None:
    assert found(cli("check", shop, "--json", "--select", "clock,random").stdout) == ["clock"]
    assert found(cli("check", shop, "--json", "--select", "clock", "--select", "set-order").stdout) == [
        "clock",
        "set-order",
    ]
    assert found(cli("check", shop, "--json", "--ignore", "clock").stdout) == ["set-order"]
    done = cli("check", shop, "--ignore", "clock, set-order,log")
    assert (done.exit_code, done.stdout) == (codes.OK, "")


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_a_code_that_is_none_is_refused_with_those_that_are(cli: Cli, shop: str, option: str) -> None:
    done = cli("check", shop, option, "clocks")
    assert done.exit_code == codes.USAGE
    assert "clocks" in done.stderr
    assert "set-order" in done.stderr


def test_an_agent_or_application_that_is_none_is_an_error(cli: Cli, shop: str, tmp_path: Path) -> None:
    done = cli("check", shop, "--agent", "buyss")
    assert done.exit_code == codes.USAGE
    assert "did you mean buys?" in done.stderr
    assert cli("check", "nothing.here:app").exit_code == codes.USAGE
    (tmp_path / "empty_app.py").write_text("from outlive import Outlive\n\napp: Outlive[None] = Outlive()\n", "utf-8")
    assert cli("check", "empty_app:app").exit_code == codes.USAGE


def test_json_keeps_its_fields(cli: Cli, shop: str) -> None:
    done = cli("check", shop, "--json")
    shown = json.loads(done.stdout)
    assert done.exit_code == codes.ERROR
    assert list(shown) == ["replays", "agents", "frameworks", "functions", "unread", "findings", "notes"]
    assert (shown["replays"], shown["agents"], shown["functions"]) == (False, ["buys", "sells"], 3)
    for one in (*shown["findings"], *shown["notes"]):
        assert list(one) == ["code", "file", "line", "column", "source", "what", "why", "instead", "reached"]
        assert Path(one["file"]).is_absolute()
        for way in one["reached"]:
            assert list(way) == ["agent", "chain"]
            assert [list(hop) for hop in way["chain"]] == [["function", "file", "line"]] * len(way["chain"])
    assert [hop["function"] for hop in shown["findings"][0]["reached"][0]["chain"]] == ["sells", "stamp"]


def test_agents_of_frameworks_are_named(cli: Cli) -> None:
    done = cli("check", "examples.clerk.app:app")
    assert done.exit_code == codes.OK
    assert "clerk is an agent of a framework" in done.stderr


def test_no_store_is_opened_or_made(cli: Cli, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_STORE", "postgresql://nobody@127.0.0.1:1/none")
    before = sorted(one.name for one in tmp_path.iterdir() if one.name != "__pycache__")
    assert cli("check", shop).exit_code == codes.ERROR
    assert sorted(one.name for one in tmp_path.iterdir() if one.name != "__pycache__") == before
