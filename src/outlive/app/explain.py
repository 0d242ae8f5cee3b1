"""Why a run that has not ended is as it is: pure, from its row and who is there to drive it.

Exactly one explanation holds for each run: a place in a queue that a live worker serves, a live lease, a timer or an
awaited message, an operator's pause, a named reason for being blocked. Where none does, it is *none*, and says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from outlive.model.ids import Owner
from outlive.model.run import CANCELLING, STATUSES, RunRow
from outlive.store.port import WorkerRow
from outlive.store.survey import Seen

Kind = Literal["queue", "lease", "timer", "message", "pause", "blocked", "none"]
Fault = Literal["unexplained run", "unserved run", "lapsed lease", "stalled run"]

# How late what a live worker does within seconds may be before somebody should look.
LATE_MS = 60_000
_TAKEOVER_MS = 15_000


@dataclass(frozen=True, slots=True)
class Explanation:
    """What explains a run. `fault` says what breaks the rule where nothing does."""

    kind: Kind
    why: str
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """A version of an agent, and the build of the code that has it."""

    version: str
    build: str


def builds_of(workers: Iterable[WorkerRow]) -> dict[str, frozenset[Served]]:
    """What the workers serve of each agent."""
    found: dict[str, frozenset[Served]] = {}
    for worker in workers:
        for agent, build in worker.serves.items():
            found[agent] = found.get(agent, frozenset()) | {Served(worker.versions.get(agent, ""), build)}
    return found


def stall_of(worker: WorkerRow, now: int) -> str:
    """Since when the event loop of a worker has not turned, and which run blocks it; empty where it turns."""
    if worker.stalled_at is None:
        return ""
    by = f": run {worker.stalled_by} blocks it" if worker.stalled_by else ""
    return f"its event loop has not turned for {_seconds(now - worker.stalled_at)}{by}"


def explain(
    seen: Seen, serving: Mapping[str, frozenset[Served]], now: int, stalled: Mapping[Owner, str] | None = None
) -> Explanation:
    """What explains the run at `now` by the database's clock; `serving` is what live workers serve.

    `stalled` are the owners whose event loop does not turn, with what is known of it.
    """
    found = _explained(seen, serving, now, stalled)
    if found.fault in ("unserved run", "lapsed lease") and (seen.asked or seen.row.reason == CANCELLING):
        what = "is being cancelled" if seen.row.reason == CANCELLING else "was asked to end, or to be paused"
        return replace(found, why=f"{found.why}; it {what}: outlive cancel {seen.row.id} ends it, as any worker will")
    return found


def _explained(
    seen: Seen, serving: Mapping[str, frozenset[Served]], now: int, stalled: Mapping[Owner, str] | None
) -> Explanation:  # fmt: skip
    row = seen.row
    if wrong := f"its row is damaged: {row.damaged}" if row.damaged else _contradiction(row):
        return Explanation("none", wrong, "unexplained run")
    if row.paused_at is not None:
        return Explanation("pause", "an operator paused it")
    if row.status == "running":
        why = (stalled or {}).get(row.owner or Owner(""))
        return _leased(seen, serving, now) if not why else Explanation("lease", f"{row.owner}: {why}", "stalled run")
    if row.deadline_at is not None and now > row.deadline_at + LATE_MS:
        why = f"its deadline passed {_seconds(now - row.deadline_at)} ago, and nobody has ended it"
        return Explanation("none", why, "unexplained run")
    if row.status == "ready":
        return _queued(seen, serving, "it is ready")
    if row.status == "blocked":
        return Explanation("blocked", row.reason)
    return _waiting(seen, serving, now)


def _contradiction(row: RunRow) -> str:
    """What no run can be, however it came here."""
    if row.status not in STATUSES:
        return f"its status is {row.status!r}, which is none"
    if row.ended:
        return f"it has {row.status}, but when it ended is not recorded"
    if row.status == "running" and (row.owner is None or row.expires_at is None):
        return "it is running, but has no lease"
    if row.status != "running" and (row.owner is not None or row.expires_at is not None):
        return f"it is {row.status}, but {row.owner or 'somebody'} has a lease of it"
    if row.status == "blocked" and not row.reason:
        return "it is blocked for no reason that is named"
    if row.status == "waiting" and row.wake_at is None and not row.reason:
        return "it waits for neither a time nor a message"
    return ""


def _leased(seen: Seen, serving: Mapping[str, frozenset[Served]], now: int) -> Explanation:
    row = seen.row
    assert row.expires_at is not None
    late = now - row.expires_at
    if late <= 0:
        return Explanation("lease", f"{row.owner} drives it")
    taken = bool(fit(seen, serving))
    if taken and late <= _TAKEOVER_MS + (row.lease_ms or 0) // 3:
        return Explanation("lease", f"the lease of {row.owner} has just lapsed, and another worker takes it over")
    why = f"the lease of {row.owner} lapsed {_seconds(late)} ago, and nobody took it over"
    return Explanation("none", why if taken else f"{why}: {_nobody(seen, serving)}", "lapsed lease")


def _queued(seen: Seen, serving: Mapping[str, frozenset[Served]], why: str) -> Explanation:
    if fit(seen, serving):
        return Explanation("queue", why)
    return Explanation("none", f"{why}, and {_nobody(seen, serving)}", "unserved run")


def _waiting(seen: Seen, serving: Mapping[str, frozenset[Served]], now: int) -> Explanation:
    row = seen.row
    if seen.unread:
        return _queued(seen, serving, "something has arrived for it")
    if row.wake_at is None:
        return Explanation("message", row.reason)
    if row.wake_at > now:
        return Explanation("timer", row.reason or "a timer")
    return _queued(seen, serving, "its time has come")


def fit(seen: Seen, serving: Mapping[str, frozenset[Served]]) -> frozenset[Served]:
    """What is served of a run's agent that may drive it: as its pin asks, in a build that has not diverged from it."""
    return frozenset(one for one in _allowed(seen.row, serving) if one.build not in seen.diverged)


def _allowed(row: RunRow, serving: Mapping[str, frozenset[Served]]) -> frozenset[Served]:
    served = serving.get(row.agent, frozenset())
    return served if row.pin is None else frozenset(one for one in served if one.version == row.pin)


def _nobody(seen: Seen, serving: Mapping[str, frozenset[Served]]) -> str:
    agent, pin = seen.row.agent, seen.row.pin
    version = f" version {pin}, to which it is pinned" if pin is not None and agent in serving else ""
    if _allowed(seen.row, serving):
        return f"every build of {agent} that a live worker serves has diverged from it"
    return f"no live worker serves {agent}{version}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000} s"
