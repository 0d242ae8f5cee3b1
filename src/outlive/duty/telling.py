"""Somebody is told: notifications go over the routes that take them, again and again until they are delivered.

What was delivered is recorded afterwards, so a worker that dies in between delivers it once more, under the same id.
Deliveries of one run and route keep their order; routes do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from outlive.duty.command import run_command
from outlive.duty.letter import body
from outlive.duty.rota import Done, Shift
from outlive.duty.route import Route
from outlive.duty.webhook import Answer, post, signed
from outlive.model.clock import Clock, machine_now
from outlive.model.errors import SecretMissing, SettingInvalid
from outlive.model.notice import Notice, Notification
from outlive.secret.port import Secrets, read_secret
from outlive.secret.scrubber import Scrubber
from outlive.store.telling import Due, Telling

log = logging.getLogger("outlive.duty")

# For how long a delivery that fails is tried again, and how long it waits between two attempts at most.
PATIENCE = timedelta(days=7)
LONGEST_PAUSE = timedelta(minutes=15)
# After so many failures in a row a route is left alone for a while, and then tried with one delivery at a time.
MOST_FAILURES = 3
LONGEST_REST = timedelta(minutes=5)
# Deliveries of one route that are under way at once, each of another run.
AT_ONCE = 8
DEADLINE_LEAD = timedelta(hours=1)
_PAGE = 200
# What asks somebody to do something, which they may have done before they are told.
_ASKING = ("question", "approval", "reminder")


class Sender:
    """Delivers one notification over one route, once."""

    def __init__(self, clock: Clock, secrets: Secrets, scrubber: Scrubber) -> None:
        self._clock, self._secrets, self._scrubber = clock, secrets, scrubber

    async def send(self, route: Route, notification: Notification) -> Answer:
        """What became of it, in words that hold no secret. A secret that is missing is an answer too."""
        text, within_s = body(notification), route.timeout.total_seconds()
        if route.command:
            answer = await run_command(route.command, text, within_s=within_s)
            return Answer(answer.delivered, self._clean(answer.said))
        try:
            secret = await self._secret(route.secret)
        except (SecretMissing, SettingInvalid) as error:
            return Answer(False, self._clean(str(error)))
        now = self._clock.now()
        at_s = (machine_now() if now is None else now) // 1000
        answer = await post(
            route.url, signed(notification.id, at_s, text, secret), text, within_s=within_s, at_s=at_s
        )  # fmt: skip
        return Answer(answer.delivered, self._clean(answer.said), answer.wait_s)

    async def _secret(self, name: str) -> str:
        if not name:
            return ""
        value = await asyncio.to_thread(read_secret, self._secrets, name)
        self._scrubber.register(name, value)
        return value

    def _clean(self, text: str) -> str:
        """On one line, so that what a receiver says can neither steer a terminal nor write lines of a log."""
        clean = self._scrubber.scrub(text).encode(errors="replace").decode()
        return "".join(one if one.isprintable() else " " for one in clean)


def unsigned(routes: Sequence[Route], secrets: Secrets) -> Iterator[tuple[str, SecretMissing]]:
    """Routes that could deliver nothing, because no provider has the secret that signs. One that fails is not asked."""
    for route in routes:
        try:
            if route.secret:
                read_secret(secrets, route.secret)
        except SecretMissing as missing:
            yield route.name, missing
        except Exception as error:  # noqa: BLE001 - a provider of the application may raise anything
            log.warning("the secret of route %s cannot be read now: %s", route.name, type(error).__name__)


@dataclass(slots=True)
class _Way:
    """A route as this worker knows it: how often it failed in a row, and until when it is left alone."""

    route: Route
    failures: int = 0
    until: float = 0.0
    busy: bool = False


@dataclass(slots=True)
class _Count:
    delivered: int = 0
    failed: int = 0
    given_up: int = 0
    moot: int = 0

    def __str__(self) -> str:
        more = f", gave {self.given_up} up" if self.given_up else ""
        more += f", left {self.moot} out that nobody has to answer any more" if self.moot else ""
        return f"delivered {self.delivered} notifications, {self.failed} attempts failed{more}"


class TellingDuty:
    """The duty. What is new makes it due at once, see the store's `duty_due`."""

    name = "telling"
    due = timedelta(minutes=10)

    def __init__(self, store: Telling, routes: Sequence[Route], sender: Sender, clock: Clock) -> None:
        self._store, self._sender, self._clock = store, sender, clock
        self._ways = [_Way(route) for route in routes]
        self._looked_at_kept = False

    async def work(self, shift: Shift) -> Done:
        """See `Duty`."""
        count = _Count()
        if not self._looked_at_kept:
            await self._assign(shift, "kept")
            self._looked_at_kept = True
        await self._assign(shift, "new")
        try:
            async with asyncio.TaskGroup() as group:
                for way in self._ways:
                    way.busy = True
                    group.create_task(self._serve(way, shift, count))
        except BaseExceptionGroup as several:
            raise _first(several) from None
        return Done(str(count), await self._due_in(shift), idle=not count.delivered + count.failed + count.moot)

    async def _assign(self, shift: Shift, state: str) -> None:
        after = 0
        while found := await self._store.unrouted("new" if state == "new" else "kept", after=after, limit=_PAGE):
            routes = [
                (one, [way.route.name for way in self._ways if way.route.takes(one.kind, one.role)]) for one in found
            ]
            # What was kept and still finds no route needs no word.
            routes = [pair for pair in routes if state == "new" or pair[1]]
            if routes:
                await self._store.assign(routes)
            after = found[-1].position
            if not await shift.goes_on():
                return

    async def _serve(self, way: _Way, shift: Shift, count: _Count) -> None:
        """Deliver what is due over one route; while another one is still busy, also what becomes due meanwhile."""
        try:
            while await shift.goes_on():
                found = await self._page(way, shift)
                if found:
                    await self._deliver(way, found, shift, count)
                    continue
                way.busy = False
                if not any(other.busy for other in self._ways):
                    return
                await self._clock.sleep(1.0)
                await self._assign(shift, "new")
        finally:
            way.busy = False

    async def _page(self, way: _Way, shift: Shift) -> list[Due]:
        if shift.clock() < way.until:
            return []
        return await self._store.due_deliveries(way.route.name, limit=_PAGE)

    async def _deliver(self, way: _Way, found: Sequence[Due], shift: Shift, count: _Count) -> None:
        """Some runs at once, each in its order; one that fails ends the turn of its run."""
        way.busy = True
        runs: dict[tuple[str, str], list[Due]] = {}
        for due in found:
            runs.setdefault((due.notification.tenant, due.notification.run), []).append(due)
        waiting = iter(list(runs.values()))

        async def carry(chains: Iterator[list[Due]]) -> None:
            for chain in chains:
                for due in chain:
                    if shift.clock() < way.until or not await shift.goes_on():
                        return
                    if not await self._once(way, due, shift, count):
                        break

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE if way.failures == 0 else 1):
                group.create_task(carry(waiting))

    async def _once(self, way: _Way, due: Due, shift: Shift, count: _Count) -> bool:
        notification, name = due.notification, way.route.name
        if notification.kind in _ASKING and await self._store.is_moot(notification):
            await self._store.drop_delivery(notification, name, why="nobody has to answer it any more")
            count.moot += 1
            return True
        answer = await self._sender.send(way.route, notification)
        if answer.delivered:
            await self._store.delivered(notification, name)
            way.failures, count.delivered = 0, count.delivered + 1
            return True
        way.failures, count.failed = way.failures + 1, count.failed + 1
        log.warning("notification %s of run %s over %s: %s", notification.id, notification.run, name, answer.said)
        after_ms: int | None = int(1000 * max(answer.wait_s, self._pause_s(due.attempts, LONGEST_PAUSE)))
        if due.failing_ms >= PATIENCE / timedelta(milliseconds=1):
            after_ms, count.given_up = None, count.given_up + 1
            log.error("notification %s of run %s is given up: %s", notification.id, notification.run, answer.said)
        await self._store.undelivered(notification, name, error=answer.said, after_ms=after_ms)
        if way.failures >= MOST_FAILURES:
            rest = max(answer.wait_s, self._pause_s(way.failures - MOST_FAILURES, LONGEST_REST))
            way.until = shift.clock() + rest
        return False

    def _pause_s(self, before: int, longest: timedelta) -> float:
        """Twice as long each time, and never as long for all: many that failed at once do not come back at once."""
        return min(2.0 ** min(before, 30), longest.total_seconds()) * (0.5 + self._clock.random() / 2)

    async def _due_in(self, shift: Shift) -> float | None:
        """When the next delivery is due, of a route that may be tried then. None: as usual."""
        found: list[float] = []
        for way in self._ways:
            due_ms = await self._store.next_delivery([way.route.name])
            if due_ms is not None:
                found.append(max(due_ms / 1000, way.until - shift.clock(), 0.1))
        return min([*found, self.due.total_seconds()]) if found else None


def _first(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error itself, out of the groups of tasks that it has passed."""
    found: BaseException = several
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


class DeadlinesDuty:
    """The duty that finds runs whose deadline is near, each once."""

    name = "deadlines"
    due = timedelta(minutes=5)
    # While there are runs with a deadline.
    soon = timedelta(minutes=1)

    def __init__(self, store: Telling, lead: timedelta, clock: Clock) -> None:
        self._store, self._lead, self._clock = store, lead, clock

    async def work(self, shift: Shift) -> Done:
        """See `Duty`."""
        told, lead_ms = 0, int(self._lead.total_seconds() * 1000)
        while found := await self._store.nearing(lead_ms=lead_ms, limit=_PAGE):
            for one in found:
                at = datetime.fromtimestamp(one.deadline_at / 1000, UTC).isoformat(timespec="seconds")
                facts = {"deadline": at, "left_s": one.left_ms // 1000, "status": one.status, "reason": one.reason}
                notice = Notice("deadline near", self._clock.token(), facts=facts)
                told += await self._store.tell(one.tenant, one.run, notice)
                if not await shift.goes_on():
                    return Done(f"told of {told} deadlines; not done yet", 0.0)
            if len(found) < _PAGE:
                break
        soon = await self._store.has_deadlines()
        return Done(f"told of {told} deadlines", self.soon.total_seconds() if soon else None, idle=not told)
