"""What is done to engines; importing this package collects all scenarios."""

from conformance.scenarios import code, crashes, database, size, waits, workers
from conformance.scenarios.stage import SCENARIOS, Scenario, Stage

__all__ = ["SCENARIOS", "Scenario", "Stage", "code", "crashes", "database", "size", "waits", "workers"]
