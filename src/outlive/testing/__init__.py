"""What a test needs: the lab, clocks that stand still, and the suites that every adapter of a port must pass."""

from outlive.testing.bundles import assert_replays
from outlive.testing.clock import ManualClock
from outlive.testing.faults import Died, Fault, FaultyStore
from outlive.testing.lab import Lab, lab
from outlive.testing.post import Mail
from outlive.testing.sweep import SweepReport
from outlive.testing.world import Stuck

__all__ = [
    "Died",
    "Fault",
    "FaultyStore",
    "Lab",
    "Mail",
    "ManualClock",
    "Stuck",
    "SweepReport",
    "assert_replays",
    "lab",
]
