"""Every example in the documentation runs, prints what the page says, and passes mypy at its strictest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, name, program

WITH_CODE = [page for page in PAGES if program(page)]


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "OUTLIVE_STORE": f"sqlite:///{path.parent}/outlive.db", "OUTLIVE_LEASE": "2s",
        "PYTHONWARNINGS": "error", "PYTHONPATH": str(path.parent),
    }  # fmt: skip
    command = [sys.executable, *arguments, str(path)]
    return subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(program(page), "utf-8")
    is_test = "\ndef test_" in path.read_text("utf-8") or "\nasync def test_" in path.read_text("utf-8")
    done = run(
        path,
        *(
            ["-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"]
            if is_test
            else []
        ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = blocks(page, "output")
    if printed:
        assert done.stdout == "".join(printed)
    assert printed or is_test, f"{name(page)} has examples, but says nothing of what they print"


def test_examples_pass_mypy(tmp_path: Path) -> None:
    for page in WITH_CODE:
        (tmp_path / f"{page.stem.lower()}.py").write_text(program(page), "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    command += [str(path) for path in sorted(tmp_path.glob("*.py"))]
    environment = {**os.environ, "MYPYPATH": f"{tmp_path}:{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_begins_with_at_most_twenty_lines() -> None:
    (first, *_) = blocks(ROOT / "README.md", "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 20
