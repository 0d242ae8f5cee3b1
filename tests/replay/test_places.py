"""Where a run stands, as the gate sees it: at a call in doubt, in a branch that was cancelled, in a clean-up, in a turn."""

import asyncio
import json

from outlive.app.compose import open_store, worker_of
from outlive.app.settings import Settings
from outlive.cli import codes
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.model.run import RunRow
from outlive.testing import ManualClock
from outlive.testing.faults import Died, Fault, FaultyStore
from tests.replay.conftest import Cli
from tests.replay.releases import Releases
from tests.replay.test_verb import judged, replayed
