"""Looks at the runs as anyone with the store can: rows, logs, operations, and which worker holds what."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from examples.dunning.waiting import epoch_ms
from outlive.app.inspect import Line, lines
from outlive.model.ids import RunId, Tenant
from outlive.model.operation import SETTLED, OperationRow
from outlive.model.run import RunRow
from outlive.store.port import Store

TENANT = Tenant("default")
_AN_HOUR_MS = 3_600_000


@dataclass(slots=True)
class Watched:
    """One run as it was at the last look."""

    row: RunRow
    lines: list[Line] = field(default_factory=list)
    operations: list[OperationRow] = field(default_factory=list)

    @property
    def done(self) -> int:
        return sum(one.status in SETTLED for one in self.operations)

    @property
    def stuck(self) -> bool:
        """Whether only a person can let it go on."""
        return self.row.status == "blocked"


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker's death: when (ms since 1970), and the runs that it held."""

    at: int
    pid: int
    held: tuple[str, ...]
    how: str
    on_cue: bool = False


class Watch:
    """What is known of a set of runs, brought up to date by `look`."""

    def __init__(self, store: Store, ids: Sequence[str]) -> None:
        self.runs: dict[str, Watched] = {}
        self.kills: list[Kill] = []
        self._store, self._ids = store, [RunId(one) for one in ids]
        self._pids: dict[str, int] = {}

    async def look(self) -> None:
        for worker in await self._store.workers(within_ms=_AN_HOUR_MS):
            self._pids[worker.owner] = worker.pid
        for id in self._ids:
            row = await self._store.run(TENANT, id)
            if row is None:
                continue
            known = self.runs.setdefault(id, Watched(row))
            known.row = row
            after = known.lines[-1].seq if known.lines else -1
            fresh = [line async for line in lines(self._store, TENANT, id, after=after)]
            if fresh:
                known.lines += fresh
                known.operations = await self._store.operations(TENANT, id)

    @property
    def done(self) -> int:
        """Invoices whose fate is known and recorded."""
        return sum(run.done for run in self.runs.values())

    @property
    def ended(self) -> bool:
        return all(run.row.ended for run in self.runs.values())

    @property
    def at_rest(self) -> bool:
        """Whether nothing moves any more unless a person decides."""
        return all(run.row.ended or run.stuck for run in self.runs.values())

    def pid(self, run: Watched) -> int | None:
        """The process that holds a run."""
        owner = run.row.owner if run.row.status == "running" else None
        return self._pids.get(owner) if owner is not None else None

    def held_by(self, pid: int) -> tuple[str, ...]:
        return tuple(id for id, run in self.runs.items() if self.pid(run) == pid)

    def killed(self, pid: int, how: str, *, at: int | None = None, on_cue: bool = False) -> Kill:
        """Note a death; what the worker held is what the last look says. `on_cue`: the bank had acted by then."""
        kill = Kill(at if at is not None else epoch_ms(), pid, self.held_by(pid), how, on_cue)
        self.kills.append(kill)
        return kill

    def longest_gap(self) -> float:
        """The longest time, in seconds, from a kill to the next new entry of a run that the dead worker held."""
        gaps = [
            min((line.at for line in self.runs[id].lines if line.at > kill.at), default=kill.at) - kill.at
            for kill in self.kills
            for id in kill.held
        ]
        return max(gaps, default=0) / 1000
