"""Signals that travel through user code and must not be swallowed by it: they derive from BaseException.

The engine never trusts a signal to arrive: it goes by its own flag (a closed attempt), because `except:`, `finally`
and task groups can swallow or wrap anything.
"""

from __future__ import annotations


class Unwind(BaseException):
    """The attempt is over for the user's code: it suspended, blocked, lost its lease, diverged or is being drained."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotSent(Exception):
    """Raised in a tool: the effect certainly did not happen, so that the retry policy applies."""


class ToldToStop(Exception):
    """Raised by `op.raise_if_lost` when the run is being cancelled: unless the tool knows better, it is in doubt."""
