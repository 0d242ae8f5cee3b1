"""Figures as they are reported: a median with its spread, a line of the table, and whether its target is met."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of the rounds, in order."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def shown(self, unit: str = "") -> str:
        """The median, and from least to most what was seen."""
        text = f"{short(self.median)}{unit}"
        if len(self.values) > 1:
            text += f" ({short(min(self.values))}–{short(max(self.values))})"
        return text


@dataclass(frozen=True, slots=True)
class Line:
    """One row: what was measured, against which floor, and what it may be.

    `limit` is the most that `judged` may be (the least, with `at_least`); without one there is no target.
    """

    name: str
    store: str
    what: str
    unit: str
    ours: Spread
    floor: Spread | None = None
    ratio: Spread | None = None
    limit: float | None = None
    at_least: bool = False
    limit_unit: str = "×"
    notes: tuple[str, ...] = ()

    @property
    def judged(self) -> float:
        """What is held against the limit: the ratio if there is one."""
        return (self.ratio or self.ours).median

    @property
    def target(self) -> str:
        if self.limit is None:
            return ""
        return f"{'≥' if self.at_least else '≤'} {short(self.limit)}{self.limit_unit}"

    @property
    def met(self) -> bool | None:
        """None where there is no target."""
        if self.limit is None:
            return None
        return self.judged >= self.limit if self.at_least else self.judged <= self.limit

    def printed(self) -> str:
        """The line as it is shown on a terminal."""
        parts = [f"{self.name} [{self.store}]", f"ours {self.ours.shown(self.unit)}"]
        if self.floor is not None:
            parts.append(f"floor {self.floor.shown(self.unit)}")
        if self.ratio is not None:
            parts.append(f"ratio {self.ratio.shown()}")
        if self.limit is not None:
            parts.append(f"target {self.target}: {'met' if self.met else 'MISSED'}")
        return ", ".join(parts) + "".join(f"\n    {note}" for note in self.notes)


def ratios(ours: Sequence[float], floor: Sequence[float]) -> Spread:
    """Ours by floor, round by round: what disturbed a round disturbed both."""
    return Spread.of([mine / theirs for mine, theirs in zip(ours, floor, strict=True)])


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` per cent of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]


def short(value: float) -> str:
    """Three digits that count."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"
