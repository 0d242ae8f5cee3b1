"""Traces of how the tree came about are found in any text file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from checks import words

Plant = Callable[[str, str], Path]


@pytest.mark.parametrize(
    "text",
    [
        "See issue 2 for this.",
        "This is Part 3.",
        "Fixes Issue #14",
        "cd /work/main",
        "as ../shared says",
        "engine_rules has it",
        "Written by an AI assistant",
        "Co-Authored-By: somebody",
        "what the brief asks",
        "# TODO: later",
    ],
)
def test_a_trace_is_found(plant: Plant, tmp_path: Path, text: str) -> None:
    plant("docs/some.md", f"A line.\n{text}\n")
    assert [found.split(" ")[0] for found in words.problems(tmp_path)] == ["docs/some.md:2"]


@pytest.mark.parametrize(
    "text",
    ["parts of a whole", "an issuer of 3 cards", "todos_left", "a work/life path", "agents built with AI models"],
)
def test_ordinary_sentences_pass(plant: Plant, tmp_path: Path, text: str) -> None:
    plant("docs/some.md", f"{text}\n")
    plant(".venv/lib/theirs.py", "# TODO: theirs\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    assert words.problems(tmp_path) == []
