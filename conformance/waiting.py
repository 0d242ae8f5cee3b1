"""The real clock of the kit: other processes are waited for here, by conditions wherever there is one."""

import threading
import time
from collections.abc import Callable


class TooLate(Exception):
    """A condition did not come about in time."""


def now() -> float:
    """Seconds of a clock that only goes forward."""
    return time.monotonic()


def pause(seconds: float) -> None:
    time.sleep(seconds)


def until(reached: Callable[[], bool], what: str, limit: float, every: float = 0.05) -> None:
    """Return when `reached` says so. Raises TooLate after `limit` seconds."""
    end = now() + limit
    while not reached():
        if now() > end:
            raise TooLate(f"not within {limit:g} s: {what}")
        pause(every)


def waited(changed: threading.Condition, reached: Callable[[], bool], what: str, limit: float) -> None:
    """Like `until`, woken by a condition whose lock is held."""
    if not changed.wait_for(reached, limit):
        raise TooLate(f"not within {limit:g} s: {what}")
