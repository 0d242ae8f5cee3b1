"""Reads files of named SQL statements: `-- name: append`, a line that says what for, the statement.

SQL is kept in such files, one set per adapter, so that it can be read, explained and tested as it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.M)


def load(path: Path) -> dict[str, str]:
    """The statements of a file by name, without their comments (they would be parsed again at each preparation)."""
    parts = _NAME.split(path.read_text("utf-8"))[1:]
    named = dict(zip(parts[::2], map(_bare, parts[1::2]), strict=True))
    if len(named) * 2 != len(parts):
        raise ValueError(f"{path.name} names a statement twice")
    return named


def _bare(text: str) -> str:
    return "\n".join(_code(text)).strip().removesuffix(";")


def _code(text: str) -> Iterator[str]:
    for line in text.splitlines():
        code = line.split("--")[0].rstrip()
        if code:
            yield code
