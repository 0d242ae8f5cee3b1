"""What was measured, as it is recorded: a figure for each engine, measure and round, beside the floor of that round."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "results" / "peers.json"


@dataclass(frozen=True, slots=True)
class Figure:
    """`value` in the unit of the measure; `floor` in the same unit, or None. `samples` is what a median is of.

    `load` is how many processes were running or wanted to, in the last minute, when it was taken.
    """

    engine: str
    measure: str
    round: int
    value: float
    floor: float | None = None
    samples: tuple[float, ...] = ()
    load: float = 0.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """A measure that an engine did not finish, and what it said."""

    engine: str
    measure: str
    round: int
    why: str


@dataclass(frozen=True, slots=True)
class Report:
    """Facts of the machine, versions by engine, sizes of the work, figures."""

    facts: dict[str, str]
    versions: dict[str, dict[str, str]]
    sizes: dict[str, int]
    figures: tuple[Figure, ...]
    troubles: tuple[Trouble, ...] = ()

    def values(self, engine: str, measure: str) -> tuple[Figure, ...]:
        """The figures of all rounds."""
        return tuple(one for one in self.figures if (one.engine, one.measure) == (engine, measure))

    def keep(self, place: Path = RECORDED) -> None:
        """For `recorded`."""
        place.parent.mkdir(exist_ok=True)
        found = asdict(self)
        lines = {name: _lines(found.pop(name)) for name in ("figures", "troubles")}
        head = json.dumps(found, indent=1, ensure_ascii=False)[:-2]
        place.write_text(f'{head},\n "figures": {lines["figures"]},\n "troubles": {lines["troubles"]}\n}}\n', "utf-8")


def _lines(rows: Sequence[object]) -> str:
    """One row in each line, so that a change of one is seen."""
    return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n ]" if rows else "[]"


def recorded(place: Path = RECORDED) -> Report:
    """The last one that was kept."""
    found = json.loads(place.read_text("utf-8"))
    figures = [Figure(**{**one, "samples": tuple(one["samples"])}) for one in found["figures"]]
    troubles = [Trouble(**one) for one in found["troubles"]]
    return Report(found["facts"], found["versions"], found["sizes"], tuple(figures), tuple(troubles))
