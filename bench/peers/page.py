"""docs/comparison-performance.md and its picture, from what is recorded: nothing in them is written by hand."""

from __future__ import annotations

import re
from pathlib import Path

from bench.figures import Spread, short
from bench.peers import picture
from bench.peers.results import Report
from bench.peers.roster import ENGINES
from bench.peers.subjects import SUBJECTS, Row, Subject, rows

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "comparison-performance.md"
PICTURE = DOCS / "pictures" / "peers.svg"
ENOUGH = 3
"""Rounds: with fewer the page says so."""
BUSY = 10.0
"""Per cent of the processors: with more in other hands, the page says so."""

_HEAD = """# Performance beside others

What durable engines cost under one workload, each figure beside its floor: what the same work costs with the driver of
the database alone, in the same round. Ours are among them, sorted in with the rest. This page is written by
`python -m bench.peers --write` from [recorded figures](../bench/results/peers.json); what ours costs and why is in
[performance](performance.md), what engines do when they are killed in [comparison](comparison.md).

![Ratios to the floor, by measure and engine](pictures/peers.svg)

Read with care:

- Trust ratios, not milliseconds; and ratios of different stores not to the last digit. A ratio is taken round by
  round, the floor before and after an engine's own blocks. Shown is the median of the rounds ({rounds}), in brackets
  the least and the most.
- One small machine, one version of each, one way of using it, by somebody who knows one of them best. Settings are the
  defaults, but where a row says otherwise.
- Restate and Temporal bring a server with a store of their own. The floor beside them, PostgreSQL and SQLite, is there
  for scale. The development server of Temporal is not what it is used with in production.
- What a step gives is some 600 bytes, and it is durable before the next one begins. Steps that are not, faster as they
  are, were not measured: LangGraph's `durability=async` (its default), Temporal's local ones.
- The programs are in [bench/peers](../bench/peers/measures.py), one for each engine.
{busy}"""

_END = """
## To repeat it

```sh
python -m conformance env dbos absurd langgraph restate temporal pydantic_ai
conformance/.envs/langgraph/bin/python -m pip install langgraph-checkpoint-sqlite==3.1.2
make bench-peers
```

It takes some {minutes} minutes. `python -m bench.peers absurd --rounds 1` measures one of them and prints,
`--measure recovery` some of it, and `--quick` only tells whether it runs.
"""


def write(report: Report) -> None:
    """Both files."""
    PAGE.write_text(page(report), "utf-8")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(picture.drawn(report))


def page(report: Report) -> str:
    """The text of the page."""
    sections = "".join(_section(report, subject) for subject in SUBJECTS)
    facts = "".join(f"| {name} | {value} |\n" for name, value in report.facts.items()) + _load(report)
    return (
        _HEAD.format(rounds=report.facts["rounds"], busy=_few(report) + _busy(report))
        + _worse(report) + sections + _missing(report)
        + f"\n## Who took part\n\n| row | used as | versions |\n|---|---|---|\n{_engines(report)}"
        + f"\n## Where it was measured\n\n| | |\n|---|---|\n{facts}"
        + _END.format(minutes=report.facts["minutes"])
    )  # fmt: skip


def _few(report: Report) -> str:
    if report.rounds >= ENOUGH:
        return ""
    many = "one round" if report.rounds == 1 else f"{report.rounds} rounds"
    return f"- **There was only {many}**: these figures are a first look, and none has a spread that means something.\n"


def _busy(report: Report) -> str:
    share = float(report.facts["other processes"].split()[0])
    if share <= BUSY:
        return ""
    return (
        f"- **The machine was not idle**: other processes had {share:.0f} % of its processors, and its disk.\n"
        "  Figures are further apart than they would be on an idle one, and slow syncs hide what an engine adds: the\n"
        "  ratios of steps and operations are smaller than they would be. To be measured again before it is quoted.\n"
    )


def _worse(report: Report) -> str:
    """For each measure and each of ours on its own store, which engines of others are better."""
    found = ""
    for subject in SUBJECTS:
        every = rows(report, subject)
        link = re.sub(r"[^a-z ]", "", subject.title.lower()).replace(" ", "-")
        for place, row in enumerate(every):
            if row.ours and not row.engine.only:
                before = [one for one in every[:place] if not one.ours]
                better = ", ".join(f"{one.engine.title} {_judged(one, subject)}" for one in before)
                ours = f"{row.engine.title} {_judged(row, subject)}"
                found += f"| [{subject.title}](#{link}) | {ours} | {better or 'nobody'} |\n"
    return (
        "\n## Who is better than ours\n\nBy the ratio to the floor; what has no floor by the figure itself.\n\n"
        f"| | ours | better |\n|---|---|---|\n{found}"
    )


def _judged(row: Row, subject: Subject) -> str:
    return f"{short(row.ratio.median)}×" if row.ratio is not None else f"{short(row.value.median)}{subject.unit}"


def _section(report: Report, subject: Subject) -> str:
    every = rows(report, subject)
    last = any(row.last is not None for row in every)
    names = ["engine", "measured", *(["95 in 100"] if last else []), *(["floor", "ratio"] if subject.ratio else [])]
    if subject.name == "recovery":
        names.append("steps done twice")
    table = f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n"
    for row in every:
        title = f"**{row.engine.title}**" if row.ours else row.engine.title
        cells = [title, row.value.shown(subject.unit)]
        if last:
            cells.append(f"{short(row.last)}{subject.unit}" if row.last is not None else "")
        if subject.ratio:
            cells += [one.shown(unit) if one else "" for one, unit in ((row.floor, subject.unit), (row.ratio, "×"))]
        if subject.name == "recovery":
            again = Spread.of([one.value for one in report.values(row.engine.name, "again")])
            cells.append(", ".join(f"{value:g}" for value in again.values))
        table += f"| {' | '.join(cells)} |\n"
    return f"\n## {subject.title}\n\n{subject.about.format(**report.sizes)}\n\n{table}"


def _missing(report: Report) -> str:
    """What has no figure, and why."""
    found = ""
    for engine in ENGINES:
        found += "".join(f"- {engine.title}, {name}: {why}.\n" for name, why in engine.lacking.items())
    for one in report.troubles:
        found += f"- {one.engine}, {one.measure}, round {one.round}: it did not come to an end.\n"
    return f"\n## What has no figure\n\n{found}" if found else ""


def _engines(report: Report) -> str:
    return "".join(
        f"| {engine.title} | {engine.about} |"
        f" {', '.join(f'{name} {number}' for name, number in report.versions.get(engine.name, {}).items())} |\n"
        for engine in ENGINES
    )


def _load(report: Report) -> str:
    loads = [one.load for one in report.figures]
    return f"| load average, as figures were taken | {short(min(loads))} to {short(max(loads))} |\n" if loads else ""
