"""`outlive worker`, which tells the kit when it serves."""

from __future__ import annotations

import sys

from conformance.adapters import common
from conformance.adapters.outlive import agent
from outlive.cli import main

if __name__ == "__main__":
    assert agent.app
    common.ready()
    lease = f"{common.LEASE_S:g}s"
    sys.argv = ["outlive", "worker", "conformance.adapters.outlive.agent:app", "--lease", lease]
    main()
