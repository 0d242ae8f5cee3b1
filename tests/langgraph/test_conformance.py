"""LangGraph's own conformance tests of checkpointers, on both stores."""

from __future__ import annotations

from pathlib import Path

from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES

from tests.langgraph.conformance import EXPECTED, report_on


async def all_pass(url: str) -> None:
    assert {one.value for one in ALL_CAPABILITIES} == EXPECTED.keys(), "there are capabilities that are not asked for"
    report, traces = await report_on(url)
    assert traces == []
    assert {name: found.tests_passed for name, found in report.results.items()} == EXPECTED
    assert all(found.detected and found.passed and not found.tests_skipped for found in report.results.values())
    assert report.passed_all()


async def test_all_81_pass_on_sqlite(tmp_path: Path) -> None:
    await all_pass(f"sqlite:///{tmp_path}/graphs.db")


async def test_all_81_pass_on_postgres(postgres: str) -> None:
    await all_pass(postgres)
