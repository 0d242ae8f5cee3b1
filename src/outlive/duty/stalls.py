"""The duty that finds workers whose event loop does not turn, and has somebody told: their runs stand still.

A worker that is stuck cannot say so to anybody; another one does it for it, once for each entry at which a run stands.
"""

from __future__ import annotations

from datetime import timedelta

from outlive.duty.rota import Done, Shift
from outlive.model.clock import Clock
from outlive.model.notice import Notice
from outlive.store.telling import Standstill, Telling

_PAGE = 200


class StallsDuty:
    """The duty. A worker that is stuck makes it due at once, see the store's `duty_due`."""

    name = "stalls"
    due = timedelta(hours=1)

    def __init__(self, store: Telling, clock: Clock) -> None:
        self._store, self._clock = store, clock

    async def work(self, shift: Shift) -> Done:
        """See `Duty`."""
        told = 0
        for one in await self._store.standstills(limit=_PAGE):
            told += await self._store.tell(one.tenant, one.run, self._notice(one))
            if not await shift.goes_on():
                break
        return Done(f"told of {told} stalled runs", idle=not told)

    def _notice(self, one: Standstill) -> Notice:
        facts = {"worker": one.owner, "pid": one.pid, "for_s": one.for_ms // 1000, "blocks": one.blocks,
                 "runs": one.runs}  # fmt: skip
        return Notice("stalled run", self._clock.token(), one.seq, facts=facts)
