"""`outlive versions`: which versions of each agent have runs that have not ended, and who serves them.

It reads the open runs in pages, as the doctor does, and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from outlive.app.explain import builds_of, fit
from outlive.app.operate import ALIVE_MS
from outlive.store.port import WorkerRow
from outlive.store.survey import Seen, Surveyed, open_pages


@dataclass(slots=True)
class Needed:
    """Runs that need workers of one version: how many, how many of them are pinned to it, and how many of them other
    builds have diverged from, by build.
    """

    runs: int = 0
    pinned: int = 0
    diverged: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Standing:
    """One version of an agent: its runs that have not ended, and the live workers that serve this version.

    `workers` are counted by build. `unserved` runs are those that no live worker could drive: of this version where
    they are pinned to it, else of any; paused ones and those that a worker drives just now are none of them.
    `diverged` are the runs that a build cannot continue, counted by build. `needed` are the runs, of whatever version,
    that no live worker of another version could drive; `beside`, whether one of another version is there at all, and
    `stoppable`, whether no run of any tenant needs the live workers of this version.
    """

    agent: str
    version: str
    runs: Counter[str] = field(default_factory=Counter)
    pinned: int = 0
    unserved: int = 0
    workers: Counter[str] = field(default_factory=Counter)
    diverged: Counter[str] = field(default_factory=Counter)
    needed: Needed = field(default_factory=Needed)
    beside: bool = False
    stoppable: bool = False


async def standings(store: Surveyed, tenant: str = "") -> list[Standing]:
    """All versions of all agents that have open runs or live workers, by agent and version; of one tenant, if asked."""
    alive = await store.workers(within_ms=ALIVE_MS)
    serving = builds_of(alive)
    found: dict[tuple[str, str], Standing] = {}
    _count_workers(found, alive)
    async for page in open_pages(store):
        for seen in page:
            if tenant in ("", seen.row.tenant):
                drivers = fit(seen, serving)
                _count(_of(found, seen.row.agent, seen.row.version), seen, served=bool(drivers))
                _need(found, seen, {one.version for one in drivers})
    for (agent, version), standing in found.items():
        standing.beside = any(one.version != version for one in serving.get(agent, ()))
        standing.stoppable = not tenant and bool(standing.workers) and standing.beside and not standing.needed.runs
    return [found[key] for key in sorted(found)]


def _of(found: dict[tuple[str, str], Standing], agent: str, version: str) -> Standing:
    return found.setdefault((agent, version), Standing(agent, version))


def _count_workers(found: dict[tuple[str, str], Standing], alive: list[WorkerRow]) -> None:
    for worker in alive:
        for agent, build in worker.serves.items():
            _of(found, agent, worker.versions.get(agent, "")).workers[build] += 1


def _need(found: dict[tuple[str, str], Standing], seen: Seen, versions: set[str]) -> None:
    """A run needs the one version whose workers could drive it; one that none could drive, its pin's or its own."""
    row = seen.row
    if len(versions) > 1:
        return
    standing = _of(found, row.agent, next(iter(versions), row.pin or row.version))
    standing.needed.runs += 1
    standing.needed.pinned += row.pin is not None
    standing.needed.diverged.update(() if row.pin is not None else seen.diverged)


def _count(standing: Standing, seen: Seen, *, served: bool) -> None:
    row = seen.row
    standing.runs[row.status] += 1
    standing.pinned += row.pin is not None
    standing.unserved += not served and row.status != "running" and row.paused_at is None
    standing.diverged.update(seen.diverged)
