"""The deploy gate in a test of an application: one exported run, replayed with the present code."""

from __future__ import annotations

import os
from typing import TypeVar

from outlive.app.outlive import Outlive
from outlive.gate.choice import unpacked
from outlive.gate.judge import Bench, NoDeps, judge
from outlive.gate.judged import Judged
from outlive.gate.recorded import recorded
from outlive.gate.watch import the_watch
from outlive.store.reading import read_only

D = TypeVar("D")


async def assert_replays(
    bundle: str | os.PathLike[str], app: Outlive[D], *, deps: D | None = None, same: bool = False
) -> Judged:  # fmt: skip
    """Replay an exported run with this application's code; nothing is executed. What the gate says of it.

    Raises AssertionError unless the run is the same or compatible (with `same`, unless it is the same), with what
    differs, at which entry and line. `deps` is what the code finds in `run.deps`; without it, code of an application
    that has any is found when it uses them outside of steps and tools. Raises BadBundle for a file that is none,
    KeyDiffers for one without its key, and UndecodableEntry for a log that cannot be read.

    It runs in this process and on this event loop: unlike `outlive replay` it has the network that the test has.
    """
    app.registry.load()
    async with unpacked([os.fspath(bundle)], None) as (target,):
        found = NoDeps(the_watch()) if deps is None and app.has_deps else deps
        bench = Bench(app.registry, read_only(target.store), the_watch(), found)
        told = await judge(bench, await recorded(target.store, target.tenant, target.run, target.whose))
    if not told.good or (same and told.verdict != "same"):
        ways = "".join(f"\n  {one}" for one in told.remedies)
        raise AssertionError(f"{os.fspath(bundle)}: run {told.run} of {told.agent} {told.said()}{ways}")
    return told
