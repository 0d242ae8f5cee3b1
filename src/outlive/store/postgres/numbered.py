"""Statements with `$1` for the first of their named parameters, and so on: what the server is sent.

The driver finds the names anew each time in a statement that is longer than it cares to remember, as ours are; that
takes longer than to execute it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_PARAMETER = re.compile(r"%\((\w+)\)s|%%")


@dataclass(frozen=True, slots=True)
class Numbered:
    """A statement as it is sent; the values of its parameters go with it in this order."""

    text: bytes
    parameters: tuple[str, ...]


@lru_cache(maxsize=1024)
def numbered(statement: bytes) -> Numbered:
    """Number the named parameters of a statement; one that is named twice has one number."""
    places: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        parameter = match[1]
        return "%" if parameter is None else f"${places.setdefault(parameter, len(places) + 1)}"

    text = _PARAMETER.sub(number, statement.decode())
    return Numbered(text.encode(), tuple(places))
