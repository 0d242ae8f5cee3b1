"""Applications that are written into a file for one test, and what the linter says about them."""

import importlib.util
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from outlive import Outlive
from outlive.app.check import CODES, check
from outlive.app.settings import Settings
from outlive.lint.finding import Report

PRELUDE = """
from outlive import Operation, Outlive, Run

app: Outlive[None] = Outlive()
"""
# Each module has a name of its own, so that nothing is known of it from the test before.
_numbers = itertools.count()

Lint = Callable[..., Report]
CASES = Path(__file__).parent / "cases"


def cases(name: str) -> list[ParameterSet]:
    """The cases of a file: whether it is to be found or fine, what comes before the agent, and the agent's body."""
    text = (CASES / f"{name}.txt").read_text("utf-8")
    found = []
    for place, one in enumerate(text.removeprefix("=== ").split("\n=== ")):
        kind, _, rest = one.partition("\n")
        before, parted, body = rest.partition("---\n")
        found.append(pytest.param(kind, before if parted else "", body if parted else rest, id=f"{kind}-{place}"))
    return found


def agent(body: str, before: str = "") -> str:
    """A module with one agent, whose body this is; what it needs comes before."""
    head = "@app.agent()\nasync def work(run: Run[None], given: str) -> object:\n"
    return f"{textwrap.dedent(before)}\n\n{head}{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"


def codes(report: Report) -> list[str]:
    """The codes of what was found, notes left out."""
    return [one.found.code for one in report.findings]


@pytest.fixture
def lint(tmp_path: Path) -> Iterator[Lint]:
    """Lint the text of a module; its first lines are there already."""
    made: list[str] = []

    def run(text: str, *, agents: tuple[str, ...] = ()) -> Report:
        name = f"linted{next(_numbers)}"
        file = tmp_path / f"{name}.py"
        future = "from __future__ import annotations\n"
        first = future if text.startswith(future) else ""
        file.write_text(first + PRELUDE + text.removeprefix(first), "utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        app: Outlive[object] = module.app
        return check(app, Settings(app=f"{name}:app"), agents, frozenset(CODES))

    yield run
    for name in made:
        del sys.modules[name]
