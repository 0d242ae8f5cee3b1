"""Which worker does a duty, and when: whoever is first takes it when it is due, and keeps its lease while it works.

A worker that dies at it is followed by another one when the lease has expired by the database's clock. Two may be at
one duty for a moment, after a clock has jumped: a duty's own writes have to bear that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from outlive.model.clock import Clock
from outlive.model.errors import StoreError
from outlive.model.ids import Owner
from outlive.store.keeping import Duties

log = logging.getLogger("outlive.duty")

LEASE_S = 60.0
# How soon a duty that failed is tried again.
RETRY_S = 60.0
_REPORT = 2000


@dataclass(frozen=True, slots=True)
class Done:
    """What a duty says of itself, for people; and in how many seconds it is due again, if sooner than usual.

    `idle` says that there was nothing to do: no log needs to tell of it.
    """

    report: str
    due_s: float | None = None
    idle: bool = False


class Duty(Protocol):
    """Something that has to be done again and again, by one worker at a time."""

    name: str
    due: timedelta
    """How long after it was done it is due again."""

    async def work(self, shift: Shift) -> Done:
        """Do it, in small commits; asks between two of them whether the shift goes on, and returns soon when not.

        Two shifts of one duty may overlap: what it writes has to be right then too.
        """
        ...


class Shift:
    """One time that a duty is done by us: its lease, and whether there is time left."""

    def __init__(self, store: Duties, clock: Clock, name: str, token: str) -> None:
        self.stopping = False
        self._store, self._clock, self._name, self._token = store, clock, name, token
        self._renewed = clock.boottime()

    async def goes_on(self) -> bool:
        """Whether the duty is still ours and the worker is not to stop; extends the lease when a third has passed."""
        asked = self._clock.boottime()
        if not self.stopping and asked - self._renewed > LEASE_S / 3:
            lease_ms = int(LEASE_S * 1000)
            if not await self._store.keep_duty(self._name, self._token, lease_ms=lease_ms, now=self._clock.now()):
                log.warning("the duty %s is somebody else's by now", self._name)
                self.stopping = True
            self._renewed = asked
        return not self.stopping

    async def rest(self, since: float) -> None:
        """Wait for as long as what was begun at `since` has taken: others write meanwhile."""
        await self._clock.sleep(min(max(self._clock.boottime() - since, 0.02), 1.0))

    def clock(self) -> float:
        """Seconds, for `rest`."""
        return self._clock.boottime()


class Rotation:
    """The duties of one worker; the engine offers it what is due."""

    def __init__(self, store: Duties, clock: Clock, owner: Owner, duties: Sequence[Duty]) -> None:
        self._store, self._clock, self._owner = store, clock, owner
        self._duties = {one.name: one for one in duties}
        self._shifts: set[Shift] = set()
        self._stopping = False

    async def begin(self) -> None:
        """See the engine's `Rota`."""
        await self._store.enlist(sorted(self._duties), now=self._clock.now())

    async def serve(self, due: Sequence[str]) -> None:
        """See the engine's `Rota`."""
        for name in due:
            if name in self._duties and not self._stopping:
                await self._try(self._duties[name])

    def stop(self) -> None:
        """See the engine's `Rota`."""
        self._stopping = True
        for shift in self._shifts:
            shift.stopping = True

    async def _try(self, duty: Duty) -> None:
        token = self._clock.token()
        if not await self._store.take_duty(
            duty.name, owner=self._owner, token=token, lease_ms=int(LEASE_S * 1000), now=self._clock.now()
        ):
            return
        shift = Shift(self._store, self._clock, duty.name, token)
        self._shifts.add(shift)
        try:
            done = await duty.work(shift)
        except StoreError as error:
            log.warning("the duty %s failed, it is tried again in %g s: %s", duty.name, RETRY_S, error)
            done = Done(f"failed: {error}", RETRY_S)
        except Exception as error:
            log.exception("the duty %s failed, it is tried again in %g s", duty.name, RETRY_S)
            done = Done(f"failed: {type(error).__name__}: {error}", RETRY_S)
        finally:
            self._shifts.discard(shift)
        log.log(logging.DEBUG if done.idle else logging.INFO, "duty %s: %s", duty.name, done.report)
        after = duty.due.total_seconds() if done.due_s is None else done.due_s
        report = done.report.replace("\0", " ").encode(errors="replace").decode()[:_REPORT]
        await self._store.leave_duty(
            duty.name, token, after_ms=int(after * 1000), report=report, now=self._clock.now()
        )  # fmt: skip
