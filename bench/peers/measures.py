"""What an engine is asked for, and its floor beside it in the same minutes. All figures are read from what steps leave.

A *step* gives some 600 bytes, and is durable before the next one begins: the time of one is from its beginning to the
beginning of the next.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.figures import percentile
from bench.peers.engines.floor import bell_at
from bench.peers.roster import Engine
from bench.peers.scene import Player, Scene
from bench.peers.speech import AFTER
from bench.recovery import Trace, traces
from bench.waiting import pause, until


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much work a round has."""

    steps: int = 300
    first: int = 150
    edge: int = 40
    operations: int = 100
    runs: int = 60
    each: int = 10
    starts: int = 11
    waiting: int = 100
    wakes: int = 11
    killed: int = 100
    blocks: int = 200


SIZES = Sizes()
SMALL = Sizes(steps=120, first=80, edge=20, operations=40, runs=30, starts=7, waiting=80, wakes=5, killed=50, blocks=80)
LEAST = Sizes(
    steps=30, first=20, edge=5, operations=5, runs=4, each=3, starts=2, waiting=3, wakes=2, killed=5, blocks=20
)
PATIENCE = 120.0
_WARM = 10

Told = Callable[[str, float, float | None, Sequence[float]], None]
"""Takes a figure: the measure, the value, the floor, samples."""


@dataclass(slots=True)
class Both:
    """An engine and its floor, each with a store of its own, and who drives them."""

    engine: Engine
    scene: Scene
    floor: Scene
    client: Player
    sizes: Sizes
    tell: Told

    def asking(self, worker: Player) -> Player:
        """Who starts runs: a process of its own, but where there are no workers."""
        return worker if self.engine.alone else self.client


def lines(file: Path) -> list[Trace]:
    """What steps have left, in the order of time."""
    return sorted(traces(file), key=lambda one: one.at)


def wait_for(file: Path, count: int, every: float = 0.01) -> list[Trace]:
    """Until there are so many lines. Raises TimeoutError."""
    until(lambda: file.exists() and file.read_bytes().count(b"\n") >= count, patience=PATIENCE, every=every)
    return lines(file)


def _reached(file: Path, number: int) -> float:
    """The moment of the line of this number, once it is there. Raises TimeoutError."""
    until(lambda: any(one.number == number for one in traces(file)), patience=PATIENCE, every=0.01)
    return next(one.at for one in traces(file) if one.number == number)


def gap(found: Sequence[Trace]) -> float:
    """Milliseconds from one line to the next."""
    return (found[-1].at - found[0].at) * 1000 / (len(found) - 1)


def sequential(both: Both, worker: Player, client: Player) -> None:
    """One run, step after step: how long the first ones take, and the last; what each leaves in the store."""
    sizes, file = both.sizes, both.scene.file()
    with both.floor.player("blocks") as floor:
        before, empty = floor.ask("insert", count=sizes.blocks)["each"], both.scene.bytes()
        client.ask("start", run="long", steps=sizes.steps, file=str(file))
        wait_for(file, sizes.steps, 0.1)
        after = floor.ask("insert", count=sizes.blocks)["each"]
        found = lines(file)
        base = (before + after) * 500
        both.tell("step", gap(found[_WARM : sizes.first + 1]), base, ())
        early, late = found[_WARM : _WARM + sizes.edge + 1], found[-sizes.edge :]
        both.tell("growth", gap(late) / gap(early), None, ())
        pause(0.3)
        both.tell("storage", (both.scene.bytes() - empty) / sizes.steps, _floor_bytes(both, floor), ())
        if both.engine.program == "outlive":
            file, before = both.scene.file(), floor.ask("insert", count=sizes.blocks)["each"]
            client.ask("start", run="operations", steps=sizes.operations, file=str(file), kind="operation")
            found = wait_for(file, sizes.operations, 0.1)
            after = floor.ask("insert", count=sizes.blocks)["each"]
            both.tell("operation", gap(found[min(_WARM, len(found) - 2) :]), (before + after) * 500, ())


def _floor_bytes(both: Both, floor: Player) -> float:
    """Bytes of a row of the floor."""
    before = both.floor.bytes()
    floor.ask("insert", count=both.sizes.steps)
    return (both.floor.bytes() - before) / both.sizes.steps


def starting(both: Both, worker: Player, client: Player) -> None:
    """From asking for a run to its first step, on a worker with nothing to do."""
    took, floor = list[float](), list[float]()
    with _bell(both.floor) as ring:
        for number in range(both.sizes.starts):
            pause(_pause(number))
            floor.append(ring())
            pause(0.03)
            file = both.scene.file()
            began = client.ask("start", run=f"start-{number}", steps=1, file=str(file))["at"]
            took.append((wait_for(file, 1)[0].at - began) * 1000)
    both.tell("start", percentile(took, 50), percentile(floor, 50), took)


def waking(both: Both, worker: Player, client: Player) -> None:
    """Many runs wait; some are told to go on. What a worker holds of each that waits, and how soon one goes on."""
    sizes, file = both.sizes, both.scene.file()
    before = worker.ask("memory")["mb"] + both.scene.server_mb()
    client.ask("hear", first=0, count=sizes.waiting, file=str(file))
    until(lambda: len({one.number for one in traces(file)}) >= sizes.waiting, patience=PATIENCE, every=0.1)
    pause(1.5)  # what comes after the line has to be done as well
    after = worker.ask("memory")["mb"] + both.scene.server_mb()
    both.tell("memory", (after - before) * 1024 / sizes.waiting, None, ())
    took, floor = list[float](), list[float]()
    step = max(1, sizes.waiting // sizes.wakes)
    with _bell(both.floor) as ring:
        for place in range(sizes.wakes):
            pause(_pause(place))
            floor.append(ring())
            pause(0.03)
            began = client.ask("send", number=place * step)["at"]
            took.append((_reached(file, place * step + AFTER) - began) * 1000)
    both.tell("wake", percentile(took, 50), percentile(floor, 50), took)


def _pause(number: int) -> float:
    """Seconds between two: most are short, a few long, none in step with a poll."""
    return float(0.03 + 0.4 * ((0.618034 * (number + 1)) % 1) ** 3)


@contextmanager
def _bell(floor: Scene) -> Iterator[Callable[[], float]]:
    """Milliseconds from a bare notification to a bare claim in another process."""
    bell = bell_at(floor.url)
    with floor.player("bell") as listener:

        def ring() -> float:
            began = time.perf_counter()
            bell.ring()
            return float(listener.hear()["at"] - began) * 1000

        ring()
        yield ring


def throughput(both: Both) -> None:
    """Many runs, all there when the workers begin: steps in a second, between a tenth of them and nine tenths."""
    sizes = both.sizes
    floor = _floor_rate(both)
    with ExitStack() as stack:
        file, share = both.scene.file(), -(-sizes.runs // both.engine.workers)
        workers = [stack.enter_context(both.scene.player("worker", worker=f"worker-{number}", share=share))
                   for number in range(both.engine.workers)]  # fmt: skip
        if both.engine.early:
            for one in workers:
                one.ask("serve")
        if both.engine.alone:
            for number in range(sizes.runs):
                workers[number % len(workers)].ask("start", run=f"many-{number}", steps=sizes.each, file=str(file))
        else:
            for number in range(sizes.runs):
                both.client.ask("start", run=f"many-{number}", steps=sizes.each, file=str(file))
            for one in [] if both.engine.early else workers:
                one.ask("serve")
        found = wait_for(file, sizes.runs * sizes.each, 0.1)
    both.tell("throughput", _rate(found), floor, ())


def _floor_rate(both: Both) -> float:
    """The same for as many processes that insert and commit."""
    file, count = both.floor.file(), both.sizes.runs * both.sizes.each
    with ExitStack() as stack:
        each = [stack.enter_context(both.floor.player("worker")) for _ in range(2)]
        for number, one in enumerate(each):
            one.ask("start", run=f"many-{number}", steps=count, file=str(file))
        found = wait_for(file, 2 * count, 0.1)
    return _rate(found)


def _rate(found: Sequence[Trace]) -> float:
    edge = len(found) // 10
    middle = found[edge : len(found) - edge]
    return (len(middle) - 1) / (middle[-1].at - middle[0].at)


def recovery(both: Both) -> None:
    """SIGKILL in the middle of a run, another process at once: seconds to the next new step, and what is done twice."""
    floor, _ = _killed(both.floor, None, both.sizes)
    took, again = _killed(both.scene, None if both.engine.alone else both.client, both.sizes)
    both.tell("recovery", took, floor, ())
    both.tell("again", again, None, ())


def _killed(scene: Scene, client: Player | None, sizes: Sizes) -> tuple[float, float]:
    file, words = scene.file(), {"run": "killed", "steps": 50 * sizes.killed}
    with ExitStack() as stack:
        worker = stack.enter_context(scene.player("worker"))
        worker.ask("serve")
        (client or worker).ask("start", file=str(file), **words)
        wait_for(file, sizes.killed)
        worker.kill()
        died, there = time.perf_counter(), traces(file)
        other = stack.enter_context(scene.player("worker"))
        other.ask("serve")
        if client is None:
            other.ask("resume", file=str(file), **words)
        last = max(one.number for one in there)
        until(lambda: any(one.number > last for one in traces(file)), patience=PATIENCE, every=0.005)
    found = traces(file)
    new = min(one.at for one in found if one.number > last)
    return new - died, float(sum(times > 1 for times in Counter(one.number for one in found).values()))


def in_one_process(both: Both) -> None:
    """What needs one worker: the same one for all of it."""
    with ExitStack() as stack:
        worker = stack.enter_context(both.scene.player("worker"))
        worker.ask("serve")
        for measure, ask in (("step", sequential), ("start", starting), ("wake", waking)):
            if both.engine.has(measure):
                ask(both, worker, both.asking(worker))
