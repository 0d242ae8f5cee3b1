"""What is recorded of a row: every word, the evidence of the worst, and what is to be looked at again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import adapter
from conformance.__main__ import main
from conformance.judge import Word
from conformance.runner import Result, bad_once, keep, recorded
from conformance.scenarios import SCENARIOS

ROW = next(row for row in adapter.rows() if row.name == "dbos-keys")
SCENARIO = SCENARIOS["answer-lost"]


def result(word: Word) -> Result:
    return Result(ROW.name, SCENARIO.name, word, f"was {word}", [], ["0.0 r1 started"], [], [], {}, [], 1.0, "1")


def kept(folder: Path, *words: Word) -> dict[str, object]:
    for word in words:
        keep(result(word), ROW, folder)
    found: dict[str, object] = json.loads((folder / f"{ROW.name}.json").read_text("utf-8"))["results"][SCENARIO.name]
    return found


def test_every_word_is_kept_and_the_evidence_of_the_worst(tmp_path: Path) -> None:
    found = kept(tmp_path, "safe", "lost", "visible-unknown")
    assert found["words"] == ["safe", "lost", "visible-unknown"]
    assert (found["word"], found["why"]) == ("lost", "was lost")


def test_what_did_not_come_about_is_not_kept(tmp_path: Path) -> None:
    keep(result("no verdict"), ROW, tmp_path)
    assert not recorded(ROW, SCENARIO, tmp_path)
    kept(tmp_path, "safe", "no verdict")
    assert recorded(ROW, SCENARIO, tmp_path)


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["safe"], False),
        (["stuck"], True),
        (["safe", "stuck"], True),
        (["stuck", "lost"], False),
        (["safe", "stuck", "safe"], False),
    ],
    ids=str,
)
def test_what_was_bad_once_is_looked_at_again(tmp_path: Path, words: list[Word], again: bool) -> None:
    kept(tmp_path, *words)
    assert bad_once(ROW, SCENARIO, tmp_path) is again


def test_nothing_is_looked_at_again_that_was_never_seen(tmp_path: Path) -> None:
    assert not bad_once(ROW, SCENARIO, tmp_path)


def test_a_row_stands_for_another_one_where_they_do_not_differ() -> None:
    other = replace(ROW, same_as="dbos-plain", differs=("crashes",))
    assert SCENARIOS["killed-after-act"].same_as(other) == ""
    assert SCENARIOS["argument-changed"].same_as(other) == "dbos-plain"
    assert SCENARIOS["argument-changed"].same_as(replace(other, same_as="")) == ""


def test_every_row_that_another_one_stands_for_has_that_one() -> None:
    every = list(adapter.rows())
    groups = {scenario.group for scenario in SCENARIOS.values()}
    for row in every:
        assert not row.same_as or row.same_as in {one.name for one in every if one.adapter == row.adapter}, row.name
        assert set(row.differs) <= groups, row.name


def test_an_engine_whose_environment_is_missing_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adapter, "ENVS", tmp_path)
    assert main(["run", "--row", "dbos-keys", "--scenario", "answer-lost"]) == 2
    assert "python -m conformance env dbos" in capsys.readouterr().err


def test_only_an_adapter_has_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err
