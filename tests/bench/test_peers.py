"""Engines beside ours: a small one of ours is really measured; what the page says is what is recorded, the bad too."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers import page, picture, speech
from bench.peers.__main__ import main, measured
from bench.peers.measures import LEAST, Sizes, gap, lines
from bench.peers.results import Figure, Report, Trouble, recorded
from bench.peers.roster import ENGINES
from bench.peers.scene import Failed, scene_of
from bench.peers.subjects import SUBJECTS, rows

BY_NAME = {engine.name: engine for engine in ENGINES}
SUBJECT = {subject.name: subject for subject in SUBJECTS}
FACTS = {"date": "2000-01-01", "rounds": "3", "minutes": "9", "other processes": "2 % of the processors"}
SIZES = {name: getattr(LEAST, name) for name in Sizes.__dataclass_fields__}


def figures(engine: str, measure: str, *values: float, floor: float | None = 1.0) -> list[Figure]:
    return [Figure(engine, measure, number, value, floor) for number, value in enumerate(values, start=1)]


REPORT = Report(
    FACTS,
    {"absurd": {"absurd-sdk": "0.5.1"}},
    SIZES,
    (
        *figures("outlive-sqlite", "step", 3.0, 2.0, 4.0),
        *figures("outlive-sqlite", "operation", 6.0, 6.0, 6.0),
        *figures("outlive-sqlite", "throughput", 500.0, floor=1000.0),
        *figures("absurd", "step", 2.0, 2.5, 1.5),
        *figures("absurd", "throughput", 250.0, floor=1000.0),
        *figures("temporal", "step", 50.0),
        *figures("outlive-sqlite", "memory", -1.0, floor=None),
        *figures("temporal", "memory", 900.0, floor=None),
    ),
    (Trouble("temporal", "recovery", 2, "it said nothing"),),
)


def test_one_of_ours_is_measured_beside_its_floor() -> None:
    small = replace(LEAST, starts=1, waiting=2, wakes=1)
    report = measured([BY_NAME["outlive-sqlite"]], 1, small)
    assert report.troubles == ()
    found = {one.measure: one for one in report.figures}
    assert set(found) == {subject.name for subject in SUBJECTS} | {"again"}
    for name in ("step", "operation", "throughput", "start", "wake", "recovery", "storage"):
        floor = found[name].floor
        assert found[name].value > 0 and floor is not None and floor > 0, name
    # What was durable before the worker died is not done again: at most the one that it was at.
    assert found["again"].value <= 1
    assert report.versions["outlive-sqlite"]["outlive"]


def test_a_program_that_fails_says_so_and_gives_no_figure(tmp_path: Path) -> None:
    with scene_of(BY_NAME["outlive-sqlite"], "sqlite", "", tmp_path / "one") as scene, scene.player("client") as client:
        with pytest.raises(Failed, match="KeyError: 'leap'"):
            client.ask("leap")
        client.kill()
        with pytest.raises(Failed, match="Broken pipe|ended with -9"):
            client.ask("memory")


def test_an_engine_that_is_not_there_is_trouble_and_no_figure() -> None:
    absent = replace(BY_NAME["outlive-sqlite"], program="nothing")
    report = measured([absent], 1, LEAST)
    assert report.figures == ()
    assert [(one.engine, one.measure) for one in report.troubles] == [("outlive-sqlite", "all")]


def test_rows_are_sorted_by_what_they_cost_ours_among_them() -> None:
    step = rows(REPORT, SUBJECT["step"])
    assert [row.engine.name for row in step] == ["absurd", "outlive-sqlite", "temporal"]
    assert [row.ratio.median for row in step if row.ratio] == [2.0, 3.0, 50.0]
    # More is better: the higher one is first.
    assert [row.engine.name for row in rows(REPORT, SUBJECT["throughput"])] == ["outlive-sqlite", "absurd"]
    assert [row.engine.name for row in rows(REPORT, SUBJECT["memory"])] == ["outlive-sqlite", "temporal"]


def test_what_acts_outside_is_a_step_to_those_who_have_nothing_of_their_own_for_it() -> None:
    found = {row.engine.name: row.value.median for row in rows(REPORT, SUBJECT["operation"])}
    assert found == {"absurd": 2.0, "outlive-sqlite": 6.0, "temporal": 50.0}


def test_who_is_better_than_ours_is_named_at_the_top() -> None:
    text = page.page(REPORT)
    assert "| [A step](#a-step) | Outlive, SQLite 3.00× | Absurd, PostgreSQL 2.00× |" in text
    assert "| [Throughput](#throughput) | Outlive, SQLite 0.500× | nobody |" in text
    assert text.index("## Who is better than ours") < text.index("## A step")


def test_what_has_no_figure_has_a_reason() -> None:
    text = page.page(REPORT)
    assert "- temporal, recovery, round 2: it did not come to an end." in text
    assert "- pydantic-ai on DBOS, PostgreSQL, wake: as DBOS starts and wakes." in text


def test_a_busy_machine_is_owned_up_to() -> None:
    busy = replace(REPORT, facts=FACTS | {"other processes": "31 % of the processors"})
    assert "**The machine was not idle**: other processes had 31 %" in page.page(busy)
    assert "not idle" not in page.page(REPORT)


def test_a_first_look_is_called_one() -> None:
    assert "**There was only one round**" in page.page(replace(REPORT, facts=FACTS | {"rounds": "1"}))
    assert "There was only" not in page.page(REPORT)


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    REPORT.keep(tmp_path / "peers.json")
    assert recorded(tmp_path / "peers.json") == REPORT


def test_later_rounds_come_after_those_that_are_recorded() -> None:
    later = replace(REPORT, facts=FACTS | {"date": "2000-01-02", "other processes": "7 % of the processors"})
    both = REPORT.and_then(later)
    assert both.facts == FACTS | {
        "date": "2000-01-02", "rounds": "6", "minutes": "18", "other processes": "7 % of the processors",
    }  # fmt: skip
    assert [one.round for one in both.values("absurd", "step")] == [1, 2, 3, 4, 5, 6]
    assert [one.round for one in both.troubles] == [2, 5]
    with pytest.raises(ValueError, match="versions"):
        REPORT.and_then(replace(later, versions={}))


def test_what_had_no_end_is_measured_again_in_its_place() -> None:
    again = replace(REPORT, figures=(Figure("temporal", "recovery", 1, 12.0, 0.5),), troubles=())
    mended = REPORT.mended("temporal", 2, again)
    assert mended.troubles == ()
    assert [(one.round, one.value) for one in mended.values("temporal", "recovery")] == [(2, 12.0)]
    assert len(mended.figures) == len(REPORT.figures) + 1


def test_the_picture_of_a_report_is_always_the_same() -> None:
    drawn = picture.drawn(REPORT)
    assert drawn == picture.drawn(REPORT)
    assert drawn.startswith(b"<?xml") and b"dc:date" not in drawn


def test_a_part_of_it_is_not_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--keep", "absurd"], ["--more", "--quick"], ["--keep", "--measure", "step"], ["nothing"]):
        with pytest.raises(SystemExit):
            main(words)
    assert "no such engine: nothing" in capsys.readouterr().err


def test_lines_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("1 9 2.5\n0 9 1.5\n2 9 4.5\n", "utf-8")
    assert [one.number for one in lines(tmp_path / "lines")] == [0, 1, 2]
    assert gap(lines(tmp_path / "lines")) == 1500


def test_answers_differ_and_are_about_as_long() -> None:
    found = [speech.text(number) for number in range(50)]
    assert len(set(found)) == 50
    assert all(500 < len(one) < 750 for one in found)
    assert found == [speech.text(number) for number in range(50)]


def test_what_programs_share_needs_nothing_but_python() -> None:
    text = Path(speech.__file__).read_text("utf-8")
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.M))
    assert imported <= set(sys.stdlib_module_names)


def test_every_engine_has_every_figure_or_a_reason() -> None:
    report = recorded()
    expected = report.rounds
    excused = {(one.engine, one.measure) for one in report.troubles}
    for engine in ENGINES:
        for subject in SUBJECTS:
            if engine.has(subject.name) and (subject.name != "operation" or engine.program == "outlive"):
                found = len(report.values(engine.name, subject.name))
                assert found == expected or excused & {(engine.name, subject.name), (engine.name, "all")}, (
                    f"{engine.name}, {subject.name}"
                )
        assert report.versions[engine.name], engine.name


def test_page_and_picture_are_what_is_recorded() -> None:
    report = recorded()
    assert page.PAGE.read_text("utf-8") == page.page(report)
    assert page.PICTURE.read_bytes() == picture.drawn(report)
