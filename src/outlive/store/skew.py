"""How far the clock of this machine is from the database's: measured with answers that are asked for anyway, told with
the next sign of life. For people who look; no decision goes by it, since all time here is the database's.
"""

from __future__ import annotations

from outlive.model.clock import Clock, apart


class Skew:
    """By the last answer. May be used from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ms: int | None = None

    def asked(self) -> int:
        """Take the time before a question."""
        return self._clock.wall()

    def answered(self, asked: int, there: int) -> None:
        """Take it again after the answer, which says what the database's clock was in between."""
        self.ms = apart(asked, there, self._clock.wall())
