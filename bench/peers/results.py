"""What was measured, as it is recorded: a figure for each engine, measure and round, beside the floor of that round."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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

    @property
    def rounds(self) -> int:
        """How many there were."""
        return int(self.facts["rounds"])

    def and_then(self, later: Report) -> Report:
        """One report of both, the later rounds after ours. Raises ValueError when they cannot be compared."""
        if (self.sizes, self.versions) != (later.sizes, later.versions):
            raise ValueError("the sizes of the work or the versions are not those of what is recorded")
        added = {name: str(int(self.facts[name]) + int(later.facts[name])) for name in ("rounds", "minutes")}
        busier = max(self, later, key=lambda one: int(one.facts["other processes"].split()[0]))
        facts = self.facts | {"date": later.facts["date"]} | added
        facts["other processes"] = busier.facts["other processes"]
        moved = [replace(one, round=one.round + self.rounds) for one in later.figures]
        troubles = [replace(one, round=one.round + self.rounds) for one in later.troubles]
        return Report(facts, self.versions, self.sizes, (*self.figures, *moved), (*self.troubles, *troubles))

    def mended(self, engine: str, number: int, again: Report) -> Report:
        """With what was measured again of an engine in place of what there was of it in this round."""

        def others(one: Figure | Trouble) -> bool:
            return (one.engine, one.round) != (engine, number)

        figures = [*filter(others, self.figures), *(replace(one, round=number) for one in again.figures)]
        troubles = [*filter(others, self.troubles), *(replace(one, round=number) for one in again.troubles)]
        versions = self.versions | again.versions
        return replace(self, versions=versions, figures=tuple(figures), troubles=tuple(troubles))

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
