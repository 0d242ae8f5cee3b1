"""The keeping port: what belongs to no run and one worker at a time does, and how runs leave a store.

A duty's lease is by the database's clock and its token is compared on every write, as a run's is. What is forgotten is
decided once more in the transaction that forgets it, so that two workers at one duty do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from outlive.model.ids import Owner, RunId, Tenant
from outlive.model.run import Status
from outlive.store.bundles import Bundles
from outlive.store.columns import Parameters, to_json
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


# How long after its end a run is kept, in milliseconds, by its status. A status that is not named is kept for ever.
Ages: TypeAlias = Mapping[Status, int]
_FOR_EVER = 2**62


def judging(status: Status, older_ms: int, ages: Ages | None) -> Parameters:
    """What the statements that judge a run are told: its own age, and that of the others of its origin."""
    others_ms = older_ms if ages is None else _FOR_EVER
    return {"status": status, "older_ms": older_ms, "ages": to_json(dict(ages or {})), "others_ms": others_ms}


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
        self, status: Status, *, older_ms: int, after: Aged, limit: int, ages: Ages | None = None,
        now: int | None = None,
    ) -> list[Aged]:  # fmt: skip
        """Runs of all tenants that ended so long ago with this status, behind `after`, the longest ago first.

        One is kept for an operation in doubt, anything unread but messages to its code, a run that has not ended and is
        of the same tree or rolls it back, while it was imported less long ago, and while another run of its origin has
        not ended, or is kept: by one of these, or since it ended less long ago than `ages` says (None: than this one).
        """
        ...

    async def forget(
        self, status: Status, runs: Sequence[Aged], *, older_ms: int, most: int, ages: Ages | None = None,
        now: int | None = None,
    ) -> Forgotten:  # fmt: skip
        """Take away, in one commit, those of these runs that nothing keeps, with at most so many entries.

        What keeps a run is judged again here. One that has more entries goes in several commits: the rest of it is for
        the next call, its row is the last to go, and nothing is posted to it meanwhile. With the first run of an origin
        the others begin to go as well: they are not forked any more. What somebody is just writing to is left.
        """
        ...

    async def forget_keys(self, *, older_ms: int, most: int, now: int | None = None) -> int:
        """Take away, in one commit, up to so many business keys that have not changed for so long; how many that were.

        One whose operation may still get an outcome stays, whatever its age.
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
