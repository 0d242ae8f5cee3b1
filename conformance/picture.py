"""The page of results as pictures: every row in every scenario, and how many scenarios of a row came out how.

They show what the page says, in words that report.py counts; drawing wants matplotlib, which the kit itself does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from conformance.report import KINDS, PAGE, counted, recorded
from conformance.runner import RESULTS
from conformance.scenarios import SCENARIOS

PICTURES = PAGE.parent / "pictures"
# Colours that differ in lightness too, and a sign for whoever sees none of them.
LOOKS: dict[str, tuple[str, str, str]] = {
    "safe": ("#b7e3d4", "#05382b", "✓"),
    "visible-unknown": ("#8cc2ec", "#0b2a44", "?"),
    "stuck": ("#f0c75e", "#3b2a00", "…"),
    "silent": ("#e08a3c", "#2e1500", "≠"),
    "lost": ("#b1457b", "#ffffff", "−"),
    "duplicate": ("#7a1f1f", "#ffffff", "2"),
    "not offered": ("#e9e9e9", "#777777", "·"),
}
MEANINGS = {
    "safe": "safe: every effect once",
    "visible-unknown": "visible-unknown: a person is told to look",
    "stuck": "stuck: nothing says so",
    "silent": "silent: done otherwise than said",
    "lost": "lost: said to be done, and was not",
    "duplicate": "duplicate: done twice",
    "not offered": "not offered, or no verdict yet",
}
INK = "#222222"


def write(folder: Path = PICTURES) -> int:
    folder.mkdir(exist_ok=True)
    for name, drawn in drawings(recorded(RESULTS)).items():
        (folder / name).write_text(drawn, "utf-8")
    return 0


def drawings(known: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """All pictures, by the names of their files."""
    return {"conformance.svg": matrix(known), "conformance-words.svg": bars(known)}


def verdicts(one: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The word of this row for each scenario; its own, or that of the row that it is the same as."""
    other = next((each for each in known if each["row"] == one["same_as"]), None)
    found: dict[str, str] = {}
    for scenario in SCENARIOS.values():
        same = other is not None and scenario.group not in one["differs"]
        holder = other if same and other is not None else one
        result = holder["results"].get(scenario.name)
        found[scenario.name] = (counted(holder, result) if result else None) or "not offered"
    return found


def by_service(known: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    groups = [(title, [one for one in known if one["service"] == kind]) for kind, title in KINDS.items()]
    return [(title, shown) for title, shown in groups if shown]


def matrix(known: Sequence[Mapping[str, Any]]) -> str:
    """A line per scenario, a column per row; columns stand together by the service that they face."""
    groups, gap = by_service(known), 0.6
    width = sum(len(shown) for _, shown in groups) + gap * (len(groups) - 1)
    with _figure(10.4, 9.8) as (axes, svg):
        left = 0.0
        for title, shown in groups:
            axes.text(left, -6.5, _folded(title), fontsize=7.5, weight="bold", color=INK, va="bottom")
            for one in shown:
                axes.text(left + 0.62, -0.25, one["row"], rotation=90, fontsize=7, ha="center", va="bottom", color=INK)
                for line, word in enumerate(verdicts(one, known).values()):
                    _cell(axes, left, line, 1.0, word, LOOKS[word][2])
                left += 1
            left += gap
        for line, name in enumerate(SCENARIOS):
            axes.text(-0.3, line + 0.5, name.replace("-", " "), fontsize=7.5, ha="right", va="center", color=INK)
        _legend(axes, -9.0, len(SCENARIOS) + 0.7, 12.0)
        axes.set_xlim(-9.6, width + 1.8)
        axes.set_ylim(len(SCENARIOS) + 4.2, -9.0)
    return svg[0]


def bars(known: Sequence[Mapping[str, Any]]) -> str:
    """A bar per row, as long as the scenarios that it was put to, and in it how many came out how."""
    groups = by_service(known)
    with _figure(8.6, 7.2) as (axes, svg):
        line = 0.0
        for title, shown in groups:
            axes.text(0, line + 0.9, title, fontsize=8.5, weight="bold", color=INK, va="center")
            line += 1.4
            for one in shown:
                axes.text(-0.3, line + 0.5, one["row"], fontsize=8, ha="right", va="center", color=INK)
                _bar(axes, line, list(verdicts(one, known).values()))
                line += 1
        _legend(axes, -5.0, line + 0.5, 11.2)
        axes.set_xlim(-7.4, len(SCENARIOS) + 0.2)
        axes.set_ylim(line + 3.4, -0.2)
    return svg[0]


def _bar(axes: Axes, line: float, words: Sequence[str]) -> None:
    left = 0
    for word in LOOKS:
        count = words.count(word)
        if count and word != "not offered":
            _cell(axes, left, line, count, word, str(count))
            left += count


def _cell(axes: Axes, left: float, top: float, width: float, word: str, sign: str) -> None:
    fill, ink, _ = LOOKS[word]
    axes.add_patch(Rectangle((left, top), width, 1, facecolor=fill, edgecolor="white", linewidth=1))
    axes.text(left + width / 2, top + 0.52, sign, fontsize=8, color=ink, ha="center", va="center_baseline")


def _legend(axes: Axes, left: float, top: float, step: float) -> None:
    for number, (word, meaning) in enumerate(MEANINGS.items()):
        x, y = left + step * (number % 3), top + 1.05 * (number // 3)
        _cell(axes, x, y, 1.0, word, LOOKS[word][2])
        axes.text(x + 1.3, y + 0.5, meaning, fontsize=7.5, va="center", color=INK)


def _folded(title: str) -> str:
    """On lines as short as a narrow group is."""
    lines = [""]
    for word in title.split():
        if len(lines[-1]) + len(word) > 16:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


@contextmanager
def _figure(wide: float, high: float) -> Iterator[tuple[Axes, list[str]]]:
    """Axes without a frame, so many inches large; afterwards its SVG, the same for the same drawing, is in the list."""
    svg: list[str] = []
    with mpl.rc_context({"svg.hashsalt": "conformance", "svg.fonttype": "path", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(wide, high), facecolor="white")
        axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        axes.axis("off")
        yield axes, svg
        svg.append(_rendered(figure))


def _rendered(figure: Figure) -> str:
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
