"""What each measure is, in words and units, and how its figures become one number that is less where it is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import Spread, ratios
from bench.peers.results import Figure, Report
from bench.peers.roster import ENGINES, Engine


@dataclass(frozen=True, slots=True)
class Subject:
    """A measure. `ratio` is whether it is held against a floor, `more` whether more of it is better."""

    name: str
    title: str
    about: str
    unit: str
    ratio: bool = True
    more: bool = False
    floor: str = "floor"


SUBJECTS = (
    Subject(
        "step", "A step", "One run, step after step: milliseconds from the beginning of one to that of the next, over"
        " the first {first}. The floor is an `INSERT` of a row with as many bytes and its `COMMIT`.", " ms",
    ),
    Subject(
        "operation", "An operation", "A call that acts on the outside, one after the other. Ours is recorded before it"
        " is sent and again when its outcome is known: two commits, which the others do not have. With them such a call"
        " is a step like any other, recorded when it is done, and the figure is that of a step. The floor is one"
        " row.", " ms",
    ),
    Subject(
        "throughput", "Throughput", "{runs} runs of {each} steps, all there when the workers begin; two worker"
        " processes, with Restate one. Steps in a second, between the first tenth of them and the last. The floor is"
        " two processes that insert and commit; who commits for several runs at once can be above it.", "/s", more=True,
    ),
    Subject(
        "start", "From start to first step", "An idle worker, {starts} runs in a round with gaps in step with nothing;"
        " the median of them. The floor is a bare notification and a claim in another process; SQLite has no"
        " notifications, its floor looks every 5 ms.", " ms",
    ),
    Subject(
        "wake", "From a message to the next step", "{waiting} runs wait for a message, {wakes} are sent one; the"
        " median. The floor is the same.", " ms",
    ),
    Subject(
        "recovery", "After a kill", "SIGKILL for the worker after some {killed} steps of a run, another process started"
        " at once: seconds to the next new step, the start of Python and its imports included. Leases are 2 s where an"
        " engine has them and lets them be chosen. The floor is a process that looks for the last row and goes on.",
        " s",
    ),
    Subject(
        "growth", "What a longer run costs", "The time of a step among the last {edge} of a run of {steps}, by that of"
        " one among the first. Each engine keeps all answers, in the way it has for that.", "×", ratio=False,
    ),
    Subject(
        "storage", "What is stored for a step", "Bytes by which the store has grown, for each of the {steps} steps of"
        " a run: tables with their indexes, files without a journal. The floor is a row in a table of the same key.",
        " B",
    ),
    Subject(
        "memory", "What a waiting run holds", "Kilobytes by which the memory of a worker, and of the server where an"
        " engine brings one, has grown for each of {waiting} runs that wait. Less than nothing is noise.", " KB",
        ratio=False,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One engine's figures of one measure; `order` is what rows are sorted by, less being better."""

    engine: Engine
    value: Spread
    floor: Spread | None
    ratio: Spread | None
    order: float
    last: float | None
    """95 in 100 of all samples are no more than this."""

    @property
    def ours(self) -> bool:
        return self.engine.program == "outlive"


def rows(report: Report, subject: Subject) -> list[Row]:
    """The engines that have figures of this measure, the best first."""
    found = []
    for engine in ENGINES:
        # What acts outside is a step, to all who have nothing of their own for it.
        like = "step" if subject.name == "operation" and engine.program != "outlive" else subject.name
        if engine.has(like) and (figures := report.values(engine.name, like)):
            found.append(_row(engine, subject, figures))
    return sorted(found, key=lambda one: one.order)


def _row(engine: Engine, subject: Subject, figures: Sequence[Figure]) -> Row:
    value = Spread.of([one.value for one in figures])
    samples = sorted(sample for one in figures for sample in one.samples)
    last = samples[min(len(samples) - 1, len(samples) * 95 // 100)] if samples else None
    floors = [one.floor for one in figures if one.floor is not None]
    if not subject.ratio or not floors:
        return Row(engine, value, None, None, value.median, last)
    ratio = ratios(value.values, floors)
    order = 1 / ratio.median if subject.more else ratio.median
    return Row(engine, value, Spread.of(floors), ratio, order, last)
