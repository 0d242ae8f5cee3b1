"""Runs that were recorded with an older release of a framework: `python -m tests.gate.older` records what is missing.

They are the oldest releases that the adapters work with. Each is installed in a directory of its own, for the one
process that records with it. What was recorded is kept, as a bundle, and never recorded again.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import cast

from outlive.app.carry import bundle_of
from outlive.model.ids import DEFAULT_TENANT
from outlive.store.keeping import Kept
from outlive.testing.ground import File
from tests.gate.case import Case, Stand, same
from tests.gate.releases import load
from tests.gate.stage import OLDER as HERE
from tests.gate.stage import RUN, staged
from tests.gate.witness import witnessing


@dataclass(frozen=True, slots=True)
class Older:
    """A release of a framework, what else of it goes with it, and the application that was recorded."""

    package: str
    version: str
    app: str
    beside: tuple[str, ...] = ()


OLDER = [
    Older("pydantic-ai-slim", "2.62.0", "writer", ("pydantic-graph",)),
    Older("openai-agents", "0.21.1", "speaker"),
]

STANDS = {
    "asked": Stand("people are asked about a call of its second turn"),
    "pending": Stand("a call of its second turn may have been sent", dies_in="pay"),
    "turned": Stand("its worker has died when the third turn began", dies_after="turn", nth=3),
}


def file_of(one: Older, stand: str) -> Path:
    """Where that is kept."""
    return HERE / f"{one.package}-{one.version}-{stand}.jsonl"


def _record_all() -> None:
    HERE.mkdir(exist_ok=True)
    for one in OLDER:
        missing = [stand for stand in STANDS if not file_of(one, stand).exists()]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as directory:
            named = [f"{package}=={one.version}" for package in (one.package, *one.beside)]
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", directory, *named],
                check=True,
            )
            path = os.pathsep.join([directory, *(p for p in sys.path if p)])
            for stand in missing:
                made = [sys.executable, "-m", "tests.gate.older", one.package, one.version, stand]
                subprocess.run(made, check=True, env={**os.environ, "PYTHONPATH": path})


async def _record(package: str, of: str, stand: str) -> None:
    assert version(package) == of, f"{package} is {version(package)} here"
    one = next(known for known in OLDER if (known.package, known.version) == (package, of))
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as directory, witnessing() as witness:
        here = Path(directory)
        case = Case("", "", one.app, (), STANDS[stand], same())

        def ground() -> File:
            return File(here / f"{next(numbers)}.db", threads=True)

        old = load(one.app, (), here)
        async with staged(case, old, (lambda _: None, old.input), ground, witness) as stage:
            kept = cast(Kept, stage.store)
            lines = [line async for line in bundle_of(kept, DEFAULT_TENANT, RUN, with_key=True)]
    file_of(one, stand).write_text("".join(f"{line.rstrip()}\n" for line in lines), "utf-8")
    print(file_of(one, stand).name)


if __name__ == "__main__":
    _record_all() if len(sys.argv) == 1 else asyncio.run(_record(*sys.argv[1:]))
