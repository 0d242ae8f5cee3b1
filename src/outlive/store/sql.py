"""Reads files of named SQL statements: `-- name: append`, a line that says what for, the statement.

SQL is kept in such files, one set per adapter, so that it can be read, explained and tested as it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_PART = re.compile(r"\{([a-z_]+)\}")
_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.M)


def load(path: Path) -> dict[str, str]:
    """The statements of a file by name, without their comments (they would be parsed again at each preparation)."""
    parts = _NAME.split(path.read_text("utf-8"))[1:]
    named = dict(zip(parts[::2], map(_bare, parts[1::2]), strict=True))
    if len(named) * 2 != len(parts):
        raise ValueError(f"{path.name} names a statement twice")
    return named


def woven(whole: str, named: Mapping[str, str], words: Mapping[str, str]) -> str:
    """A statement of others: each name in braces is replaced by its statement, then each of `words` by its meaning."""
    text = _PART.sub(lambda found: named.get(found[1], found[0]), whole)
    word = "|".join(rf"{re.escape(one)}\b" for one in words)
    return re.sub(word, lambda found: words[found[0]], text) if words else text


def _bare(text: str) -> str:
    return "\n".join(_code(text)).strip().removesuffix(";")


def _code(text: str) -> Iterator[str]:
    for line in text.splitlines():
        code = line.split("--")[0].rstrip()
        if code:
            yield code
