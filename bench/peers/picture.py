"""The picture of the page: a small panel for each measure, a dot for each engine, on a scale of its own.

The same report always gives the same bytes. Colours are told apart by everybody, and ours by their shape too.
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.peers.results import Report
from bench.peers.roster import ENGINES
from bench.peers.subjects import SUBJECTS, Row, Subject, rows

OURS, OTHERS, TEXT, LINES = "#d55e00", "#0072b2", "#222222", "#999999"
_LEFT_OUT = ("growth",)
_LEAST = 0.1
"""What is nothing, or less, has no place on a logarithmic scale and is put to its left end."""


def drawn(report: Report) -> bytes:
    """An SVG."""
    settings: Any = {"svg.hashsalt": "outlive", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": 8}
    with matplotlib.rc_context(settings):
        subjects = [one for one in SUBJECTS if one.name not in _LEFT_OUT]
        engines = [one for one in ENGINES if not one.only]
        figure = Figure(figsize=(10, 6.4), facecolor="white", layout="constrained")
        places = {engine.name: number for number, engine in enumerate(reversed(engines))}
        grid = figure.subplots(2, 4, sharey=True)
        for panel, subject in zip(grid.flat, subjects, strict=True):
            _panel(panel, subject, rows(report, subject), places)
        for panel in grid.flat:
            panel.tick_params(axis="y", length=0)
        for panel in grid[:, 0]:
            panel.set_yticks(range(len(engines)), [one.title for one in reversed(engines)])
            for label, engine in zip(panel.get_yticklabels(), reversed(engines), strict=True):
                label.set_color(OURS if engine.program == "outlive" else TEXT)
        figure.suptitle(
            "Times the floor, less is better: one INSERT and COMMIT, one bare notification, one bare restart",
            color=TEXT, fontsize=9,
        )  # fmt: skip
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _panel(panel: Axes, subject: Subject, found: list[Row], places: dict[str, int]) -> None:
    panel.set_title(subject.title + (" (KB)" if subject.name == "memory" else ""), color=TEXT, fontsize=8.5)
    panel.set_xscale("log")
    for row in found:
        if row.engine.name not in places:
            continue
        y, colour = places[row.engine.name], OURS if row.ours else OTHERS
        seen = row.ratio or row.value
        values = [max(_LEAST, 1 / one if subject.more else one) for one in seen.values]
        middle = max(_LEAST, row.order)
        panel.plot([min(values), max(values)], [y, y], color=colour, linewidth=1.6, alpha=0.55, solid_capstyle="round")
        panel.plot([middle], [y], marker="D" if row.ours else "o", color=colour, markersize=5)
    if subject.ratio:
        panel.axvline(1, color=LINES, linewidth=1, zorder=0)
    panel.set_ylim(-0.6, len(places) - 0.4)
    panel.grid(axis="both", color="#eeeeee", zorder=0)
    panel.set_axisbelow(True)
    panel.xaxis.set_major_locator(LogLocator(base=10, numticks=6))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" + ("×" if subject.ratio else "")))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(axis="x", colors=TEXT, length=2)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color(LINES)
