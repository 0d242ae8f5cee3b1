"""Logs that releases have recorded replay to the same end with the present code, and nothing of them is executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.tape import LOGS, Token, Untouchable, lay

RECORDED = sorted(LOGS.glob("*/*.jsonl"))


def test_there_is_something_recorded() -> None:
    assert len(RECORDED) > 20


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_a_recorded_log_replays_to_its_end(path: Path, tmp_path: Path) -> None:
    deck, drafts = await lay(path, tmp_path)
    try:
        before = len(await deck.log())
        await deck.play(deck.worker(Untouchable(), Token()))
        log = await deck.log()
        assert deck.executed == [], "recorded calls were executed again"
        added = [entry for entry in log[before:] if entry.kind != "claimed"]
        assert [(entry.kind, entry.body, entry.payload) for entry in added] == [
            (drafts[-1].kind, drafts[-1].body, drafts[-1].payload)
        ]
    finally:
        await deck.store.close()
