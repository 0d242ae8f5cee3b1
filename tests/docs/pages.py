"""The documentation as the tests read it: pages, the program that the examples of a page make up, what it prints.

All `python` blocks of a page, in order, are one program. A comment `<!-- run` … `-->` holds the part of it that a
reader does not need to see. `output` blocks are what the program prints.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]

_BLOCK = re.compile(r"^(?:```(\w+)\n(.*?)^```|<!-- (run)\n(.*?)^-->)$", re.M | re.S)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of one language; `run` parts count as `python`."""
    found: list[str] = []
    for shown, text, hidden, more in _BLOCK.findall(page.read_text("utf-8")):
        if (shown or ("python" if hidden else "")) == language:
            found.append(text or more)
    return found


def program(page: Path) -> str:
    """What the examples of a page make up; empty if it has none."""
    return "\n".join(blocks(page, "python"))


def name(page: Path) -> str:
    """The page as people call it."""
    return page.relative_to(ROOT).as_posix()
