"""The machine that the tests run on. It is shared: who has used it waits before it is theirs again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from outlive.model.clock import Clock


class Taken(Exception):
    """Others are using it. `retry_after` is in seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the machine is taken for {retry_after / 60:.0f} minutes")
        self.retry_after = retry_after


@dataclass
class Machine:
    """Without a clock it is nobody else's."""

    clock: Clock | None = None
    every: timedelta = timedelta(minutes=40)
    _free_at: float = 0.0

    def use(self) -> None:
        """Have it for a moment. Raises Taken."""
        if self.clock is None:
            return
        now = self.clock.boottime()
        if (left := self._free_at - now) > 0:
            raise Taken(left)
        self._free_at = now + self.every.total_seconds()
