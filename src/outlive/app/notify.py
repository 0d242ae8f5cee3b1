"""Who is told, for the command line: what has to be told and what became of it, and a test of every route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from outlive.app.compose import secrets_of
from outlive.app.outlive import Outlive
from outlive.app.settings import Settings
from outlive.duty.route import Route
from outlive.duty.telling import Sender
from outlive.model.clock import SystemClock, machine_now
from outlive.model.ids import RunId, Tenant
from outlive.model.notice import Notification
from outlive.secret.scrubber import Scrubber
from outlive.store.keeping import Kept
from outlive.store.telling import Told

__all__ = ["Told", "Tried", "listed", "try_routes"]


@dataclass(frozen=True, slots=True)
class Tried:
    """A route, and what it answered to a test."""

    route: Route
    delivered: bool
    said: str


async def listed(store: Kept, tenant: str, *, undelivered: bool, limit: int) -> list[Told]:
    """Notifications of a tenant, newest first."""
    return await store.notifications(Tenant(tenant), undelivered=undelivered, limit=limit)


async def try_routes(app: Outlive[object] | None, settings: Settings) -> AsyncIterator[Tried]:
    """Send a test over every route, whatever kinds and roles it takes. No store is asked, and nothing is stored."""
    clock = SystemClock()
    secrets = (app.secrets if app is not None else None) or secrets_of(settings)
    sender = Sender(clock, secrets, Scrubber())
    for route in settings.notify.every:
        test = Notification(
            Tenant(settings.tenant), RunId(""), "", 0, "test", f"test-{clock.token()}", "", {}, machine_now()
        )
        answer = await sender.send(route, test)
        yield Tried(route, answer.delivered, answer.said)
