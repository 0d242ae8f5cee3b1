"""Logs that releases have recorded replay to the same end with the present code, and nothing of them is executed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from outlive.log.entry import Draft, Entry
from tests.corpus.tape import LOGS, Token, Untouchable, lay

RECORDED = sorted(LOGS.glob("*/*.jsonl"))


def said(one: Entry | Draft) -> tuple[str, str, str | None]:
    """What an entry says, but for the line of code that it names: lines move."""
    return one.kind, re.sub(r',"at":"[^"]*"', "", one.body), one.payload


def test_there_is_something_recorded() -> None:
    assert len(RECORDED) > 20


def test_what_people_do_to_runs_is_among_it() -> None:
    kinds = {json.loads(line).get("kind") for path in RECORDED for line in path.read_text().splitlines()}
    assert kinds >= {"cancelling", "adopted", "proposed", "decided", "later", "completion", "shared"}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_recorded_log_replays_to_its_end(path: Path, tmp_path: Path) -> None:
    deck, drafts = await lay(path, tmp_path)
    try:
        before = len(await deck.log())
        await deck.play(deck.worker(Untouchable(), Token()))
        log = await deck.log()
        assert deck.executed == [], "recorded calls were executed again"
        added = [entry for entry in log[before:] if entry.kind != "claimed"]
        assert [said(entry) for entry in added] == [said(drafts[-1])]
    finally:
        await deck.store.close()
