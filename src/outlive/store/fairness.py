"""What of that which a look or a claim has found is taken up, and in which order. Pure; both stores go by it.

A claim that cannot take all takes the most urgent, and of those that are equally urgent some of each kind. A kind is a
way to be claimable: ready, a timer that has come, a message, a build that fits, a lease that has lapsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from outlive.model.ids import RunId, Tenant
from outlive.store.port import Attention

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides when a run is taken: its priority, and since when it is due."""

    tenant: str
    run: str
    priority: int
    due: int

    @property
    def order(self) -> tuple[int, int, str]:
        """The most urgent first, then what is longest due."""
        return -self.priority, self.due, self.run


def attended(
    past: Iterable[tuple[str, str]],
    stranded: Iterable[tuple[str, str, str]],
    sent: Iterable[tuple[str, str, bool]],
    most: int,
) -> tuple[tuple[Attention, ...], frozenset[tuple[Tenant, RunId]]]:
    """What needs a control claim, and which of a worker's own runs were sent something."""
    told = [(Tenant(tenant), RunId(run), is_late) for tenant, run, is_late in sent]
    late = [Attention(tenant, run, "late") for tenant, run, is_late in told if is_late]
    deadlines = [Attention(Tenant(tenant), RunId(run), "deadline") for tenant, run in past]
    left = [
        Attention(Tenant(tenant), RunId(run), "stranded" if reason == "diverged" else "unserved")
        for tenant, run, reason in stranded
    ]
    unread = frozenset((tenant, run) for tenant, run, is_late in told if not is_late)
    return (*deadlines, *late[:most], *left), unread


def fair(
    found: Iterable[tuple[str, Row]], standing: Callable[[Row], Standing], *, limit: int, turn: int
) -> list[Row]:  # fmt: skip
    """Up to `limit` of what was found, each with its way to be claimable, in the order in which they are taken.

    Where not all of a priority can be taken the ways take turns, and `turn` says which begins. A run that is claimable
    in two ways counts once, by the one that it is longest due for.
    """
    best: dict[tuple[str, str], tuple[Standing, str, Row]] = {}
    for way, row in found:
        one = standing(row)
        known = best.get((one.tenant, one.run))
        if known is None or one.due < known[0].due:
            best[one.tenant, one.run] = one, way, row
    taken: list[tuple[Standing, str, Row]] = []
    ordered = sorted(best.values(), key=lambda each: each[0].order)
    for _, equal in groupby(ordered, key=lambda each: each[0].priority):
        taken += _in_turns(list(equal), limit - len(taken), turn)
    return [row for _, _, row in taken]


def _in_turns(
    equal: list[tuple[Standing, str, Row]], room: int, turn: int
) -> list[tuple[Standing, str, Row]]:  # fmt: skip
    """As many as there is room for, longest due first."""
    if len(equal) <= room:
        return equal
    ways = sorted({way for _, way, _ in equal})
    first = {way: (place - turn) % len(ways) for place, way in enumerate(ways)}
    count = dict.fromkeys(ways, 0)
    rounds: list[tuple[int, int, int]] = []
    for place, (_, way, _) in enumerate(equal):
        rounds.append((count[way], first[way], place))
        count[way] += 1
    return [equal[place] for place in sorted(place for _, _, place in sorted(rounds)[:room])]
