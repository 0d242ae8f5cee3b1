"""The page of results is what was recorded, no more."""

from __future__ import annotations

from conformance import adapter
from conformance.report import PAGE, recorded, text
from conformance.runner import RESULTS


def test_the_page_is_what_the_results_say() -> None:
    assert PAGE.read_text("utf-8") == text(recorded(RESULTS)), "run: python -m conformance report"


def test_every_word_of_a_row_comes_from_a_run_of_it() -> None:
    known = recorded(RESULTS)
    assert {one["row"] for one in known} <= {row.name for row in adapter.rows()}
    for one in known:
        for name, result in one["results"].items():
            assert result["words"][-1] == result["word"], (one["row"], name)
            assert result["word"] != "no verdict", (one["row"], name)
            assert result["happened"] or result["word"] == "not offered", (one["row"], name)


def test_a_bad_word_about_another_engine_counts_when_it_was_seen_twice() -> None:
    row = {"row": "x-plain", "adapter": "x", "engine": "X", "about": "", "service": "nothing", "same_as": ""}
    once = {"word": "lost", "words": ["lost"], "why": "gone", "notes": [], "when": "", "version": ""}
    twice = once | {"words": ["safe", "lost"]}
    for result, shown in ((once, "(seen once)"), (twice, "**lost** (1 of 2)")):
        page = text([row | {"results": {"answer-lost": result}}])
        assert f"| answer-lost | {shown} |" in page
        assert ('"gone"' in page) == (result is twice)
    ours = text([row | {"adapter": "outlive", "results": {"answer-lost": once}}])
    assert "| answer-lost | **lost** |" in ours
