"""The one place where these tests meet real time: a bounded wait for a condition, in a process or beside it."""

import time
from collections.abc import Callable


def until(look: Callable[[], object], what: str, *, within: float = 60.0) -> None:
    """Wait until `look` gives something; AssertionError when it has given nothing for so many seconds."""
    end = time.monotonic() + within
    while not look():
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.01)
