"""A place of its own for each test: in this process (`cli`) or with real processes (`place`)."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outlive.cli import app
from tests.cli.waiting import Place

ROOT = Path(__file__).parents[2]
Cli = Callable[..., Result]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, ROOT)
    yield made
    made.close()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command in this process, in an empty directory, with the application of these tests."""
    for name in os.environ:
        if name.startswith("OUTLIVE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AGENTS_APP_DIR", str(tmp_path))
    monkeypatch.setenv("OUTLIVE_APP", "tests.cli.agents_app:app")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=input)

    return run
