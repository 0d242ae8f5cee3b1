"""The keeping port: what belongs to no run and one worker at a time does, and how runs leave a store.

A duty's lease is by the database's clock and its token is compared on every write, as a run's is. What is forgotten is
decided once more in the transaction that forgets it, so that two workers at one duty do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.run import Status
from outlive.store.bundles import Bundles
from outlive.store.streaming import Streaming
from outlive.store.survey import Surveyed
from outlive.store.telling import Telling


@dataclass(frozen=True, slots=True)
class DutyRow:
    """A duty as the store knows it: when it is due, who is at it, and what was said when it was last done."""

    name: str
    next_at: int
    owner: Owner | None = None
    expires_at: int | None = None
    done_at: int | None = None
    report: str = ""


@dataclass(frozen=True, slots=True)
class Aged:
    """A run that ended long enough ago. `why` says what keeps it nevertheless; empty: nothing does."""

    tenant: Tenant = Tenant("")
    run: RunId = RunId("")
    ended_at: int = -1
    why: str = ""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What one commit has taken away.

    `left` are those that may go and have entries left: the next commit goes on with them. `blobs` are those that the
    entries named, by tenant and address; others may still need them.
    """

    runs: int = 0
    entries: int = 0
    left: tuple[Aged, ...] = ()
    blobs: tuple[tuple[Tenant, str], ...] = ()


class Duties(Protocol):
    """Who does what belongs to no run."""

    async def enlist(self, names: Sequence[str], *, now: int | None = None) -> None:
        """Make duties known; each that is new is due at once."""
        ...

    async def take_duty(
        self, name: str, *, owner: Owner, token: str, lease_ms: int, now: int | None = None
    ) -> bool:  # fmt: skip
        """Whether the duty is now ours: it was due, and nobody was at it or their lease had expired."""
        ...

    async def keep_duty(self, name: str, token: str, *, lease_ms: int, now: int | None = None) -> bool:
        """Extend the lease of a duty; False when the token is not its own any more."""
        ...

    async def leave_duty(
        self, name: str, token: str, *, after_ms: int, report: str, now: int | None = None
    ) -> bool:  # fmt: skip
        """Give a duty back, due again in so many milliseconds; False when the token is not its own any more."""
        ...

    async def duties(self) -> list[DutyRow]:
        """All that are known, by name."""
        ...


class Forgetting(Protocol):
    """How ended runs go."""

    async def aged(
        self, status: Status, *, older_ms: int, after: Aged, limit: int, now: int | None = None
    ) -> list[Aged]:  # fmt: skip
        """Runs of all tenants that ended so long ago with this status, behind `after`, the longest ago first.

        One is kept for an operation in doubt, an unread message, a run that has not ended and is of the same tree or
        the same origin or rolls it back, and while it was imported less long ago.
        """
        ...

    async def forget(
        self, status: Status, runs: Sequence[Aged], *, older_ms: int, most: int, now: int | None = None
    ) -> Forgotten:
        """Take away, in one commit, those of these runs that nothing keeps, with at most so many entries.

        What keeps a run is judged again here. One that has more entries goes in several commits: the rest of it is for
        the next call, its row is the last to go, and nothing is posted to it meanwhile. One that somebody is just
        writing to is left.
        """
        ...

    async def drop_blobs(self, blobs: Sequence[tuple[Tenant, str]]) -> int:
        """Take away, in one commit, those of these blobs that no entry names; how many that were.

        An append that names one at this moment has it, whichever commits first.
        """
        ...


@runtime_checkable
class Kept(Surveyed, Duties, Forgetting, Bundles, Telling, Streaming, Protocol):
    """A store that can be surveyed and kept in order, whose runs can be carried away, with what has to be told."""
