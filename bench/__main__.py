"""`python -m bench [names…] [--store sqlite|postgres|URL] [--rounds N] [--quick] [--write] [--again]`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence

from bench.effort import Effort
from bench.figures import Line
from bench.machine import Bystanders, facts, server_version
from bench.measures import APART, MEASURES
from bench.page import PAGE, Report, kept, page, unexplained
from bench.places import Place, place_of

STORES = ("sqlite", "postgres")
QUICK = Effort(rounds=1, share=0.03)
MOST_OTHERS = 10.0
"""Per cent of the processors: with more in other hands, the figures do not count."""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 1 when the page has a miss without a reason, or was measured on a busy machine."""
    given = _arguments(words)
    logging.basicConfig(level=logging.WARNING)
    if given.again:
        return _written(kept())
    effort = QUICK if given.quick else Effort(given.rounds)
    began, found, others = time.monotonic(), facts(), Bystanders()
    lines: list[Line] = []
    for store in given.store or STORES:
        with place_of(store) as place:
            if not place.sqlite:
                found["PostgreSQL"] = server_version(place.base)
            lines += measured(place, given.names or [name for name in MEASURES if name not in APART], effort)
    if not given.write:
        return 0
    share = others.share()
    found["other processes"] = f"{share:.0f} % of the processors"
    report = Report(found, effort.rounds, round((time.monotonic() - began) / 60), tuple(lines), share > MOST_OTHERS)
    report.keep()
    return _written(report)


def measured(place: Place, names: Sequence[str], effort: Effort) -> list[Line]:
    """The lines of these measures at one place, each printed when it is there."""
    lines: list[Line] = []
    for name in names:
        for line in asyncio.run(MEASURES[name](place, effort)):
            print(line.printed(), flush=True)
            lines.append(line)
    return lines


def _written(report: Report) -> int:
    PAGE.write_text(page(report), "utf-8")
    missing = unexplained(report.lines)
    for line in missing:
        print(f"{line}: missed; say why in bench/reasons.py, then `python -m bench --again`", file=sys.stderr)
    if report.busy:
        print("the machine was not idle: these figures do not count; measure again when it is", file=sys.stderr)
    return 1 if missing or report.busy else 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="What the engine costs, beside its floor.")
    apart = ", ".join(sorted(APART))
    parser.add_argument("names", nargs="*", help=f"what to measure (default: all but {apart}): {', '.join(MEASURES)}")
    parser.add_argument("--store", action="append", help="sqlite, postgres or a URL; may be said twice (default: both)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a look at whether it runs, not at what it costs")
    parser.add_argument("--write", action="store_true", help="write docs/performance.md; needs all of it")
    parser.add_argument("--again", action="store_true", help="write the page again from what was measured last")
    given = parser.parse_args(words)
    if unknown := sorted(set(given.names) - set(MEASURES)):
        parser.error(f"no such measure: {', '.join(unknown)}; there are {', '.join(MEASURES)}")
    if given.write and (given.names or given.store or given.quick or given.rounds < 5):
        parser.error("the page has everything, on both stores, in at least 5 rounds")
    return given


if __name__ == "__main__":
    sys.exit(main())
