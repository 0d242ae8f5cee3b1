"""Which entries of a log have the outcome of an operation. Pure."""

from __future__ import annotations

from collections.abc import Container

from outlive.log import kinds
from outlive.log.entry import Entry

_TELLING = frozenset(
    (kinds.Outcome.KIND, kinds.Done.KIND, kinds.Resolved.KIND, kinds.Evidence.KIND, kinds.Completed.KIND)
)


def outcome_of(entry: Entry, known: Container[str]) -> str:
    """The operation whose outcome is the payload of this entry; empty if it is none. Raises UndecodableEntry.

    What came too late tells what has happened only of an operation whose outcome is not `known` from an entry before:
    its run was never told that.
    """
    if entry.kind not in _TELLING or entry.payload is None:
        return ""
    fact = kinds.read(entry)
    operation = str(getattr(fact, "operation", ""))
    late = isinstance(fact, kinds.Evidence | kinds.Completed) and fact.verdict != "settles"
    return "" if late and operation in known else operation
