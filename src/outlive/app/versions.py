"""`outlive versions`: which versions of each agent have runs that have not ended, and who serves them.

It reads the open runs in pages, as the doctor does, and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from outlive.app.explain import builds_of, fit
from outlive.app.operate import ALIVE_MS
from outlive.model.ids import RunId, Tenant
from outlive.store.port import WorkerRow
from outlive.store.survey import Seen, Surveyed

_PAGE = 500


@dataclass(slots=True)
class Standing:
    """One version of an agent: its runs that have not ended, and the live workers that serve this version.

    `workers` are counted by build. `unserved` runs are those that no live worker could drive: of this version where
    they are pinned to it, else of any; paused ones and those that a worker drives just now are none of them.
    `diverged` are the runs that a build cannot continue, counted by build.
    """

    agent: str
    version: str
    runs: Counter[str] = field(default_factory=Counter)
    pinned: int = 0
    unserved: int = 0
    workers: Counter[str] = field(default_factory=Counter)
    diverged: Counter[str] = field(default_factory=Counter)


async def standings(store: Surveyed, tenant: str = "") -> list[Standing]:
    """All versions of all agents that have open runs or live workers, by agent and version; of one tenant, if asked."""
    alive = await store.workers(within_ms=ALIVE_MS)
    serving = builds_of(alive)
    found: dict[tuple[str, str], Standing] = {}
    _count_workers(found, alive)
    after = (Tenant(""), RunId(""))
    while page := await store.open_runs(after=after, limit=_PAGE):
        for seen in page:
            if tenant in ("", seen.row.tenant):
                standing = _of(found, seen.row.agent, seen.row.version)
                _count(standing, seen, served=bool(fit(seen, serving)))
        after = (page[-1].row.tenant, page[-1].row.id)
    return [found[key] for key in sorted(found)]


def _of(found: dict[tuple[str, str], Standing], agent: str, version: str) -> Standing:
    return found.setdefault((agent, version), Standing(agent, version))


def _count_workers(found: dict[tuple[str, str], Standing], alive: list[WorkerRow]) -> None:
    for worker in alive:
        for agent, build in worker.serves.items():
            _of(found, agent, worker.versions.get(agent, "")).workers[build] += 1


def _count(standing: Standing, seen: Seen, *, served: bool) -> None:
    row = seen.row
    standing.runs[row.status] += 1
    standing.pinned += row.pin is not None
    standing.unserved += not served and row.status != "running" and row.paused_at is None
    standing.diverged.update(seen.diverged)
