"""Whom a worker leaves runs to: what live workers serve with another build, and which runs they could drive."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from outlive.model.run import RunRow

# Of as many runs a worker that leaves some to others looks for those that it does not.
LOOKED_THROUGH = 100


@dataclass(frozen=True, slots=True)
class Other:
    """An agent that live workers serve with another build."""

    agent: str
    version: str
    build: str

    def fits(self, run: RunRow) -> bool:
        """Whether it may drive the run, as its pin asks."""
        return run.agent == self.agent and run.pin in (None, self.version)


def left_to(others: Iterable[Other], run: RunRow, diverged: Container[str]) -> bool:
    """Whether one of the others could drive the run, which these builds have diverged on."""
    return any(one.fits(run) and one.build not in diverged for one in others)
