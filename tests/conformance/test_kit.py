"""The kit tells a careless engine what it does wrong, in every word; and our own what it does right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance import adapter
from conformance.runner import Result, play, play_all
from conformance.scenarios import SCENARIOS
from conformance.servers import forget_template

ROWS = {row.name: row for row in adapter.rows()}

# What each mistake has to earn: no word of the kit's may be out of its reach.
EARNED = {
    ("careless-eager", "killed-after-act"): "duplicate",
    ("careless-eager", "killed-after-record"): "safe",
    ("careless-forgetful", "killed-before-send"): "lost",
    ("careless-forgetful", "killed-after-act"): "silent",
    ("careless-locked", "killed-after-record"): "stuck",
    ("careless-frank", "killed-after-act"): "visible-unknown",
    ("careless-keyed", "killed-after-act"): "safe",
    ("careless-keyed", "killed-in-rollback"): "not offered",
}
OWN = {
    ("outlive-sqlite-keys", "killed-after-act"): "safe",
    ("outlive-sqlite-nothing", "answer-lost"): "visible-unknown",
    ("outlive-postgres-asked", "killed-after-act"): "safe",
}


@pytest.fixture(scope="module")
def results() -> Iterator[dict[tuple[str, str], Result]]:
    """All at a time: they mostly wait for each other's processes."""
    pairs = [(ROWS[row], SCENARIOS[scenario]) for row, scenario in [*EARNED, *OWN]]
    found = play_all(pairs, 4, lambda result: None)
    yield {(one.row, one.scenario): one for one in found}
    forget_template()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("row", "scenario"), EARNED, ids=str)
def test_a_careless_engine_is_told_so(results: dict[tuple[str, str], Result], row: str, scenario: str) -> None:
    found = results[row, scenario]
    assert found.word == EARNED[row, scenario], found


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("row", "scenario"), OWN, ids=str)
def test_our_own_engine(results: dict[tuple[str, str], Result], row: str, scenario: str) -> None:
    found = results[row, scenario]
    assert found.word == OWN[row, scenario], found


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("row", "scenario", "word"),
    [
        ("careless-eager", "approved-twice", "duplicate"),
        ("careless-eager", "frozen-with-a-request-under-way", "duplicate"),
        ("careless-eager", "argument-changed", "silent"),
        ("careless-eager", "approved-one-thing-and-another-is-done", "silent"),
        ("careless-eager", "call-inserted", "duplicate"),
        ("careless-eager", "two-thousand-turns", "safe"),
        ("careless-locked", "killed-in-approval-wait", "stuck"),
    ],
)
def test_a_careless_engine_is_told_more(row: str, scenario: str, word: str) -> None:
    found = play(ROWS[row], SCENARIOS[scenario], turns=20)
    assert found.word == word, found


def test_a_scenario_that_does_not_come_about_is_no_verdict() -> None:
    row = ROWS["careless-eager"]
    found = play(adapter.without_worker(row), SCENARIOS["killed-after-act"])
    assert found.word == "no verdict"


def test_the_kit_stands_alone() -> None:
    for file in adapter.HERE.rglob("*.py"):
        place = file.relative_to(adapter.HERE).parts
        if place[0] != ".envs" and place[:2] not in (("adapters", "outlive"), ("adapters", "langgraph_outlive")):
            text = file.read_text("utf-8")
            assert "import outlive" not in text and "from outlive" not in text and "from tests" not in text, file
