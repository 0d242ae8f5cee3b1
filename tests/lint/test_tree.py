"""What is said of the examples, of the agents of the sweep, and of the page that explains it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from outlive.app import operate
from outlive.app.check import CODES, Finding, check
from tests.cli.conftest import Cli, cli
from tests.docs.pages import ROOT, blocks, program
from tests.sweep import corpus

__all__ = ["cli"]

EXAMPLES = {
    "clerk": ([], ["clerk"]), "dunning": (["dunning"], []), "maintainer": ([], ["maintainer"]),
    "research": ([], ["researcher"]), "travel": (["travelling"], []), "web": (["printing", "report"], []),
}  # fmt: skip


def found_in(application: str) -> tuple[list[str], list[str], list[Finding]]:
    app, settings = operate.application(application)
    report = check(app, settings, (), frozenset(CODES))
    assert report.unread == []
    return report.agents, report.frameworks, report.findings


def test_each_example_is_checked() -> None:
    assert {one.parent.name for one in (ROOT / "examples").glob("*/app.py")} == EXAMPLES.keys()


@pytest.mark.parametrize("example", EXAMPLES)
def test_nothing_is_found_in_the_examples(example: str) -> None:
    assert found_in(f"examples.{example}.app:app") == (*EXAMPLES[example], [])


def test_what_agents_of_the_sweep_do_on_purpose_is_found_and_nothing_else() -> None:
    agents, _, findings = found_in("tests.sweep.corpus:app")
    assert len(agents) > 30
    # Tests that have run before in this process may have added agents of theirs.
    own = {name for name, one in corpus.app.registry.agents.items() if one.fn.__module__ == corpus.__name__}
    assert Counter((*one.chains, one.found.code) for one in findings if own.issuperset(one.chains)) == {
        ("swallows_all", "swallows"): 2,
        ("suppresses", "swallows"): 2,
        ("task_group", "concurrency"): 1,
        ("depends_on_hashes", "set-order"): 1,
    }


def test_the_page_shows_what_is_printed(cli: Cli, tmp_path: Path) -> None:
    page = ROOT / "docs" / "determinism.md"
    (tmp_path / "restock.py").write_text(blocks(page, "python")[0], "utf-8")
    (shown,) = blocks(page, "console")
    first, *lines = shown.splitlines()
    done = cli(*first.split()[2:])
    assert (done.exit_code, done.output.splitlines()) == (1, lines)
    assert "def label" in program(page)


def test_the_page_has_every_code() -> None:
    text = (ROOT / "docs" / "determinism.md").read_text("utf-8")
    assert [code for code in CODES if f"`{code}`" not in text] == []
