"""Plays a case: the old release, what the gate says then, the new release; and what of it is not as the case says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outlive.gate.judged import Judged
from outlive.testing.ground import Ground
from tests.gate.case import Case
from tests.gate.judging import disagreements, verdict
from tests.gate.outside import outside
from tests.gate.releases import Release, load
from tests.gate.stage import Lived, ended, staged
from tests.gate.witness import witnessing

Grounds = Callable[[], Ground]
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Played:
    """What the gate said, and what the live system then did."""

    case: Case
    judged: Judged
    lived: Lived

    def wrong(self) -> list[str]:
        """What is not as the case says, and where gate and live system disagree."""
        return [*surprises(self.case, self.lived), *disagreements(self.case, self.lived, self.judged)]

    def told(self) -> str:
        """A few lines about it."""
        return f"{self.case.name}\n     gate: {self.judged.said()}\n     live: {self.lived.told}"


async def play(case: Case, grounds: Grounds, directory: Path) -> Played:
    """The gate is asked first: of a run that has ended as it is, live without the entry that it has."""
    old = load(case.app, case.before, directory)
    new = load(case.app, (*case.before, *case.edits), directory)
    return await play_releases(case, old, new, grounds, directory)


async def play_releases(case: Case, old: Release, new: Release, grounds: Grounds, directory: Path) -> Played:
    """The same, of two releases that there are."""
    judged = None
    with witnessing() as witness:
        if case.stand.last:
            async with outside(case.app, old, _within(directory, "ended")) as world:
                async with ended(old, world, grounds, witness) as stage:
                    judged = await verdict(stage, new)
        async with outside(case.app, old, _within(directory, "live")) as world:
            async with staged(case, old, world, grounds, witness) as stage:
                judged = judged or await verdict(stage, new)
                return Played(case, judged, await stage.take_over(new, case))


def _within(directory: Path, name: str) -> Path:
    """A directory for the world outside: those of one test are alike, but not the same."""
    there = directory / f"{name}-{next(_numbers)}"
    there.mkdir()
    return there


def surprises(case: Case, lived: Lived) -> list[str]:
    """In what the live system is not as the case says; and what it must never do."""
    wanted, found = case.expected, []
    if lived.how != wanted.how and (lived.how, wanted.how, wanted.status) != ("fails", "goes on", "failed"):
        found.append(f"it {lived.how}, not {wanted.how}")
    if lived.repeated:
        found.append(f"executed again: {lived.repeated}")
    if lived.how == "diverges":
        acted = [name for name in lived.executed if name not in wanted.meanwhile]
        if acted:
            found.append(f"it diverged, and had executed {acted}")
        if not lived.has.startswith(wanted.has) or not lived.asks.startswith(wanted.asks):
            found.append(f"the difference is {lived.has!r} / {lived.asks!r}")
        if tuple(lived.adopted) != wanted.adopt:
            found.append(f"adopted were {lived.adopted}, not {wanted.adopt}")
        if wanted.adopt and not lived.after.startswith(wanted.status):
            found.append(f"after it was adopted it is {lived.after}")
    elif lived.row.status != wanted.status and wanted.how in ("goes on", "fails", "unclaimed"):
        found.append(f"it is {lived.row.status}, not {wanted.status}")
    elif not lived.row.reason.startswith(wanted.reason):
        found.append(f"it is blocked for {lived.row.reason}, not {wanted.reason}")
    return found
