"""The agents of the sweep with changes that nobody has thought about: whatever comes of them, the gate has said it."""

from __future__ import annotations

import ast
import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from outlive.testing.ground import File
from outlive.testing.world import quiet_about_the_dead
from tests.gate.case import Case, Stand, same
from tests.gate.judging import disagree
from tests.gate.play import play_releases
from tests.gate.releases import Release, imported, written
from tests.sweep import corpus

_FILE = Path(corpus.__file__)
_AGENTS = [agent.name for agent in corpus.CORPUS if agent.name not in ("asks_for_its_rollback",)]
# Where the run stands: everything is recorded but its end, or a worker has died behind a first outcome.
_STANDS = [Stand("it has ended", last=True), Stand("a first outcome", dies_after="outcome")]


class _First(ast.NodeTransformer):
    """Something else happens first in each agent."""

    def __init__(self, first: str) -> None:
        self._first = ast.parse(first).body

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        if any("app.agent" in ast.unparse(one) for one in node.decorator_list):
            node.body = [*self._first, *node.body]
        return node


class _Without(ast.NodeTransformer):
    """The first call of each agent that is awaited for itself is gone."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        if any("app.agent" in ast.unparse(one) for one in node.decorator_list):
            calls = [one for one in ast.walk(node) if isinstance(one, ast.Await) and "run." in ast.unparse(one)]
            if calls:
                calls[0].value = ast.parse("asyncio.sleep(0, '')", mode="eval").body
        return node


_CHANGES: dict[str, Callable[[], ast.NodeTransformer]] = {
    "a step more": lambda: _First("await run.step(double, 99)"),
    "a call more": lambda: _First("await run.call(look, 'first')"),
    "another input": lambda: _First("input = input + '!'"),
    "a call less": _Without,
    "nothing": lambda: _First("pass"),
}


def _release(change: str, agent: str, directory: Path) -> Release:
    tree = _CHANGES[change]().visit(ast.parse(_FILE.read_text("utf-8")))
    made = written(ast.unparse(ast.fix_missing_locations(tree)), _FILE, directory)
    return _of(made, agent)


def _of(release: Release, agent: str) -> Release:
    release.module.AGENT, release.module.INPUT, release.module.deps = agent, "inv", release.module.Bank  # type: ignore[attr-defined]  # it is a module of the sweep
    return release


@pytest.mark.parametrize("change", _CHANGES)
async def test_the_gate_has_said_what_becomes_of_agents_of_the_sweep(change: str, tmp_path: Path) -> None:
    quiet_about_the_dead(asyncio.get_running_loop())
    old, numbers, seen = imported(_FILE), itertools.count(), Counter[str]()
    wrong = list[str]()
    new = _release(change, "", tmp_path)
    for agent in _AGENTS:
        for stand in _STANDS:
            case = Case("sweep", f"{change} in {agent}", "", (), stand, same())
            try:
                played = await play_releases(
                    case, _of(old, agent), _of(new, agent), lambda: File(tmp_path / f"{next(numbers)}.db"), tmp_path
                )
            except AssertionError as never:
                assert "does not come to it" in str(never)
                continue
            seen[played.judged.verdict] += 1
            again = played.lived.repeated if played.lived.how != "diverges" else []
            found = [*disagree(played.lived, played.judged), *again]
            if found:
                wrong.append("\n".join([played.told(), *found, *played.lived.log]))
    assert not wrong, "\n\n".join(wrong)
    assert sum(seen.values()) > 50, seen
    if change == "nothing":
        assert set(seen) <= {"same", "compatible"}, seen
    else:
        assert seen["breaks"] + seen["needs adoption"] > 15, seen
