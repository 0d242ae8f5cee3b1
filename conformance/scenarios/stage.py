"""What a scenario is given, and the register of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from conformance.adapter import Row
from conformance.judge import Verdict, Wanted, judge, worst
from conformance.plans import Call, acts
from conformance.scene import Plan, Scene


@dataclass
class Stage:
    """One row in one scenario; what it opened is closed by the runner."""

    row: Row
    turns: int = 2000
    scene: Scene | None = None
    history: dict[str, list[str]] = field(default_factory=dict)

    def open(self, plan: Plan, *, cuttable: bool = False) -> Scene:
        self.scene = Scene(self.row, plan, cuttable=cuttable)
        return self.scene

    def judged(self, wanted: Wanted, *runs: str, limit: float | None = None) -> Verdict:
        """Wait until these runs have settled, and the worst that can be said of them."""
        assert self.scene is not None
        verdicts = []
        for run in runs or ("r1",):
            seen = self.scene.settle(run, limit)
            self.history[run] = self.scene.history(run)
            verdicts.append(judge(run, wanted, self.scene.service.effects, seen))
        return worst(verdicts)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A way to do harm to an engine, and what it has to have for that."""

    name: str
    about: str
    play: Callable[[Stage], Verdict]
    needs: tuple[str, ...]
    fast: bool
    group: str = ""

    def same_as(self, row: Row) -> str:
        """The row of the same engine whose verdict stands for this one, where it makes no difference which is used."""
        return "" if self.group in row.differs else row.same_as

    def not_offered(self, row: Row) -> str | None:
        """Why this row cannot be put to it."""
        for need in self.needs:
            if need in row.not_offered:
                return row.not_offered[need]
            if need == "server" and row.store in ("sqlite", "files"):
                return "no database server"
            if need == "connection" and row.store != "postgres":
                return "no connection to a database server that could be cut"
            if need == "asked" and row.service != "asked":
                return "its service is never asked"
        return None


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    about: str, *needs: str, fast: bool = False
) -> Callable[[Callable[[Stage], Verdict]], Callable[[Stage], Verdict]]:
    """Register a function under its name; a `fast` one is among those of every run of the project's tests."""

    def registered(play: Callable[[Stage], Verdict]) -> Callable[[Stage], Verdict]:
        name = play.__name__.replace("_", "-")
        SCENARIOS[name] = Scenario(name, about, play, needs, fast, play.__module__.rpartition(".")[2])
        return play

    return registered


def all_of(*calls: Call) -> Wanted:
    """Each of these once, and a result that says so."""
    return Wanted(acts(*calls))


def recovered(scene: Scene, dead: str = "a", name: str = "b") -> None:
    """Start a worker in the place of a dead one, as a supervisor does."""
    scene.worker(name, replaces=dead)


__all__: Sequence[str] = ["SCENARIOS", "Scenario", "Stage", "all_of", "recovered", "scenario"]
