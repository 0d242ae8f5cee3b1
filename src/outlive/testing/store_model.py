"""The store as a pure model: what a run is, who may append, who may claim. The property test holds stores to it.

It says nothing about concurrency, only what each command does when it is alone; and `explain` is the invariant that
every run which has not ended is accounted for by exactly one thing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from outlive.model.run import ENDED, RunRow, Status


@dataclass
class ModelRun:
    """One run. `holder` is who may append, by epoch; None when nobody may."""

    status: Status = "ready"
    epoch: int = 0
    holder: int | None = None
    owner: str | None = None
    entries: list[str] = field(default_factory=lambda: ["started"])
    expires_at: int | None = None
    wake_at: int | None = None
    reason: str = ""
    lapses: int = 0
    deadline_at: int | None = None
    unread: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    diverged: set[str] = field(default_factory=set)
    prologue: int | None = None
    window: int | None = None

    def claimable(self, code: str, watched: bool, now: int) -> bool:
        """Whether a worker with this build may have it."""
        if code in self.diverged or (self.deadline_at is not None and self.deadline_at <= now):
            return False
        match self.status:
            case "ready":
                return True
            case "waiting":
                return bool(self.unread) or (self.wake_at is not None and self.wake_at <= now)
            case "blocked":
                return bool(self.unread) or self.reason in ("diverged", "undecodable")
            case "running":
                return watched and self.expires_at is not None and self.expires_at <= now
            case _:
                return False

    def seizable(self, only: frozenset[Status] | None, unless_live: bool, now: int) -> bool:
        """Whether a controller that asks so may have it."""
        live = self.status == "running" and self.expires_at is not None and self.expires_at > now
        return (only is None or self.status in only) and not (unless_live and live)

    def claim(self, owner: str, lease_ms: int, now: int) -> None:
        """Give it to a worker."""
        self.lapses += self.status == "running"
        self._take(owner)
        self.status, self.owner, self.expires_at, self.wake_at, self.reason = "running", owner, now + lease_ms, None, ""

    def control(self, owner: str, lease_ms: int, now: int) -> None:
        """Give it to a controller (or again to its owner), whatever its status."""
        self._take(owner)
        if self.status == "running":
            self.owner, self.expires_at = owner, now + lease_ms

    def append(self, kind: str, *, turn: bool = False, progress: bool = False, forgive: bool = False) -> None:
        """Store an entry of whoever may."""
        if turn:
            self.window = len(self.entries)
            self.prologue = self.window if self.prologue is None else self.prologue
        if progress or forgive:
            self.lapses = 0
        if forgive:
            self.diverged.clear()
        self.entries.append(kind)

    def change(self, status: Status, reason: str, wake_at: int | None) -> None:
        """End the authority with a status."""
        self.reason = self.reason if self.status in ENDED else reason
        self.status, self.wake_at = status, wake_at if status == "waiting" else None
        self.holder = self.owner = self.expires_at = None

    def replayed(self) -> list[str]:
        """The kinds of entry that a replay needs."""
        if self.prologue is None:
            return self.entries
        return self.entries[: self.prologue] + self.entries[self.window :]

    def _take(self, owner: str) -> None:
        self.epoch += 1
        self.holder = self.epoch
        self.entries.append("claimed")


def explain(row: RunRow) -> list[str]:
    """What accounts for a run: exactly one for each that has not ended, none for each that has."""
    lease = row.owner is not None and row.expires_at is not None and row.lease_ms is not None
    reasons = {
        "a place in the queue": row.status == "ready",
        "a lease": row.status == "running" and lease,
        "a timer or an awaited event": row.status == "waiting",
        "a reason for being blocked": row.status == "blocked" and bool(row.reason),
    }
    if row.paused_at is not None and not row.ended:
        return ["an operator's pause"]
    found = [reason for reason, holds in reasons.items() if holds]
    if row.status != "running" and lease:
        found.append("a lease of a run that does not run")
    if row.status != "waiting" and row.wake_at is not None:
        found.append("a timer of a run that does not wait")
    return found
