"""The linter and type checker settings refuse what the guide says they refuse."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def codes(name: str, source: str) -> set[str]:
    """What ruff, with the project's settings, finds in a file of this name."""
    command = [sys.executable, "-m", "ruff", "check", "--output-format", "json", "--stdin-filename", name, "-"]
    done = subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True, check=False)
    return {found["code"] for found in json.loads(done.stdout)}


@pytest.mark.parametrize(
    "line",
    [
        "import time; time.time()",
        "import time; time.sleep(1)",
        "from time import sleep",
        "import asyncio; asyncio.sleep(1)",
        "from datetime import datetime; datetime.now()",
        "import datetime; datetime.datetime.now(datetime.UTC)",
        "from uuid import uuid4",
        "import uuid; uuid.uuid4()",
        "import random",
        "from random import choice",
    ],
)
@pytest.mark.parametrize("name", ["src/outlive/engine/run.py", "tests/engine/test_run.py", "examples/dunning/demo.py"])
def test_time_and_chance_are_arguments(name: str, line: str) -> None:
    assert "TID251" in codes(name, f'"""Sample."""\n\n{line}\n')


@pytest.mark.parametrize("name", ["src/outlive/model/clock.py", "tests/processes/waiting.py"])
def test_the_named_files_may_use_the_real_clock(name: str) -> None:
    assert "TID251" not in codes(name, '"""Sample."""\n\nimport time\n\ntime.sleep(1)\n')


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("C901", "def f(x):\n" + "".join(f"    if x == {n}:\n        x += 1\n" for n in range(13))),
        ("BLE001", "try:\n    print()\nexcept Exception:\n    pass\n"),
        ("ERA001", "# x = compute(1)\n"),
        ("FIX002", "# TODO: later\n"),
        ("D100", "x = 1\n"),
        ("D101", '"""Sample."""\n\n\nclass Lease:\n    epoch: int\n'),
        ("TID252", '"""Sample."""\n\nfrom . import run\n'),
        ("TRY002", '"""Sample."""\n\nraise Exception("what")\n'),
        ("PGH003", "x = 1  # type: ignore\n"),
    ],
)
def test_a_rule_of_style_is_on(code: str, source: str) -> None:
    assert code in codes("src/outlive/engine/run.py", source)


def test_the_core_spells_no_any(tmp_path: Path) -> None:
    """The same line is refused in `model` and accepted in `cli`."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for room in ("model", "cli"):
        folder = tmp_path / "src" / "outlive" / room
        folder.mkdir(parents=True)
        (folder / "sample.py").write_text("from typing import Any\n\nx: Any = 1\n", "utf-8")
    command = [sys.executable, "-m", "mypy", "src"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert 'src/outlive/model/sample.py:3: error: Explicit "Any"' in done.stdout
    assert "cli" not in done.stdout


def pyright(root: Path, *arguments: str) -> dict[str, int]:
    """How many errors pyright finds per file, with the settings at `root`."""
    command = [sys.executable, "-m", "pyright", "--outputjson", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    found: dict[str, int] = {}
    for diagnostic in json.loads(done.stdout)["generalDiagnostics"]:
        name = Path(diagnostic["file"]).name
        found[name] = found.get(name, 0) + (diagnostic["severity"] == "error")
    return found


def test_misuses_are_left_to_their_own_settings(tmp_path: Path) -> None:
    """An excluded file is skipped even when it is named, so a test of misuses has to use `checks/misuse.json`."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "checks").mkdir()
    shutil.copy(ROOT / "checks" / "misuse.json", tmp_path / "checks")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "tests" / "typing").mkdir(parents=True)
    for name in ("agents.py", "misuse.py"):
        (tmp_path / "tests" / "typing" / name).write_text('x: int = "a"\n', "utf-8")
    assert pyright(tmp_path) == {"agents.py": 1}
    assert pyright(tmp_path, "tests/typing/misuse.py") == {}
    assert pyright(tmp_path, "-p", "checks/misuse.json") == {"misuse.py": 1}
