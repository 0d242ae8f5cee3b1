"""The telling port: notifications, the routes that they go over, and how far each delivery has come.

A notification is written by the append that it tells of, or once for a fact that time brings about. What was delivered
is recorded after it was, so that a worker that dies between the two delivers it again under the same id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from outlive.model.ids import RunId, Tenant
from outlive.model.notice import Notice, Notification

Unrouted = Literal["new", "kept"]


@dataclass(frozen=True, slots=True)
class Due:
    """A delivery that is due: how often it was tried, and for how long it has failed."""

    notification: Notification
    attempts: int = 0
    failing_ms: int = 0


@dataclass(frozen=True, slots=True)
class Nearing:
    """A run whose deadline is near and of which nobody was told yet, and how long there is left."""

    tenant: Tenant
    run: RunId
    status: str
    reason: str
    deadline_at: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class Standstill:
    """A run that stands still, at the entry `seq`, with its worker: for how long the event loop has not turned, whether
    this run is known to block it, and how many runs it has.
    """

    tenant: Tenant
    run: RunId
    seq: int
    owner: str
    pid: int
    for_ms: int
    blocks: bool
    runs: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far a notification has come over one route."""

    route: str
    attempts: int
    next_at: int
    failing_since: int | None
    delivered_at: int | None
    given_up_at: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Told:
    """A notification and its deliveries. Without any, no route has taken it so far."""

    notification: Notification
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True, slots=True)
class RouteState:
    """A route: deliveries that are open or were given up, since when it fails, and the newest error of an open one."""

    route: str
    open: int
    given_up: int
    failing_since: int | None
    error: str


@dataclass(frozen=True, slots=True)
class Untold:
    """Notifications that no route has taken: how many, and when the oldest was written."""

    count: int
    since: int | None


@runtime_checkable
class Telling(Protocol):
    """What has to be told, and what became of it."""

    async def nearing(self, *, lead_ms: int, limit: int, now: int | None = None) -> list[Nearing]:
        """Open runs not told of yet, whose deadline is at most `lead_ms` and a tenth of their time away."""
        ...

    async def has_deadlines(self) -> bool:
        """Whether any run that has not ended has a deadline."""
        ...

    async def standstills(self, *, limit: int, now: int | None = None) -> list[Standstill]:
        """Runs of live workers whose event loop does not turn, that were not told of where they stand: of each worker
        the run that blocks it, or its first one where that is not known.
        """
        ...

    async def tell(self, tenant: Tenant, run: RunId, notice: Notice, *, now: int | None = None) -> bool:
        """Write a notification outside of an append, of the entry whose seq is `notice.place`.

        False, with nothing written, when that fact was told before, or the run is not there.
        """
        ...

    async def unrouted(self, state: Unrouted, *, after: int, limit: int) -> list[Notification]:
        """Notifications that no route has taken, in order, behind that position."""
        ...

    async def assign(self, routes: Sequence[tuple[Notification, Sequence[str]]], *, now: int | None = None) -> None:
        """Say which routes each notification goes over, in one commit; with none it is kept.

        A delivery is due at once, but not before an earlier one of the same run and route that is open.
        """
        ...

    async def due_deliveries(self, route: str, *, limit: int, now: int | None = None) -> list[Due]:
        """Open deliveries of a route that are due, in the order of their notifications."""
        ...

    async def next_delivery(self, routes: Sequence[str], *, now: int | None = None) -> int | None:
        """Milliseconds until the next open delivery of these routes is due, 0 or less if one is; None without any."""
        ...

    async def delivered(self, notification: Notification, route: str, *, now: int | None = None) -> None:
        """The receiver has it."""
        ...

    async def undelivered(
        self, notification: Notification, route: str, *, error: str, after_ms: int | None, now: int | None = None
    ) -> None:  # fmt: skip
        """It could not be delivered: due again in so many milliseconds, and later ones of its run not before it.

        With None it is given up, and those behind it are due.
        """
        ...

    async def is_moot(self, notification: Notification, *, now: int | None = None) -> bool:
        """Whether nobody has to do any more what it asks for: a question was answered, an approval decided, or over."""
        ...

    async def drop_delivery(
        self, notification: Notification, route: str, *, why: str, now: int | None = None
    ) -> None:  # fmt: skip
        """Give an open delivery up before it was tried; those behind it are due."""
        ...

    async def notifications(self, tenant: Tenant, *, undelivered: bool, limit: int) -> list[Told]:
        """Newest first; `undelivered` leaves out what every route that takes it has delivered."""
        ...

    async def routes(self) -> list[RouteState]:
        """Routes that have deliveries which are open or were given up, by name."""
        ...

    async def untold(self) -> Untold:
        """Of all tenants, what no route has taken."""
        ...
