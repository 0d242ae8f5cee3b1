"""The command line of the kit; README.md beside this file says how it is used."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from conformance import adapter, report, runner
from conformance.judge import WORDS
from conformance.scenarios import SCENARIOS
from conformance.servers import forget_template

BAD = ("duplicate", "lost", "silent", "stuck", "no verdict")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="rows and scenarios")
    run = verbs.add_parser("run", help="put rows to scenarios")
    for one in (listing, run):
        one.add_argument("--adapters", type=Path, default=adapter.ADAPTERS, help="the folder with the adapters")
    run.add_argument("--row", action="append", default=[], help="a row, or the name of an adapter for all of its rows")
    run.add_argument("--scenario", action="append", default=[])
    run.add_argument("--fast", action="store_true", help="only the few scenarios that tell most for their time")
    run.add_argument("--jobs", type=int, default=3, help="how many at a time")
    run.add_argument("--turns", type=int, default=2000, help="how long the long run is")
    run.add_argument("--keep", action="store_true", help="record the results in conformance/results")
    run.add_argument("--again", action="store_true", help="only what was bad, and was seen once")
    run.add_argument("--missing", action="store_true", help="only what was not recorded yet")
    run.add_argument("--verbose", action="store_true", help="show what happened")
    run.add_argument("--strict", action="store_true", help="exit with 1 unless all is safe or visible-unknown")
    env = verbs.add_parser("env", help="make an adapter's environment from its requirements.txt")
    env.add_argument("name", nargs="+")
    verbs.add_parser("report", help="write docs/comparison.md from conformance/results")
    verbs.add_parser("picture", help="draw it into docs/pictures; wants matplotlib")
    asked = parser.parse_args(arguments)
    match asked.verb:
        case "list":
            return _list(asked.adapters)
        case "run":
            return _run(asked)
        case "env":
            return max([_env(str(name)) for name in asked.name])
        case "picture":
            from conformance import picture

            return picture.write()
        case _:
            return report.write()


def _list(folder: Path) -> int:
    for row in adapter.rows(folder):
        print(f"{row.name}: {row.engine}, {row.driven}; {row.about}")
    for scenario in SCENARIOS.values():
        print(f"  {scenario.name}: {scenario.about}")
    return 0


def _run(asked: argparse.Namespace) -> int:
    every = list(adapter.rows(asked.adapters))
    rows = [row for row in every if not asked.row or row.name in asked.row or row.adapter in asked.row]
    if not rows:
        print(f"No such row. There are: {', '.join(row.name for row in every)}", file=sys.stderr)
        return 2
    if bare := sorted({row.adapter for row in rows if not adapter.equipped(row)}):
        print(f"First: python -m conformance env {' '.join(bare)}", file=sys.stderr)
        return 2
    every_pair = [(row, scenario) for scenario in runner.chosen(asked.scenario, fast=asked.fast) for row in rows]
    pairs = [(row, scenario) for row, scenario in every_pair if asked.scenario or not scenario.same_as(row)]
    if asked.again:
        pairs = [(row, scenario) for row, scenario in pairs if runner.bad_once(row, scenario)]
    if asked.missing:
        pairs = [(row, scenario) for row, scenario in pairs if not runner.recorded(row, scenario)]
    lock = threading.Lock()

    def told(result: runner.Result) -> None:
        with lock:
            print(f"{result.word:16} {result.row:30} {result.scenario:40} {result.seconds:5.1f} s  {result.why[:200]}")
            if asked.verbose:
                lines = [*result.notes, *result.happened, *result.requests]
                lines += [line for run in result.history.values() for line in run] + result.logs
                print("".join(f"    {line}\n" for line in lines), end="")
            sys.stdout.flush()
            if asked.keep:
                runner.keep(result, next(row for row in rows if row.name == result.row))

    try:
        results = runner.play_all(pairs, asked.jobs, told, asked.turns)
    finally:
        forget_template()
    counts = {word: sum(one.word == word for one in results) for word in WORDS}
    print(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    return int(asked.strict and any(one.word in BAD for one in results))


def _env(name: str) -> int:
    """The adapter's interpreter in conformance/.envs, and npm's packages beside it where it has a package.json."""
    folder, wanted = adapter.ENVS / name, adapter.ADAPTERS / name
    if not (wanted / "requirements.txt").exists():
        print(f"{name}: no {wanted / 'requirements.txt'}", file=sys.stderr)
        return 2
    print(f"{name}: {folder}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*pip, "-r", str(wanted / "requirements.txt")], check=False).returncode
    if not done and (wanted / "package.json").exists():
        # A copy: npm would link the adapter's folder, and install into that.
        shutil.copy(wanted / "package.json", folder / "package.json")
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
        done = subprocess.run(npm, check=False).returncode
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
