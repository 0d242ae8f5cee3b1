"""How far two clocks are apart, and what asking may have taken of that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlive.model.clock import apart
from outlive.store.skew import Skew
from outlive.testing.clock import ManualClock


@pytest.mark.parametrize(
    ("asked", "there", "answered", "off"),
    [
        (1000, 1000, 1000, 0),
        (1000, 1400, 2000, 0),
        (1000, 1000, 9000, 0),
        (1000, 9000, 9000, 0),
        (1000, 9500, 9000, 500),
        (1000, 700, 9000, -300),
    ],
)
def test_what_asking_took_is_held_against_no_clock(asked: int, there: int, answered: int, off: int) -> None:
    assert apart(asked, there, answered) == off


def test_the_last_answer_counts() -> None:
    clock = ManualClock()
    skew = Skew(clock)
    assert skew.ms is None
    for ahead, took, off in ((8, 0, -8000), (-8, 3, 5000), (0, 60, 0)):
        clock.wall_ahead = timedelta(seconds=ahead)
        asked, there = skew.asked(), clock.now()
        clock.advance(timedelta(seconds=took))
        skew.answered(asked, there)
        assert skew.ms == (off if took == 0 else off if ahead == 0 else 8000 - took * 1000)
