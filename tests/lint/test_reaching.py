"""What an agent calls is read too, as far as names lead to it; what steps and tools do is their own business."""

import sys
from pathlib import Path

import pytest

from outlive.errors import UnknownAgent
from outlive.lint.finding import Report
from tests.lint.conftest import Lint, agent, cases, codes

STAMP = "import time\n\ndef stamp() -> float:\n    return time.time()\n"


@pytest.mark.parametrize(("kind", "before", "body"), cases("reaching"))
def test_it_gets_there_or_not(lint: Lint, kind: str, before: str, body: str) -> None:
    assert codes(lint(agent(body, before))) == (["clock"] if kind == "found" else [])


CHAINED = """
import time


def stamp() -> float:
    return time.time()


def priced(what: str) -> str:
    return f"{what} at {stamp()}"


@app.agent()
async def sell(run: Run[None], what: str) -> str:
    return priced(what)


@app.agent()
async def buy(run: Run[None], what: str) -> str:
    stamp()
    return priced(what)
"""


def test_a_finding_says_where_it_is_and_how_each_agent_gets_there(lint: Lint) -> None:
    (one,) = lint(CHAINED).findings
    place = one.found.place
    assert (Path(place.file).suffix, place.line, place.column) == (".py", 10, 12)
    assert one.found.source == "return time.time()"
    assert one.found.what == "time.time()"
    assert "run.now()" in one.found.advice
    ways = {name: [(hop.function, hop.place.line) for hop in chain] for name, chain in one.chains.items()}
    # The shortest.
    assert ways == {
        "buy": [("buy", 24), ("stamp", 10)],
        "sell": [("sell", 19), ("priced", 14), ("stamp", 10)],
    }


def test_only_the_agents_that_are_named_are_read(lint: Lint) -> None:
    report = lint(CHAINED, agents=("sell",))
    assert (report.agents, report.functions, list(report.findings[0].chains)) == (["sell"], 3, ["sell"])
    with pytest.raises(UnknownAgent):
        lint(CHAINED, agents=("sold",))


def test_functions_that_call_each_other_in_a_ring_end(lint: Lint) -> None:
    before = STAMP + "def a(n):\n    return b(n)\n\ndef b(n):\n    return a(n) if n else stamp()\n"
    assert codes(lint(agent("return a(1)", before))) == ["clock"]


def test_what_is_shared_is_told_from_what_is_made_anew(lint: Lint) -> None:
    before = "class Box:\n    def __init__(self) -> None:\n        self.all: list[str] = []\n"
    before += (
        "    def put(self, one: str) -> None:\n        self.all.append(one)\n        self.last = one\n\nBOX = Box()\n"
    )
    assert codes(lint(agent("mine = Box()\nmine.put(given)", before))) == []
    assert codes(lint(agent("BOX.put(given)", before))) == ["global", "global"]


def test_other_modules_are_read_where_they_are_the_users(
    lint: Lint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in (("here", "lint_own"), ("site-packages", "lint_installed")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(STAMP, "utf-8")
        monkeypatch.syspath_prepend(tmp_path / folder)
    assert codes(lint(agent("import lint_own\nreturn lint_own.stamp()"))) == ["clock"]
    assert codes(lint(agent("from lint_own import stamp as s\nreturn s()"))) == ["clock"]
    assert codes(lint(agent("from lint_installed import stamp\nreturn stamp()"))) == []
    assert (
        codes(lint(agent("try:\n    import lint_missing\nexcept ImportError:\n    return 1\nreturn lint_missing.x()")))
        == []
    )
    for name in ("lint_own", "lint_installed"):
        sys.modules.pop(name)


def test_the_package_of_an_agent_is_the_users_although_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lint: Lint
) -> None:
    package = tmp_path / "site-packages" / "lint_shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "clock.py").write_text(STAMP, "utf-8")
    text = "from outlive import Run\nfrom lint_shop.clock import stamp\n\n"
    text += "async def sells(run: Run[None], given: str) -> float:\n"
    (package / "agents.py").write_text(f"{text}    return stamp()\n", "utf-8")
    monkeypatch.syspath_prepend(package.parent)
    report = lint("from lint_shop.agents import sells\n\napp.agent()(sells)\n")
    assert codes(report) == ["clock"]
    for name in ("lint_shop", "lint_shop.clock", "lint_shop.agents"):
        sys.modules.pop(name)


def test_what_a_worker_opens_is_known_by_the_type_of_the_run(lint: Lint) -> None:
    text = """
import httpx
from dataclasses import dataclass

@dataclass
class Deps:
    web: httpx.AsyncClient

@app.agent()
async def work(run: Run[Deps], url: str) -> str:
    return (await run.deps.web.get(url)).text
"""
    (one,) = lint(text).findings
    assert (one.found.code, one.found.what) == ("network", "httpx.AsyncClient.get()")


def test_annotations_that_cannot_all_be_resolved_leave_the_others(lint: Lint) -> None:
    text = """from __future__ import annotations
from typing import TYPE_CHECKING
from pathlib import Path

if TYPE_CHECKING:
    from nowhere import Nothing

def read(path: Path, more: Nothing) -> str:
    return path.read_text()

@app.agent()
async def work(run: Run[None], given: str) -> str:
    return read(Path(given), None)
"""
    assert codes(lint(text)) == ["file"]


def test_a_run_without_annotation_is_known_as_one(lint: Lint) -> None:
    text = "async def other(run, given: str) -> str:\n    return list(await run.step(tags))\n"
    text += "\ndef tags() -> set[str]:\n    return set()\n\napp.agent()(other)\n"
    assert codes(lint(text)) == ["set-order"]


def test_an_agent_of_a_framework_has_no_function_to_read(lint: Lint) -> None:
    text = "from pydantic_ai import Agent\n\nmade = app.agent(Agent('test', name='writer', defer_model_check=True))\n"
    report = lint(text)
    assert (report.frameworks, report.agents, report.functions, report.findings) == (["writer"], [], 0, [])


def test_a_function_without_source_is_named(lint: Lint) -> None:
    text = "space = {'__name__': __name__}\nexec(compile('def gone(): pass', __file__, 'exec'), space)\n"
    text += "gone = space['gone']\n"
    report: Report = lint(agent("return gone()", text))
    assert [one.rpartition(".")[2] for one in report.unread] == ["gone"]


def test_an_expression_as_deep_as_no_person_writes_is_named(lint: Lint) -> None:
    before = f"def deep(given: str) -> str:\n    return {' + '.join(['given'] * 900)}\n\n{STAMP}"
    report = lint(agent("return deep(given) + str(stamp())", before))
    assert [one.rpartition(".")[2] for one in report.unread] == ["deep"]
    assert codes(report) == ["clock"]
