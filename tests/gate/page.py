"""The page of changes, from the cases: what the gate says and what happens, for who plans a deploy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from tests.gate.case import Case, Expected
from tests.gate.cases import CASES, ROOMS, Room

PAGE = Path(__file__).parents[2] / "docs" / "deploys-faults.md"
_HEAD = """# Changes

What becomes of a run in flight when the code of its agent changes. Each line is a change that was made to an agent, a
place where a run of the old release stood, what [the gate](gate.md) said of it then, and what live workers of the new
release did: {cases} cases, played by [tests](../tests/gate), which hold the two against each other. This page is
written from them by `python -m tests.gate report`.

- *same* and *compatible*: the run goes on. Nothing that is recorded is done again.
- *needs adoption*: the run stops before it does anything. It goes on when a person has accepted the difference, by
  `outlive adopt` with what stands there, one after the other.
- *breaks*: the run stops before it does anything, or no worker of the new release takes it. It waits: for the old
  release, or for code that fits.

*It* is what was changed. [Versions](versions.md) says what to do where a change breaks runs.
"""
_WRONG = """
## What is not as it should be

Tests hold these too, and fail when they are mended and still told of here.

"""


def text() -> str:
    """The page."""
    parts = [_HEAD.format(cases=len(CASES)), *map(_room, ROOMS)]
    wrong = [case for case in CASES if case.expected.wrong]
    if wrong:
        parts.append(_WRONG + "\n".join(_told(what, list(cases)) for what, cases in _by_wrong(wrong)) + "\n")
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def write() -> int:
    """Into docs."""
    PAGE.write_text(text(), "utf-8")
    return 0


def _room(room: Room) -> str:
    lines = [f"## {room.title}", "", room.says, ""]
    lines += ["| the change | where the run stands | the gate says | the run |", "|---|---|---|---|"]
    for (kind, change), cases in groupby(room.cases, key=lambda case: (case.kind, case.change)):
        for said, alike in _alike(cases):
            places = "; ".join(dict.fromkeys(case.stand.says for case in alike))
            lines.append(f"| {kind}: {change} | {places} | {said} |")
    return "\n".join(lines) + "\n"


def _alike(cases: Iterable[Case]) -> list[tuple[str, list[Case]]]:
    """By what comes of them, in the order in which that comes first."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(_said(case.expected), []).append(case)
    return list(found.items())


def _said(expected: Expected) -> str:
    mark = " (not yet, see below)" if expected.wrong else ""
    return f"*{expected.verdict}*{mark} | {_live(expected)}{' ' + expected.says if expected.says else ''}"


def _live(expected: Expected) -> str:
    if expected.how == "unclaimed":
        return "is not taken."
    if expected.how == "goes on" and expected.status == "failed":
        return "goes on, and fails."
    if expected.how != "diverges":
        return "goes on."
    if not expected.has:
        return "stops."
    asks = "it otherwise" if expected.asks == expected.has else _code(expected.asks)
    differs = f"stops at {_code(expected.has)}: the code asks for {asks}."
    if not expected.adopt:
        return differs
    ways = ", ".join(f"`--{how}`" for how in expected.adopt)
    return f"{differs} Goes on after {ways}."


def _code(text: str) -> str:
    """Calls as code, and what is said in words as it is."""
    if text.startswith(("the end", "a result", "a state", "another", "a tool")):
        return re.sub(r"(\w+\()$", r"`\1…)`", text.rstrip(": "))
    return f"`{text}…)`" if text.count("(") > text.count(")") else f"`{text}`"


def _by_wrong(cases: list[Case]) -> list[tuple[str, list[Case]]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.expected.wrong, []).append(case)
    return list(found.items())


def _told(what: str, cases: list[Case]) -> str:
    where = "; ".join(f"{case.kind}: {case.change}, *{case.stand.says}*" for case in cases)
    return f"- {what} ({where})"
