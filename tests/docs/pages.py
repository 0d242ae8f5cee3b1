"""The documentation as the tests read it: pages, the program that the examples of a page make up, what it prints.

All `python` blocks of a page, in order, are one program, and nothing else is: a reader who copies them has what the
tests run. A block that begins with a comment such as `# billing.py` is a file of its own beside it. `output` blocks are
what the program prints.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_FILE = re.compile(r"# (\w+\.py)\n")


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of one language."""
    return [text for shown, text in _BLOCK.findall(page.read_text("utf-8")) if shown == language]


def program(page: Path) -> str:
    """What the examples of a page make up; empty if it has none."""
    return "\n".join(block for block in blocks(page, "python") if not _FILE.match(block))


def files(page: Path) -> dict[str, str]:
    """The examples that are files of their own, by name."""
    named = [(found[1], block) for block in blocks(page, "python") if (found := _FILE.match(block))]
    assert len(dict(named)) == len(named), f"{name(page)} shows a file twice"
    return dict(named)


def name(page: Path) -> str:
    """The page as people call it."""
    return page.relative_to(ROOT).as_posix()
