"""Kills workers: some at random moments, some for certain between the bank's act and the worker's record.

One seed chooses the same moments and invoices. A moment is a number of invoices done, so that no machine is too fast or
too slow for all kills to happen while there is work.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from examples.dunning.agent import Invoice
from examples.dunning.audit import invoice_of
from examples.dunning.fleet import Fleet
from examples.dunning.waiting import tick
from examples.dunning.watch import Kill, Watch, Watched
from examples.dunning.witness import Held, Rule, Witness

LOOK_S = 0.1


class Dice:
    """Seeded chance: the same label gives the same number."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def draw(self, label: str) -> float:
        """In [0, 1)."""
        digest = hashlib.blake2b(f"{self._seed}/{label}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True, slots=True)
class Plan:
    """When a worker dies: after so many invoices done; and whose charge is held so that another dies with it."""

    moments: list[float]
    ambushes: list[str]


def plan(dice: Dice, invoices: Sequence[Invoice], *, kills: int, ambushes: int) -> Plan:
    """Random moments are spread over the first four fifths of the work; ambushes lie in different regions.

    There are more of them than are wanted: somebody who waits in one may die by chance.
    """
    ordinary = [one for one in invoices if one.provider == "cardnet" and one.card != "tok_declined"]
    chosen: dict[str, str] = {}
    for one in sorted(ordinary, key=lambda invoice: dice.draw(f"ambush {invoice.id}")):
        chosen.setdefault(one.region, one.id)
    random = kills - ambushes
    span = 0.8 * len(invoices) / max(1, random)
    moments = [span * (i + dice.draw(f"moment {i}")) for i in range(random)]
    others = [one.id for one in ordinary if one.id not in chosen.values()]
    return Plan(moments, [*chosen.values(), *others])


class Killer:
    """Carries out a plan against a fleet, and keeps the fleet filled."""

    def __init__(self, fleet: Fleet, watch: Watch, witness: Witness, dice: Dice, plan: Plan, ambushes: int) -> None:
        self._fleet, self._watch, self._witness, self._dice = fleet, watch, witness, dice
        self._moments, self._spare = list(plan.moments), list(plan.ambushes)
        self._wanted = ambushes

    async def prepare(self) -> None:
        """Lay the ambushes."""
        for _ in range(self._wanted):
            await self._lay()

    async def strike(self) -> Kill | None:
        """One look, about a tenth of a second long; kills at most one worker."""
        if self._wanted:
            held = await self._witness.held(within=LOOK_S)
            if held:
                return await self._ambush(held[0])
        else:
            await tick(LOOK_S)
        if self._moments and self._watch.done >= self._moments[0]:
            return await self._at_random()
        return None

    async def _ambush(self, held: Held) -> Kill | None:
        """The bank has acted and keeps its answer: whoever waits for it dies before it can record anything."""
        await self._watch.look()
        pid = next((self._watch.pid(run) for run in self._watch.runs.values() if held.key in _keys(run)), None)
        kill = None
        if pid in self._fleet.pids:
            kill = self._watch.killed(pid, f"between act and record of {held.invoice}", on_cue=True)
            self._fleet.kill(pid)
            self._wanted -= 1
        else:
            await self._lay()  # it has died by chance meanwhile
        await self._witness.release(held)
        return kill

    async def _at_random(self) -> Kill | None:
        await self._watch.look()
        busy = sorted({pid for pid in self._fleet.pids if self._watch.held_by(pid)})
        if not busy:
            return None
        moment = self._moments.pop(0)
        pid = busy[int(self._dice.draw(f"victim {moment}") * len(busy))]
        kill = self._watch.killed(pid, "at random")
        self._fleet.kill(pid)
        return kill

    async def _lay(self) -> None:
        begun = {one for run in self._watch.runs.values() for one in _invoices(run)}
        while self._spare:
            invoice = self._spare.pop(0)
            if invoice not in begun:
                await self._witness.expect(Rule("hold", invoice))
                return


def _invoices(run: Watched) -> list[str]:
    return [invoice_of(operation) for operation in run.operations]


def _keys(run: Watched) -> set[str]:
    return {operation.key for operation in run.operations}
