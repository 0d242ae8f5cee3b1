"""A directory of releases with a store, and the command in this process, in that directory."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outlive.cli import app
from tests.replay.releases import Releases

Cli = Callable[..., Result]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in os.environ:
        if name.startswith("OUTLIVE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture(params=["sqlite", "postgres"])
def releases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Releases]:
    """On both stores."""
    url = f"sqlite:///{tmp_path}/outlive.db" if request.param == "sqlite" else request.getfixturevalue("postgres")
    made = Releases(tmp_path, url)
    yield made
    made.forget()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Releases]:
    """On SQLite, for what no store has a part in."""
    made = Releases(tmp_path, f"sqlite:///{tmp_path}/outlive.db")
    yield made
    made.forget()
