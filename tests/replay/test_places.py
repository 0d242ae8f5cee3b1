"""The gate lets the code that has recorded a run go on with it, wherever that stands: in all beginnings of all logs.

A gate that is wrong about one run in a thousand is switched off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

import tests.corpus.agents  # noqa: F401 - it adds agents to the application
from outlive.duty.bundle import _entry
from outlive.gate.judge import Bench, judge
from outlive.gate.judged import Judged
from outlive.gate.recorded import Recorded
from outlive.gate.watch import the_watch
from outlive.log.entry import Entry
from outlive.model.ids import DEFAULT_TENANT, RunId, Tenant
from outlive.model.run import Head, RunRow, Status
from outlive.store.port import Store
from tests.corpus import people
from tests.corpus.deck import KEY
from tests.corpus.tape import Tape, live, named, recorded

# Both stores record the same; one of them is enough for what no store has a part in. No agent's code drives a rollback.
ENDED = [path for path in recorded() if path.parent.name == "sqlite" and not Tape.of(path).row["rolls_back"]]
LIVE = [path for path in live() if "sqlite" in path.parts and not Tape.of(path).row["rolls_back"]]
# Their code was changed under them.
CHANGED = ("adopted", "diverged")


@dataclass
class Pages:
    """Of a store, what a harness reads while it repeats a run: its log."""

    log: list[Entry]
    name: str = "pages"

    async def entries(self, tenant: Tenant, run: RunId, *, after: int = -1, limit: int = 1000) -> list[Entry]:
        return [one for one in self.log if one.seq > after][:limit]


def row_of(tape: Tape, log: Sequence[Entry]) -> RunRow:
    """The row of a run that a worker has, with this log."""
    columns = tape.row
    last = log[-1]
    return RunRow(
        DEFAULT_TENANT, tape.run, str(columns["agent"]), str(columns["version"]), "running", last.epoch,
        Head(last.seq + 1, last.digest), 0, 0, "", RunId(str(columns["origin"])),
    )  # fmt: skip


def window(log: Sequence[Entry]) -> list[Entry]:
    """The prologue and the last turn, as a store gives them."""
    turns = [one.seq for one in log if one.kind == "turn"]
    return [one for one in log if not turns or one.seq < turns[0] or one.seq >= turns[-1]]


async def judged(tape: Tape, keep: int, status: Status = "running") -> Judged:
    log = [_entry(one) for one in tape.entries[:keep]]
    bench = Bench(people.app.registry, cast("Store", Pages(log)), the_watch(), deps=object())
    return await judge(bench, Recorded(replace(row_of(tape, log), status=status), window(log), KEY, DEFAULT_TENANT))


@pytest.mark.parametrize("path", ENDED, ids=named)
async def test_a_log_that_has_ended_is_the_same(path: Path) -> None:
    tape = Tape.of(path)
    told = await judged(tape, len(tape.entries), cast("Status", tape.row["status"]))
    assert told.verdict == "same", told.said()


# A log may begin in the middle of what was written at once: then code that was to be cancelled is never begun.
@pytest.mark.filterwarnings("ignore:.*Run._call")
@pytest.mark.parametrize("path", [path for path in ENDED if path.stem not in CHANGED], ids=named)
async def test_each_beginning_of_a_log_goes_on(path: Path) -> None:
    tape = Tape.of(path)
    for keep in range(2, tape.end):
        told = await judged(tape, keep)
        assert told.good, f"{named(path)} up to entry {keep - 1}: {told.said()}"


@pytest.mark.parametrize("path", LIVE, ids=named)
async def test_a_run_that_stands_still_goes_on(path: Path) -> None:
    tape = Tape.of(path)
    told = await judged(tape, len(tape.entries), cast("Status", tape.row["status"]))
    assert told.good or (path.stem in CHANGED and told.verdict == "needs adoption"), told.said()
