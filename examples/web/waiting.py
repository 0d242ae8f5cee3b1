"""The time of day, in the one file of this example that may look at it."""

import time


def seconds() -> float:
    """Since 1970, by this machine's clock."""
    return time.time()
