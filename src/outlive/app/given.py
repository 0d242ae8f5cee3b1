"""What callers give: texts and numbers that no database could hold, or nobody could read again, are refused first.

A refusal names what was given and why; nothing has been stored then.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from outlive.app.settings import LONGEST
from outlive.model.errors import BadArguments
from outlive.model.ids import LONGEST_NAME, LONGEST_WORDS, unnamed
from outlive.model.run import NewRun, RunFilter

MOST_LABELS = 64
_MOST_INTEGER = 2**63 - 1


def check_start(run: NewRun) -> None:
    """Raises BadArguments for a run that could not be stored, or listed afterwards."""
    for what, name in (("id", run.id), ("tenant", run.tenant), ("queue", run.queue)):
        if why := unnamed(f"the {what} {name!r}", name):
            raise BadArguments(function="start", why=why)
    texts = [("principal", run.principal), ("purpose", run.purpose), ("identity", run.identity or "")]
    check_texts("start", [*texts, *_labels(run.labels)])
    check_lengths("start", [("principal", run.principal), ("identity", run.identity or "")], LONGEST_NAME)
    check_lengths("start", [("purpose", run.purpose)], LONGEST_WORDS)
    if len(run.labels) > MOST_LABELS:
        raise BadArguments(function="start", why=f"it has {len(run.labels)} labels, at most {MOST_LABELS} can be kept")
    check_lengths("start", list(_labels(run.labels)), LONGEST_NAME)
    if not -_MOST_INTEGER <= run.priority <= _MOST_INTEGER:
        raise BadArguments(function="start", why=f"the priority {run.priority} is not within 64 bits")
    if run.deadline_ms is not None and abs(run.deadline_ms) > LONGEST / timedelta(milliseconds=1):
        raise BadArguments(function="start", why=f"the deadline is more than {LONGEST.days} days away")


def check_filter(which: RunFilter) -> RunFilter:
    """The filter. Raises BadArguments for texts that no run can have."""
    check_texts("the filter", [("agent", which.agent), ("reason", which.reason), *_labels(dict(which.labels))])
    return which


def check_texts(function: str, texts: list[tuple[str, str]]) -> None:
    """Raises BadArguments for NUL and halves of surrogate pairs, which no database takes."""
    for what, text in texts:
        if "\0" in text or not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
            why = f"the {what} {text[:100]!r} has a NUL or half of a surrogate pair, which cannot be stored"
            raise BadArguments(function=function, why=why)


def check_lengths(function: str, texts: list[tuple[str, str]], most: int) -> None:
    """Raises BadArguments for a text of more characters than people would read."""
    for what, text in texts:
        if len(text) > most:
            why = f"the {what} {text[:40]!r}… has {len(text)} characters, at most {most} can be kept"
            raise BadArguments(function=function, why=why)


def check_said(function: str, who: str, why: str) -> None:
    """Raises BadArguments for who asks and why, if they are too long to be kept."""
    check_lengths(function, [("who", who)], LONGEST_NAME)
    check_lengths(function, [("why", why)], LONGEST_WORDS)


def _labels(labels: dict[str, str]) -> Iterator[tuple[str, str]]:
    for key, value in labels.items():
        yield "label", key
        yield f"label {key}", value
