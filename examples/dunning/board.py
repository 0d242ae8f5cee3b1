"""Draws what is going on, and what went on: the live table, the table at the end, the timeline of a log."""

import json
import re
from collections.abc import Sequence

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.dunning.audit import Finding
from examples.dunning.watch import Kill, Watch, Watched
from outlive.app.inspect import Line

COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "bright_red")
MOODS = {"good": "green", "bad": "red", "doubt": "yellow", "wait": "blue", "plain": "default"}


def live(watch: Watch, totals: dict[str, int], effects: int, seconds: float) -> Group:
    """The runs as they are now. `totals` has the number of invoices of each run."""
    table = Table(box=None, pad_edge=False, expand=True)
    for title in ("run", "invoices", "", "status", "owner", "epoch", "last entry"):
        table.add_column(title, no_wrap=True, ratio=1 if title == "last entry" else None)
    for id, run in watch.runs.items():
        pid = watch.pid(run)
        last = run.lines[-1] if run.lines else None
        table.add_row(
            id,
            ProgressBar(total=totals[id], completed=run.done, width=10),
            f"{run.done}/{totals[id]}",
            Text(run.row.status, style="red" if run.stuck else ""),
            Text(str(pid or ""), style=COLOURS[pid % len(COLOURS)] if pid else ""),
            str(run.row.epoch),
            Text(f"{last.kind}: {_short(last)}" if last else "", style=MOODS[last.mood] if last else ""),
        )
    line = f"{watch.done} invoices done, {effects} effects at the bank, {len(watch.kills)} kills, {seconds:.0f} s"
    return Group(table, Text(line, style="bold"))


def summary(finding: Finding, watch: Watch, workers: int, seconds: float) -> Table:
    table = Table(title="what the bank counted and what the logs say", title_justify="left", show_header=False)
    rows = [
        ("invoices", str(finding.invoices)),
        ("effects that the bank counted", str(finding.effects)),
        ("declined", str(finding.declined)),
        ("duplicates", str(finding.duplicates)),
        ("lost", str(finding.lost)),
        ("approved by a person", approved(finding)),
        ("unknown, resolved by a person", str(finding.resolved)),
        ("in doubt for a while, settled without a person", str(finding.doubted - finding.resolved)),
        ("worker incarnations", str(workers)),
        ("kills", kills(watch.kills)),
        ("longest gap", f"{watch.longest_gap():.1f} s"),
        ("time", f"{seconds:.0f} s"),
    ]
    for name, value in rows:
        table.add_row(name, value)
    return table


def approved(finding: Finding) -> str:
    return f"{finding.approved}{f', and {finding.rejected} rejected' if finding.rejected else ''}"


def kills(all: Sequence[Kill]) -> str:
    """How many, and what is known of their moments: whether the bank had acted is known of those on cue alone."""
    certain = sum(kill.on_cue for kill in all)
    return f"{len(all)} ({certain} on cue, between act and record)"


def eventful(watch: Watch) -> str:
    """The run with the most to tell."""
    kinds = ("claimed", "unknown", "lookup", "not acted", "blocked", "resolution", "evidence")
    return max(watch.runs, key=lambda id: sum(line.kind in kinds for line in watch.runs[id].lines))


def timeline(id: str, run: Watched, kills: Sequence[Kill]) -> Table:
    """One log, oldest first, a colour for each owner. An intent with its outcome right behind it is one line."""
    begin = run.lines[0].at
    table = Table(title=f"the log of run {id}", title_justify="left", box=None, pad_edge=False)
    for title in ("seconds", "", "entry", "what"):
        table.add_column(title, justify="right" if title == "seconds" else "left", no_wrap=title != "what")
    deaths = [kill for kill in kills if id in kill.held]
    skip = -1
    for place, line in enumerate(run.lines):
        while deaths and deaths[0].at < line.at:
            kill = deaths.pop(0)
            table.add_row(_since(kill.at, begin), Text("╳", "bold red"), "", Text(f"SIGKILL {kill.how}", "bold red"))
        if line.seq == skip:
            continue
        following = run.lines[place + 1] if place + 1 < len(run.lines) else None
        if following is not None and _settles(following, line):
            skip = following.seq
            kind, text, mood = "operation", f"{_short(line)} → {_receipt(following)}", following.mood
        else:
            kind, text, mood = line.kind, _short(line), line.mood
        colour = COLOURS[line.epoch % len(COLOURS)]
        table.add_row(_since(line.at, begin), Text("┃", colour), kind, Text(text, MOODS[mood]))
    return table


def _since(at: int, begin: int) -> str:
    return f"{(at - begin) / 1000:.2f}"


def _settles(line: Line, intent: Line) -> bool:
    same = line.data.get("operation") == intent.data.get("operation")
    return intent.kind == "intent" and line.kind == "outcome" and same


def _short(line: Line) -> str:
    """The entry's own words, with a charge named by its invoice alone."""
    return re.sub(r'\(invoice="([^"]+)"[^)]*\)', r" \1", line.text)


def _receipt(line: Line) -> str:
    if line.payload is None:
        return line.text.split(": ", 1)[-1]
    return str(json.loads(line.payload)["charge_id"])
