"""Kills workers: most of them while a provider does what they have asked for, some at any moment. One seed chooses."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from examples.dunning.fleet import Fleet
from examples.dunning.killer import Dice
from examples.travel.providers import MANNERS, Providers

ON_CUE = 0.8
PATIENCE = 40


class Sight(Protocol):
    """What can be seen of the runs."""

    async def holders(self) -> Mapping[str, int]:
        """By the key of each operation of a run that is driven, the process that drives it."""
        ...


class Killer:
    """Has `left` kills before it; looks as often as it is told to, and kills one at most."""

    def __init__(self, fleet: Fleet, providers: Providers, sight: Sight, dice: Dice, kills: int) -> None:
        self.left, self.how = kills, Counter[str]()
        self._fleet, self._providers, self._sight, self._dice = fleet, providers, sight, dice
        self._looks = 0

    async def look(self) -> str:
        """How somebody was killed, or nothing."""
        if not self.left:
            return ""
        self._looks += 1
        cue = self._dice.draw(f"kind {self.left}") < ON_CUE and self._looks < PATIENCE
        names = sorted(MANNERS, key=lambda name: self._dice.draw(f"{name} {self.left}"))
        holders = await self._sight.holders()
        if not cue:
            return self._one(sorted(holders), holders, "at any moment")
        for name in names:
            if killed := self._one(await self._providers.busy(name), holders, f"while the {name} served it"):
                return killed
        return ""

    def _one(self, keys: Sequence[str], holders: Mapping[str, int], how: str) -> str:
        alive = [key for key in keys if holders.get(key) in self._fleet.pids]
        if not alive:
            return ""
        pid = holders[alive[int(self._dice.draw(f"victim {self.left}") * len(alive))]]
        self._fleet.kill(pid)
        self.left, self._looks = self.left - 1, 0
        self.how[how] += 1
        return f"worker pid {pid} killed {how}"
