"""The benchmark runs, with next to no effort and whatever its figures; and its page says what it has to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import logs, machine, page
from bench.__main__ import main, measured
from bench.agents import on_course
from bench.effort import Effort
from bench.figures import Line, Spread, percentile, ratios, short
from bench.idling import count_statements
from bench.measures import APART, MEASURES
from bench.places import place_of
from bench.reasons import REASONS
from bench.recovery import traces
from bench.sequential import serving
from tests.docs.pages import ROOT

LEAST = Effort(rounds=1, share=0.005)
MISSED = Line("step", "sqlite", "a step", " ms", Spread.of([3.0]), Spread.of([1.0]), Spread.of([3.0]), 2.0)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_is_measured_has_a_figure_of_each_round(store: str, request: pytest.FixtureRequest) -> None:
    # Measures run loops of their own: this test has none.
    where = "sqlite" if store == "sqlite" else str(request.getfixturevalue("postgres_server"))
    with place_of(where) as place:
        lines = measured(place, ["append", "step", "operation"], LEAST)
    assert {line.name.partition(",")[0] for line in lines} == {"append", "step", "operation"}
    for line in lines:
        assert line.store == store
        assert line.ratio is not None and len(line.ratio.values) == 1 and min(line.ratio.values) > 0, line.printed()


def test_what_needs_processes_starts_and_ends_them() -> None:
    with place_of("sqlite") as place:
        lines = measured(place, ["throughput", "wake"], LEAST)
    assert [line.name for line in lines] == ["throughput", "wake, p50", "wake, p99"]
    assert all(line.ours.median > 0 and line.floor is not None for line in lines)


def test_what_needs_a_long_run_is_measured_on_a_short_one() -> None:
    with place_of("sqlite") as place:
        lines = measured(place, ["growth", "loading"], LEAST)
    assert [line.name for line in lines] == [
        "growth, turns", "bytes, turns", "growth, no turns", "bytes, no turns", "loading",
    ]  # fmt: skip
    assert all(line.ours.median > 0 for line in lines)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_waits_is_measured_on_a_few(store: str, request: pytest.FixtureRequest) -> None:
    where = "sqlite" if store == "sqlite" else str(request.getfixturevalue("postgres_server"))
    with place_of(where) as place:
        lines = {line.name: line for line in measured(place, ["waiting", "timers"], Effort(rounds=1, share=0.001))}
    assert lines["waiting, loaded"].ours.median == 0
    assert min(lines[f"waiting, {name}"].ours.median for name in ("memory", "wake p50", "wake p99")) > 0
    assert min(lines[f"timers, {name}"].ours.median for name in ("worked off", "starts p50", "starts p99")) > 0


async def test_a_log_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_PAGE", 4)
    with place_of("sqlite") as place:
        async with serving(place.fresh()) as app, on_course(app, "run") as course:
            await course.block(9)
            found = await logs.log_of(app.opened, "run")
            last = await logs.last_step(app.opened, "run")
    assert [entry.seq for entry in found] == list(range(len(found)))
    assert sum(entry.kind == "step" for entry in found) == 9
    assert last == found[-1]


def test_statements_of_sqlite_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    monkeypatch.setattr(sqlite3, "connect", sqlite3.connect)
    counted = count_statements()
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.execute("select 1")
    database.execute("select 2")
    database.close()
    assert counted() == 2


def test_a_line_is_held_against_its_target() -> None:
    assert (MISSED.met, MISSED.target) == (False, "≤ 2.00×")
    assert Line("a", "b", "c", "", Spread.of([2.0])).met is None
    assert Line("a", "b", "c", "", Spread.of([2.0, 3.0, 9.0]), limit=3.0, at_least=True).met is True
    assert "MISSED" in MISSED.printed()


def test_figures_are_short_and_spread_is_shown() -> None:
    assert [short(value) for value in (0, 0.03456, 1.2345, 12.345, 1234.5)] == ["0", "0.0346", "1.23", "12.3", "1,234"]
    assert Spread.of([3.0, 1.0, 2.0]).shown(" ms") == "2.00 ms (1.00–3.00)"
    assert Spread.of([3.0]).shown() == "3.00"
    assert ratios([2.0, 9.0], [1.0, 3.0]).values == (2.0, 3.0)
    assert [percentile(range(1, 201), share) for share in (50, 99)] == [100, 198]


def test_a_miss_needs_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(REASONS, ("step", "sqlite"), raising=False)
    report = page.Report({"date": "2000-01-01"}, 5, 9, (MISSED,))
    assert page.unexplained(report.lines) == ["step, sqlite"]
    assert f"**missed**: {page.NO_REASON}" in page.page(report)
    monkeypatch.setitem(REASONS, ("step", "sqlite"), "the disk is fast")
    assert page.unexplained(report.lines) == []
    (row,) = [line for line in page.page(report).splitlines() if line.startswith("| step |")]
    assert row == ("| step | sqlite | a step | ≤ 2.00× | 1.00 ms | 3.00 ms | 3.00× | **missed**: the disk is fast |")


def test_the_page_can_be_written_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page, "KEPT", tmp_path / "bench.json")
    report = page.Report(
        {"date": "2000-01-01"}, 5, 9, (MISSED, Line("a", "b", "c", "", Spread.of([2.0]), notes=("d",)))
    )
    report.keep()
    assert page.kept() == report


def test_a_page_of_a_busy_machine_says_so() -> None:
    facts = {"date": "2000-01-01"}
    assert page.BUSY in page.page(page.Report(facts, 5, 9, (MISSED,), busy=True))
    assert page.BUSY not in page.page(page.Report(facts, 5, 9, (MISSED,)))


def test_what_others_use_is_told_from_what_we_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for ours, others in ((1.0, 30.0), (4.0, 0.0)):
        # 400 of 1,000 ticks were busy; of 100 ticks a second, ours are as many seconds.
        monkeypatch.setattr(machine, "_ticks", lambda: (0.0, 0.0))
        monkeypatch.setattr(machine, "cpu_of_tree", lambda pid: 0.0)
        found = machine.Bystanders()
        monkeypatch.setattr(machine, "_ticks", lambda: (400.0, 1000.0))
        monkeypatch.setattr(machine, "cpu_of_tree", lambda pid, used=ours: used)
        assert found.share() == others


def test_the_page_of_a_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--write", "step"], ["--write", "--quick"], ["nothing"]):
        with pytest.raises(SystemExit):
            main(words)
    assert "no such measure: nothing" in capsys.readouterr().err


def test_lines_that_steps_left_are_read(tmp_path: Path) -> None:
    (tmp_path / "steps").write_text("0 17 1.5\n1 18 2.5\n", "utf-8")
    assert [(one.number, one.pid, one.at) for one in traces(tmp_path / "steps")] == [(0, 17, 1.5), (1, 18, 2.5)]


def test_the_page_has_every_measure_on_both_stores() -> None:
    text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+)[^|]* \| (sqlite|postgres) \|", text, re.M)
    assert set(rows) >= {(name, store) for name in MEASURES.keys() - APART for store in ("sqlite", "postgres")}
    assert page.NO_REASON not in text
    assert page.BUSY not in text
