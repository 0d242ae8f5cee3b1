"""Every example in the documentation runs, prints what the page says, and passes mypy at its strictest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, files, name, program

WITH_CODE = [page for page in PAGES if program(page)]
AS_PYTEST = ("-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a reader would: with every setting at its default."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OUTLIVE_")}
    environment |= {"PYTHONWARNINGS": "error", "PYTHONPATH": str(path.parent)}
    command = [sys.executable, *arguments, str(path)]
    return subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def written(page: Path, directory: Path) -> Path:
    """The program of a page, and the files beside it, as files."""
    # Never the name of a package that it imports.
    path = directory / f"page_{page.stem.lower()}.py"
    for file, text in {**files(page), path.name: program(page)}.items():
        assert not (directory / file).exists(), f"{name(page)}: another page has a file {file}"
        (directory / file).write_text(text, "utf-8")
    return path


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    path = written(page, tmp_path)
    is_test = "\ndef test_" in program(page) or "\nasync def test_" in program(page)
    done = run(path, *(AS_PYTEST if is_test else ()))
    assert done.returncode == 0, done.stdout + done.stderr
    printed = blocks(page, "output")
    if printed:
        assert done.stdout == "".join(printed)
    assert printed or is_test, f"{name(page)} has examples, but says nothing of what they print"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_nothing_of_an_example_is_hidden(page: Path) -> None:
    assert "<!--" not in page.read_text("utf-8")


def test_examples_pass_mypy(tmp_path: Path) -> None:
    for page in WITH_CODE:
        written(page, tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    command += [str(path) for path in sorted(tmp_path.glob("*.py"))]
    environment = {**os.environ, "MYPYPATH": f"{tmp_path}:{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_begins_with_at_most_twenty_lines() -> None:
    (first, *_) = blocks(ROOT / "README.md", "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 20
