"""What people and programs see: two consoles, how times and texts are written, and the JSON forms of what is stored.

Results go to stdout, everything else to stderr, also what the application's own code prints. Nothing that is not
printable reaches a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from outlive.app.inspect import Line
    from outlive.model.operation import OperationRow
    from outlive.model.run import RunRow

_WIDE = 10_000
COLOURS = {
    "succeeded": "green", "running": "cyan", "waiting": "blue", "ready": "", "blocked": "bold red", "failed": "red",
    "cancelled": "magenta", "expired": "magenta", "unknown": "bold yellow", "pending": "yellow", "absent": "dim",
    "later": "blue", "retrying": "yellow", "raised": "red", "abandoned": "magenta", "held": "bold yellow",
    "compensated": "magenta",
}  # fmt: skip
MOODS = {"good": "green", "bad": "red", "doubt": "yellow", "wait": "blue", "plain": ""}


# The stream for results, while a verb is at work.
_results: list[TextIO] = []


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """While the block runs, what code prints goes to stderr, and stdout has what the command itself says."""
    _results.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results.pop()


def results() -> TextIO:
    """The stream for results."""
    return _results[-1] if _results else sys.stdout


def console(*, err: bool = False) -> Console:
    """stdout or stderr as it is now: without colour, and as wide as need be, where it is not a terminal."""
    from rich.console import Console

    stream = sys.stderr if err else results()
    return Console(
        file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True,
        width=None if stream.isatty() else _WIDE,
    )  # fmt: skip


def put_table(columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    """A plain table on stdout. On a terminal long cells are folded, but for the first; elsewhere each row is a line."""
    if results().isatty():
        from rich import box
        from rich.table import Table

        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for place, column in enumerate(columns):
            # Somebody will copy what is in the first column.
            whole = max((row[0].cell_len for row in rows), default=0) if place == 0 else None
            made.add_column(column, no_wrap=place == 0, min_width=whole, overflow="fold")
        for row in rows:
            made.add_row(*row)
        console().print(made)
        return
    cells = [list(columns), *([one.plain for one in row] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    for line in cells:
        put("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def say(text: str) -> None:
    """One line for people, on stderr."""
    print(plain(text), file=sys.stderr, flush=True)


def put(text: str) -> None:
    """One line of result, on stdout."""
    print(text, file=results(), flush=True)


def put_json(value: object, *, indent: int | None = None) -> None:
    """A JSON document on stdout."""
    put(json.dumps(value, ensure_ascii=False, indent=indent))


def plain(text: str) -> str:
    """The text on one line, with control characters escaped: what others wrote must not steer a terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def local(at: int | None) -> str:
    """Database milliseconds as local date and time; as they are where no calendar has them."""
    try:
        return "" if at is None else datetime.fromtimestamp(at / 1000).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def iso(at: int | None) -> str | None:
    """Database milliseconds as ISO 8601 in UTC; as they are where no calendar has them."""
    try:
        return None if not at else datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{at} ms"


def span(milliseconds: int) -> str:
    """A length of time as people say it, in the two largest units that count: `3m 20s`."""
    seconds = max(milliseconds, 0) // 1000
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s")]
    first = next((index for index, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count) or "0s"


def numbered(count: int, thing: str) -> str:
    """How many of a thing, as people say it: `1 run`, `2 runs`."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def value_of(text: str | None) -> object:
    """A stored JSON text as a value; a text that is none as it is."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def line_text(line: Line) -> str:
    """One entry of a log as a line of text."""
    when = datetime.fromtimestamp(line.at / 1000).strftime("%H:%M:%S.%f")[:-3]
    scope = f" [{line.scope}]" if line.scope else ""
    return plain(f"{line.seq:>5}  {when}  {line.kind:<10}{scope} {line.text}".rstrip())


def line_json(line: Line) -> dict[str, object]:
    """One entry of a log for programs."""
    return {
        "seq": line.seq, "at": iso(line.at), "epoch": line.epoch, "kind": line.kind, "scope": line.scope,
        "text": line.text, "data": line.data, "payload": value_of(line.payload),
    }  # fmt: skip


def run_json(row: RunRow) -> dict[str, object]:
    """A run for programs."""
    return {
        "id": row.id, "tenant": row.tenant, "agent": row.agent, "version": row.version, "status": row.status,
        "reason": row.reason, "detail": row.detail, "owner": row.owner, "epoch": row.epoch, "queue": row.queue,
        "priority": row.priority, "created_at": iso(row.created_at), "updated_at": iso(row.updated_at),
        "wake_at": iso(row.wake_at), "deadline_at": iso(row.deadline_at), "paused_at": iso(row.paused_at),
        "ended_at": iso(row.ended_at), "lease_until": iso(row.expires_at), "lapses": row.lapses,
        "entries": row.head.seq, "principal": row.principal, "purpose": row.purpose, "labels": row.labels,
        "pin": row.pin,
        "origin": row.origin, "fork_of": row.fork_of, "fork_seq": row.fork_seq, "forked": row.forked,
        "rolls_back": row.rolls_back,
    }  # fmt: skip


def operation_json(row: OperationRow) -> dict[str, object]:
    """An operation for programs."""
    return {
        "id": row.id, "tool": row.tool, "effect": row.effect, "status": row.status, "how": row.how, "key": row.key,
        "attempts": row.attempt, "arguments": value_of(row.arguments), "outcome": value_of(row.outcome),
        "error": row.error, "notes": row.notes, "duplicates": row.duplicates,
        "first_sent_at": iso(row.first_sent_at) if row.attempt else None, "updated_at": iso(row.updated_at),
        "not_before": iso(row.not_before), "compensates": row.compensates or None,
        "compensated_by": row.compensated_by or None, "shared_run": row.shared_run or None,
        "shared_operation": row.shared_operation or None,
    }  # fmt: skip
