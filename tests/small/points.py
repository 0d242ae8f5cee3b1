"""Points at which a process stands still until it is killed, or told to go on.

A test arms one by making a file of its name. The first process that comes by takes the file, and says that it is there.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.small.waiting import nap

POINTS = "POINTS"


def armed(point: str) -> bool:
    """Whether it was. It is not any more."""
    here = Path(os.environ[POINTS])
    try:
        os.unlink(here / point)
    except FileNotFoundError:
        return False
    (here / f"reached {point}").touch()
    return True


def passed(point: str) -> None:
    """Stand still at it, if it is armed, until its test says *go on*."""
    if not armed(point):
        return
    while not (Path(os.environ[POINTS]) / f"go on {point}").exists():
        nap()
