"""The public surface under mypy and pyright: agents as one writes them pass, each misuse is refused by both."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.typing.shop import front
from tests.typing.shop.app import AGENTS, app

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MISUSE = HERE / "misuse.py"


def complaints(module: str, pattern: str, *arguments: str) -> set[tuple[str, int]]:
    """Names of files and numbers of lines that a checker finds an error in."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = {(Path(file).name, int(line)) for file, line in re.findall(pattern, done.stdout, re.M)}
    assert bool(found) == bool(done.returncode), done.stdout + done.stderr
    return found


def mypy(path: Path) -> set[tuple[str, int]]:
    return complaints("mypy", r"^(\S+\.py):(\d+): error:", "--strict", str(path))


def pyright(*arguments: str) -> set[tuple[str, int]]:
    return complaints("pyright", r"^\s*(\S+\.py):(\d+):\d+ - (?:error|warning):", *arguments)


def marked(source: str) -> set[int]:
    """The lines that have to be refused."""
    return {number for number, line in enumerate(source.splitlines(), start=1) if "  # refused: " in line}


def test_agents_pass_mypy() -> None:
    assert mypy(HERE / "shop") == set()


def test_agents_pass_pyright() -> None:
    assert pyright("--warnings") == set()


CHECKERS: dict[str, Callable[[], set[tuple[str, int]]]] = {
    "mypy": lambda: mypy(MISUSE),
    "pyright": lambda: pyright("-p", "checks/misuse.json"),
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_each_misuse_is_refused_and_nothing_else(checker: str) -> None:
    source = MISUSE.read_text("utf-8")
    expected, found = marked(source), {line for name, line in CHECKERS[checker]() if name == MISUSE.name}
    lines = dict(enumerate(source.splitlines(), start=1))
    assert [lines[number] for number in sorted(expected - found)] == [], f"{checker} lets these pass"
    assert [lines[number] for number in sorted(found - expected)] == [], f"{checker} refuses these as well"
    assert len(expected) > 80


def test_what_the_checkers_accept_can_be_registered() -> None:
    app.registry.load()
    assert sorted(app.registry.agents) == ["close_till", "newsletter", "purchase", "quote", "stocktake", "take_back"]
    assert sorted(app.registry.tools) == ["collect", "order_book", "shelf", "write_count", "write_to"]
    assert len(AGENTS) == len(app.registry.agents)


async def test_what_the_checkers_accept_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLIVE_STORE", f"sqlite:///{tmp_path}/shop.db")
    async with app, app.worker(concurrency=20):
        told = await front.morning()
    assert told == "S-1+S-2; 6 copies, 45.00; 2 letters; 2; succeeded"
