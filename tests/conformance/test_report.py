"""The page of results is what was recorded, no more."""

from __future__ import annotations

import pytest

from conformance import adapter
from conformance.judge import WORDS
from conformance.picture import PICTURES, drawings, verdicts
from conformance.report import PAGE, recorded, text
from conformance.runner import RESULTS


def test_the_page_is_what_the_results_say() -> None:
    assert PAGE.read_text("utf-8") == text(recorded(RESULTS)), "run: python -m conformance report"


def test_the_pictures_are_what_the_results_say() -> None:
    for name, drawn in drawings(recorded(RESULTS)).items():
        assert (PICTURES / name).read_text("utf-8") == drawn, f"{name}: run: python -m conformance picture"


def test_a_picture_shows_no_word_that_may_not_be_said() -> None:
    once, twice = _row("x", "lost"), _row("x", "lost", "lost")
    assert verdicts(once, [once])["answer-lost"] == "not offered"
    assert verdicts(twice, [twice])["answer-lost"] == "lost"
    other = twice | {"row": "x-keys", "same_as": "x-plain", "results": {}}
    assert verdicts(other, [twice, other])["answer-lost"] == "lost"
    assert verdicts(other | {"differs": ["crashes"]}, [twice, other])["answer-lost"] == "not offered"


def test_every_word_of_a_row_comes_from_a_run_of_it() -> None:
    known = recorded(RESULTS)
    assert {one["row"] for one in known} <= {row.name for row in adapter.rows()}
    for one in known:
        for name, result in one["results"].items():
            assert result["word"] in result["words"], (one["row"], name)
            assert result["word"] != "no verdict", (one["row"], name)
            assert result["happened"] or result["word"] == "not offered", (one["row"], name)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["lost"], "(seen once)"),
        (["safe", "lost"], "(seen once)"),
        (["lost", "lost"], "**lost** (2 of 2)"),
        (["lost", "safe", "lost"], "**lost** (2 of 3)"),
        (["safe", "lost", "safe"], "safe (2 of 3)"),
        (["duplicate", "stuck", "safe"], "**stuck** (2 of 3)"),
        (["visible-unknown", "safe"], "visible-unknown (1 of 2)"),
    ],
    ids=str,
)
def test_a_bad_word_about_another_engine_counts_when_it_was_seen_twice(words: list[str], shown: str) -> None:
    assert f"| answer-lost | {shown} |" in text([_row("x", *words)])


def test_a_bad_word_about_ourselves_counts_at_once() -> None:
    assert "| answer-lost | **lost** (1 of 2) |" in text([_row("outlive", "safe", "lost")])


def test_what_came_out_once_is_told_with_its_evidence() -> None:
    assert "answer-lost: *lost* once in 3" in text([_row("x", "safe", "lost", "safe")])
    assert "*lost*" not in text([_row("x", "lost")]).split("## Why")[1]


def _row(adapter: str, *words: str) -> dict[str, object]:
    result = {
        "word": min(words, key=WORDS.index),
        "words": words,
        "why": "gone",
        "notes": [],
        "when": "",
        "version": "",
    }
    return {
        "row": "x-plain", "adapter": adapter, "engine": "X", "driven": "", "about": "", "service": "nothing",
        "same_as": "", "differs": [], "results": {"answer-lost": result},
    }  # fmt: skip
