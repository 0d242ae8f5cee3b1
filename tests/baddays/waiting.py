"""The one place where these tests meet real time: a bounded wait for a condition, and a pause of a disaster."""

import time
from collections.abc import Callable


def until_now(look: Callable[[], bool], what: str, *, within: float = 60.0) -> None:
    """Return once `look` says so; AssertionError when it has not for so many seconds. Blocks its thread."""
    end = time.monotonic() + within
    while not look():
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.02)


def last(seconds: float) -> None:
    """Let a disaster last so long. What is tested must not depend on how long exactly. Blocks its thread."""
    time.sleep(seconds)
