"""Help and `docs/cli.md` tell of every verb, option and exit code; the command answers fast."""

import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.main import get_command

from outlive.cli import app, codes
from tests.cli.conftest import ROOT, Cli
from tests.cli.waiting import Place

GROUP = get_command(app)
COMMANDS = dict(getattr(GROUP, "commands", {}))
VERBS = {
    f"{name} {inner}".strip(): command
    for name, outer in COMMANDS.items()
    for inner, command in getattr(outer, "commands", {"": outer}).items()
}
PAGE = (ROOT / "docs" / "cli.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## outlive (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
SHARED = {"--store", "--tenant", "--unsafe-durability", "--debug", "--help"}


def options(verb: str) -> set[str]:
    return {one for parameter in VERBS[verb].params for one in parameter.opts if one.startswith("--")}


def test_there_are_the_verbs() -> None:
    assert sorted(VERBS) == [
        "adopt", "answer", "approvals", "approve", "audit verify", "cancel", "check", "complete", "config",
        "db check",
        "db init", "db upgrade", "doctor", "export", "fork", "import", "keys", "log", "mcp", "notifications",
        "notify test", "pause",
        "ps", "questions", "reject", "replay", "resolve", "restart", "resume", "retention", "retry", "rollback", "run",
        "send", "show",
        "start", "terminate", "versions", "worker",
    ]  # fmt: skip


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_help_tells_of_every_option_with_an_example(cli: Cli, verb: str) -> None:
    done = cli(*verb.split(), "--help")
    assert done.exit_code == 0
    assert [one for one in options(verb) if one not in done.output] == []
    assert all(parameter.help for parameter in VERBS[verb].params if parameter.name != "help")
    assert f"outlive {verb}" in done.output.partition("Examples:")[2]
    lacks = {"--tenant"} if verb.startswith("db ") else set()
    if verb in ("check", "notify test"):
        # They need no store.
        lacks = {"--store", "--tenant", "--unsafe-durability"}
    assert SHARED - {"--help"} - lacks <= options(verb)


def test_help_tells_of_every_verb_and_exit_code(cli: Cli) -> None:
    shown = cli("--help").output
    assert [verb for verb in COMMANDS if not re.search(rf"^  {verb} ", shown, re.M)] == []
    shown_of_db = cli("db", "--help").output
    assert [verb for verb in VERBS if verb.startswith("db ") and f"\n  {verb[3:]} " not in shown_of_db] == []
    assert [code for code, meaning in codes.MEANINGS.items() if f"{code:>3}  {meaning}" not in shown] == []


def test_the_list_of_verbs_cuts_no_sentence(cli: Cli) -> None:
    pages = [cli(*page, "--help").output for page in ((), ("db",), ("audit",), ("notify",))]
    assert [line for page in pages for line in page.splitlines() if line.endswith("...") and line[:2] == "  "] == []


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_page_tells_of_every_verb_and_option(verb: str) -> None:
    assert [one for one in options(verb) - SHARED if f"`{one}" not in SECTIONS[verb.partition(" ")[0]]] == []


def test_the_page_tells_of_shared_options_and_exit_codes_and_no_verb_that_is_not() -> None:
    assert [one for one in SHARED if f"`{one}" not in PAGE] == []
    assert [code for code, meaning in codes.MEANINGS.items() if f"| {code} | {meaning} |" not in PAGE] == []
    assert sorted(SECTIONS) == sorted(COMMANDS)
    assert [verb for verb in VERBS if verb.startswith("db ") and f"| `{verb[3:]}` |" not in SECTIONS["db"]] == []


def examples() -> list[str]:
    shown = [line for verb in VERBS.values() for line in str(verb.epilog).splitlines()]
    shown += [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
    return sorted({line.strip() for line in shown if "outlive " in line})


@pytest.mark.parametrize("line", examples())
def test_examples_can_be_typed(line: str) -> None:
    words = shlex.split(line, comments=True)
    verb, *arguments = words[words.index("outlive") + 1 :]
    if verb not in VERBS:
        verb, *arguments = f"{verb} {arguments[0]}", *arguments[1:]
    VERBS[verb].make_context(verb, arguments)


def test_version_and_completion(cli: Cli, place: Place) -> None:
    assert cli("--version").output == f"outlive {version('outlive')}\n"
    place.env["_OUTLIVE_COMPLETE"] = "source_bash"
    command = Path(sys.executable).with_name("outlive")
    done = subprocess.run([command], env=place.env, capture_output=True, text=True, timeout=60, check=False)
    assert "complete -o default -F _outlive_completion outlive" in done.stdout


def test_the_command_imports_nothing_heavy() -> None:
    script = (
        "import sys, time; before = time.process_time(); import outlive.cli; took = time.process_time() - before; "
        "print(took, *(sorted({'pydantic', 'sqlite3', 'asyncio', 'rich', 'outlive.engine'} & set(sys.modules))))"
    )
    found = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    assert [modules for _, *modules in found] == [[], [], []]
    assert min(float(seconds) for seconds, *_ in found) < 0.3
