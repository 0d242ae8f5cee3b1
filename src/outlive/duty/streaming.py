"""The duty that takes away text on its way whose worker has died, and whose run nobody has gone on with."""

from __future__ import annotations

from datetime import timedelta

from outlive.duty.rota import Done, Shift
from outlive.store.streaming import Streaming

# How old it is then; what a call streams that takes longer is seen by those who follow it already.
OLDEST = timedelta(hours=1)


class DeltasDuty:
    """The duty."""

    name = "deltas"
    due = timedelta(hours=1)

    def __init__(self, store: Streaming) -> None:
        self._store = store

    async def work(self, shift: Shift) -> Done:
        """See `Duty`."""
        dropped = await self._store.drop_deltas(older_ms=int(OLDEST.total_seconds() * 1000))
        return Done(f"dropped {dropped} pieces of streamed text", idle=not dropped)
