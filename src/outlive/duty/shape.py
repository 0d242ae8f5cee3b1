"""What the rows of a bundle may hold: whoever has the key that a bundle carries may have written anything into it.

A row has every column that is asked for, each of its type, with text and numbers that every store can hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import get_args

from outlive.model.ids import unnamed
from outlive.model.operation import Effect, OperationStatus
from outlive.model.run import STATUSES
from outlive.store.bundles import Kind

_MOST_INTEGER = 2**63 - 1

# Columns by type; a ? marks one that may be null.
_INTEGERS: Mapping[Kind, str] = {
    "run": "epoch next_seq created_at updated_at priority wake_at? deadline_at? paused_at? ended_at? lapses "
    "prologue_seq? window_seq? fork_seq? forked repeat_effects",
    "entry": "seq epoch version at",
    "operation": "attempt epoch first_sent_at updated_at not_before duplicates seq",
    "message": "at taken_seq?",
    "divergence": "at",
}
_TEXTS: Mapping[Kind, str] = {
    "run": "id agent version status head input_digest origin queue reason detail principal purpose grants identity? "
    "root? parent? rolls_back? pin? traceparent labels fork_of?",
    "entry": "kind scope key body payload? blob? data_class key_id digest",
    "operation": "id call tool effect key digest arguments status outcome? error how notes data_class key_id "
    "compensates compensated_by business_key shared_run shared_operation",
    "message": "topic sender_key body data_class key_id",
    "divergence": "code report",
}
_HEX: Mapping[Kind, tuple[str, ...]] = {"run": ("head",), "entry": ("digest", "blob")}
_OBJECTS: Mapping[Kind, tuple[str, ...]] = {"run": ("labels",), "entry": ("body",), "operation": ("notes",)}
_WORDS: Mapping[tuple[Kind, str], tuple[str, ...]] = {
    ("run", "status"): STATUSES,
    ("operation", "status"): get_args(OperationStatus),
    ("operation", "effect"): get_args(Effect),
}


def misfit(kind: Kind, row: Mapping[str, object]) -> str:
    """What is wrong with a row, or nothing."""
    wrong = _columns(_INTEGERS[kind], row, _integer) or _columns(_TEXTS[kind], row, _text)
    if wrong:
        return wrong
    for name in _HEX.get(kind, ()):
        if row[name] is not None and not _is_hex(str(row[name])):
            return f"{name} is not hexadecimal"
    for name in _OBJECTS.get(kind, ()):
        if not _is_object(str(row[name])):
            return f"{name} is not a JSON object"
    for (which, name), words in _WORDS.items():
        if which == kind and row[name] not in words:
            return f"there is no {name} {str(row[name])[:40]!r}"
    return "" if kind != "run" else unnamed("id", row["id"]) or unnamed("queue", row["queue"])


def _columns(names: str, row: Mapping[str, object], check: Callable[[object], str]) -> str:
    for marked in names.split():
        name = marked.rstrip("?")
        if name not in row:
            return f"{name} is not there"
        if row[name] is None and marked != name:
            continue
        if why := check(row[name]):
            return f"{name} {why}"
    return ""


def _integer(value: object) -> str:
    if type(value) is int and -_MOST_INTEGER <= value <= _MOST_INTEGER:
        return ""
    return "is not a whole number of 64 bits"


def _text(value: object) -> str:
    if not isinstance(value, str):
        return "is not a text"
    half = not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value)
    return "has a NUL or half of a surrogate pair" if half or "\0" in value else ""


def _is_hex(text: str) -> bool:
    try:
        bytes.fromhex(text)
    except ValueError:
        return False
    return True


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
