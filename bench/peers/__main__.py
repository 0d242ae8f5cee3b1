"""`python -m bench.peers [ENGINE…] [--rounds N] [--quick] [--write] [--again]`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.figures import Spread, short
from bench.machine import Bystanders, facts, server_version
from bench.peers import measures, page
from bench.peers.measures import Both, Sizes
from bench.peers.results import Figure, Report, Trouble, recorded
from bench.peers.roster import ENGINES, Engine
from bench.peers.scene import ENVIRONMENTS, Failed, free_port, scene_of
from bench.places import server


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 1 when something was not measured that should have been."""
    given = _arguments(words)
    if given.again:
        page.write(recorded())
        return 0
    if given.mend:
        return _mend(recorded())
    engines = [one for one in ENGINES if not given.names or one.name in given.names]
    if absent := sorted({one.environment for one in engines if not _there(one)}):
        print(f"there is no environment for {', '.join(absent)}: python -m conformance env {' '.join(absent)}",
              file=sys.stderr)  # fmt: skip
        return 1
    sizes = measures.LEAST if given.quick else measures.SMALL if given.small else measures.SIZES
    before = recorded().rounds if given.more else 0
    report = measured(engines, given.rounds, sizes, given.measure, before)
    if given.keep or given.more:
        report = recorded().and_then(report) if given.more else report
        report.keep()
        page.write(report)
    for trouble in report.troubles:
        print(f"{trouble.engine}, {trouble.measure}, round {trouble.round}: {trouble.why}", file=sys.stderr)
    return 1 if report.troubles else 0


def _mend(report: Report) -> int:
    """Measure again what did not come to an end, engine by engine; 1 when something still does not."""
    for engine in ENGINES:
        for number in sorted({one.round for one in report.troubles if one.engine == engine.name}):
            report = report.mended(engine.name, number, measured([engine], 1, Sizes(**report.sizes)))
    report.keep()
    page.write(report)
    return 1 if report.troubles else 0


def measured(
    engines: Sequence[Engine], rounds: int, sizes: Sizes, names: Sequence[str] = (), before: int = 0
) -> Report:
    """All engines in each round, in another order than in the one before; each round has a PostgreSQL server."""
    found, began, others = facts(), time.monotonic(), Bystanders()
    versions: dict[str, dict[str, str]] = {}
    figures, troubles = list[Figure](), list[Trouble]()
    with tempfile.TemporaryDirectory(prefix="outlive-peers-") as folder:
        for number in range(rounds):
            with ExitStack() as stack:
                base = ""
                if any(engine.floor == "postgres" for engine in engines):
                    base = _served(stack)
                    found["PostgreSQL"] = server_version(f"{base}postgres")
                turn = (number + before) * 5 % len(engines)
                for engine in [*engines[turn:], *engines[:turn]]:
                    place = Path(folder) / f"{number}-{engine.name}"
                    one = _Round(engine, number + 1, sizes, names, figures, troubles)
                    versions[engine.name] = one.play(base, place)
    found["rounds"] = str(rounds)
    found["minutes"] = f"{(time.monotonic() - began) / 60:.0f}"
    found["other processes"] = f"{others.share():.0f} % of the processors"
    every = {name: getattr(sizes, name) for name in Sizes.__dataclass_fields__}
    return Report(found, versions, every, tuple(figures), tuple(troubles))


def _served(stack: ExitStack) -> str:
    """A server that is there as long as the stack: its URL, up to the name of a database."""
    port = free_port()
    stack.enter_context(server(listen_addresses="127.0.0.1", port=str(port)))
    return f"postgresql://postgres@127.0.0.1:{port}/"


class _Round:
    """One engine in one round."""

    def __init__(
        self, engine: Engine, number: int, sizes: Sizes, names: Sequence[str],
        figures: list[Figure], troubles: list[Trouble],
    ) -> None:  # fmt: skip
        self._engine, self._number, self._sizes, self._names = engine, number, sizes, names
        self._figures, self._troubles = figures, troubles

    def play(self, base: str, folder: Path) -> dict[str, str]:
        """Take every measure that it has; the versions of what was measured."""
        versions: dict[str, str] = {}
        engine = self._engine
        asked = [("step", measures.in_one_process), ("throughput", measures.throughput),
                 ("recovery", measures.recovery)]  # fmt: skip
        wanted = [(name, ask) for name, ask in asked if self._wants(name)]
        try:
            with (
                scene_of(engine, engine.floor, base, folder) as scene,
                scene_of(None, engine.floor, base, folder.with_name(f"{folder.name}-floor")) as floor,
                ExitStack() as stack,
            ):
                client = stack.enter_context(scene.player("client"))
                versions = {name: str(value) for name, value in client.ask("about").items()}
                client.ask("setup")
                both = Both(engine, scene, floor, client, self._sizes, self._tell)
                for name, ask in wanted:
                    self._try(name, ask, both)
        except (Failed, TimeoutError, OSError) as error:
            self._trouble("all", error)
        return versions

    def _wants(self, name: str) -> bool:
        group = ("step", "start", "wake") if name == "step" else (name,)
        asked = any(self._engine.has(one) for one in group)
        return asked and (not self._names or name in self._names)

    def _try(self, name: str, ask: Callable[[Both], None], both: Both) -> None:
        try:
            ask(both)
        except (Failed, TimeoutError, OSError) as error:
            self._trouble(name, error)

    def _trouble(self, name: str, error: Exception) -> None:
        traceback.print_exception(error)
        self._troubles.append(Trouble(self._engine.name, name, self._number, str(error)[-500:]))

    def _tell(self, measure: str, value: float, floor: float | None, samples: Sequence[float]) -> None:
        if not self._engine.has("recovery" if measure == "again" else measure):
            return
        rounded = tuple(round(one, 2) for one in samples)
        short_floor = None if floor is None else _six(floor)
        load = round(os.getloadavg()[0], 2)
        figure = Figure(self._engine.name, measure, self._number, _six(value), short_floor, rounded, load)
        self._figures.append(figure)
        beside = "" if floor is None else f", floor {short(floor)}, ratio {short(value / floor)}"
        print(f"{self._number} {self._engine.name}: {measure} {Spread.of([value]).shown()}{beside}", flush=True)


def _six(value: float) -> float:
    """Six digits that count."""
    return float(f"{value:.6g}")


def _there(engine: Engine) -> bool:
    return not engine.environment or (ENVIRONMENTS / engine.environment / "bin" / "python").exists()


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="Engines under one workload.")
    parser.add_argument("names", nargs="*", help=f"engines (default: all): {', '.join(one.name for one in ENGINES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="append", default=[], help="step, throughput or recovery (default: all)")
    parser.add_argument("--quick", action="store_true", help="a look at whether it runs, not at what it costs")
    parser.add_argument("--small", action="store_true", help="less of everything, where time is short")
    parser.add_argument("--keep", action="store_true", help="record the figures, and write page and picture")
    parser.add_argument("--more", action="store_true", help="the same, after the rounds that are recorded")
    parser.add_argument("--mend", action="store_true", help="measure again what is recorded without an end")
    parser.add_argument("--write", dest="again", action="store_true", help="page and picture from what is recorded")
    given = parser.parse_args(words)
    if unknown := sorted(set(given.names) - {one.name for one in ENGINES}):
        parser.error(f"no such engine: {', '.join(unknown)}")
    if (given.keep or given.more) and (given.names or given.measure or given.quick):
        parser.error("what is recorded has every engine and measure")
    return given


if __name__ == "__main__":
    # Servers and folders go when blocks are left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
