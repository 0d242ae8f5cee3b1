"""This tree passes its own checks, and `python -m checks` says so with its exit code."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from checks.__main__ import CHECKS, main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", CHECKS)
def test_this_tree_passes(name: str) -> None:
    # In a process of its own: after other tests have overflowed the stack, Python 3.11 may fail to parse.
    done = subprocess.run([sys.executable, "-m", "checks", name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{name}\n"), done.stderr


def test_the_surface_is_what_it_lists() -> None:
    outlive = importlib.import_module("outlive")
    assert len(outlive.__all__) <= 12
    assert all(hasattr(outlive, name) for name in outlive.__all__)


def test_a_problem_is_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path, ["glossary"]) == 1
    assert capsys.readouterr().out.splitlines() == ["glossary: 1 to mend", "  docs/glossary.md is missing"]


def test_no_problem_is_exit_code_nought(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path, ["port", "sql"]) == 0
    assert capsys.readouterr().out.splitlines() == ["port", "sql"]


def test_an_unknown_check_is_a_usage_error(tmp_path: Path) -> None:
    assert main(tmp_path, ["no_such"]) == 2
