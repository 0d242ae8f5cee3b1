"""How much is measured: rounds, and the share of each round's work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """`share` scales what a round does: 1 for figures that can be quoted, less for a look."""

    rounds: int = 5
    share: float = 1.0

    def scaled(self, count: int, *, least: int = 1) -> int:
        """So many at full effort, fewer at less."""
        return max(least, round(count * self.share))
