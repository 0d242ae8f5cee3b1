"""Recorded runs as files, on both stores: recorded here, read, and laid back for the present code to replay.

`python -m tests.corpus.tape VERSION` records what is missing under `VERSION/sqlite/` and `VERSION/postgres/`, each run
as its exported bundle; under `live/` are runs that have not ended. What a release has recorded is never recorded again:
it must be read and replay for ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from outlive.duty.bundle import Bundle, _entry
from outlive.log.entry import Entry
from outlive.model.ids import DEFAULT_TENANT, RunId
from outlive.store.bundles import Columns, Part
from outlive.testing.clock import ManualClock
from tests.corpus.deck import KEY, Deck, Place, deck, opened
from tests.corpus.scenes import SCENES, Scene, Stage
from tests.store.postgres_server import server

LOGS = Path(__file__).parent
SUMS = "SHA256SUMS"
STORES = ("sqlite", "postgres")


def recorded() -> list[Path]:
    """Of runs that have ended."""
    return sorted(LOGS.glob("*/*/*.jsonl"))


def live() -> list[Path]:
    """Of runs that have not."""
    return sorted(LOGS.glob("*/*/live/*.jsonl"))


def named(path: Path) -> str:
    return str((path.relative_to(LOGS) if path.is_relative_to(LOGS) else path).with_suffix(""))


@dataclass(frozen=True)
class Tape:
    """A bundle that was read to its end."""

    path: Path
    run: RunId
    parts: list[Part]

    @classmethod
    @cache
    def of(cls, path: Path) -> Tape:
        """Raises AssertionError, with the file, for what the present code cannot read."""
        try:
            bundle = Bundle(path.read_bytes().splitlines(keepends=True))
            return cls(path, bundle.header.run, list(bundle.parts(KEY)))
        except Exception as error:
            raise AssertionError(f"{named(path)}: {error}") from error

    @property
    def row(self) -> Columns:
        return self.parts[0][1]

    @cached_property
    def entries(self) -> list[Columns]:
        return [row for kind, row in self.parts if kind == "entry"]

    @property
    def end(self) -> int:
        """The number of the entry with which it ended; where its log ends, if it has not."""
        kinds = [str(one["kind"]) for one in self.entries]
        return kinds.index("ended") if "ended" in kinds else len(kinds)

    def kin(self) -> Iterator[Tape]:
        """The runs beside it that it goes back to, oldest first."""
        whose = {str(self.row[name]) for name in ("fork_of", "origin", "rolls_back") if self.row[name]}
        for path in itertools.chain(self.path.parent.glob("*.jsonl"), self.path.parent.parent.glob("*.jsonl")):
            if path.stem in whose - {self.run}:
                other = Tape.of(path)
                yield from other.kin()
                yield other

    def undone(self) -> list[Path]:
        """The rollbacks of it."""
        return sorted(self.path.parent.glob(f"{self.run}-rollback*.jsonl"))

    def cut(self, keep: int) -> Iterator[Part]:
        """The run before entry `keep`: paused, ready."""
        entries, last = self.entries[:keep], self.entries[keep - 1]
        turns = [one["seq"] for one in entries if one["kind"] == "turn"] or [None]
        row = {
            **self.row, "next_seq": keep, "head": last["digest"], "epoch": last["epoch"], "status": "ready",
            "reason": "", "detail": "", "wake_at": None, "ended_at": None, "paused_at": 1,
            "prologue_seq": turns[0], "window_seq": turns[-1],
        }  # fmt: skip
        yield "run", row
        yield from (("entry", one) for one in entries)
        # A build that could not continue it is not the one that replays it.
        yield from (one for one in self.parts if one[0] not in ("run", "entry", "divergence"))


def told(path: Path, entry: int, what: str) -> str:
    """How a test names what is wrong with a recorded run."""
    return f"{named(path)}, entry {entry}: {what}"


async def lay(path: Path, place: Place, keep: int | None = None) -> tuple[Deck, list[Entry]]:
    """A store with the recorded run, ready to be claimed, and the log as it was recorded.

    All of its log up to its end is laid, or its first `keep` entries; and the runs that it goes back to.
    """
    tape = Tape.of(path)
    kept = tape.end if keep is None else keep
    now = int(tape.entries[kept - 1]["at"] or 0)
    made = await opened(place, ManualClock(now=now, seed="laid"))
    made.run = tape.run
    try:
        for other in tape.kin():
            await made.store.put_run(DEFAULT_TENANT, iter(other.parts), KEY, now=now)
        assert await made.store.put_run(DEFAULT_TENANT, tape.cut(kept), KEY, now=now)
        made.sql("update run set paused_at = null, ready_at = ? where id = ?", now, tape.run)
        return made, [_entry(one) for one in tape.entries]
    except BaseException:
        await made.store.close()
        raise


def record(scene: Scene, to: Path, place: Place) -> None:
    """Let a scene happen in a store of its own, and write down its runs."""

    async def happen() -> None:
        made = await deck(place, ManualClock(seed=scene.name), KEY)
        stage = Stage(made, made.world())
        try:
            await scene.happens(stage)
        finally:
            await made.store.close()
        assert set(stage.taken) == set(scene.gives), f"{scene.name} gave {sorted(stage.taken)}"
        for name, lines in stage.taken.items():
            path = to / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(lines))
            print(f"{to.name}/{name} ({path.stat().st_size})")

    asyncio.run(happen())


def sums(version: Path) -> str:
    """What the logs of a release are, in the form of sha256sum."""
    paths = sorted(path.relative_to(version).as_posix() for path in version.glob("**/*.jsonl"))
    return "".join(f"{hashlib.sha256((version / one).read_bytes()).hexdigest()}  {one}\n" for one in paths)


def differing(version: Path, *, added: bool = True) -> list[str]:
    """The logs that are not what their digests say; those without one only if what was `added` counts."""
    path = version / SUMS
    was, now = _listed(path.read_text() if path.exists() else ""), _listed(sums(version))
    names = was.keys() | now.keys() if added else was.keys()
    return sorted(name for name in names if was.get(name) != now.get(name))


def _listed(text: str) -> dict[str, str]:
    return {name: digest for digest, _, name in (line.partition("  ") for line in text.splitlines())}


def record_all(version: str, names: set[str]) -> None:
    """Record what is missing: of all scenes, or of those that are named.

    Raises SystemExit where something that was recorded is not as it was: its digest is not written over.
    """
    if changed := differing(LOGS / version, added=False):
        raise SystemExit(f"{version}/ is not what was recorded: {', '.join(changed)}")
    with ExitStack() as stack:
        url = ""
        for store, scene in itertools.product(STORES, SCENES):
            to = LOGS / version / store
            missing = [name for name in scene.gives if not (to / f"{name}.jsonl").exists()]
            if not missing or (names and scene.name not in names):
                continue
            if len(missing) < len(scene.gives):
                raise SystemExit(f"{scene.name}: {missing} are missing; what is there was recorded with them")
            if store == "sqlite":
                with TemporaryDirectory() as directory:
                    record(scene, to, Path(directory))
            else:
                url = url or stack.enter_context(server())
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute("drop schema if exists corpus cascade")
                record(scene, to, f"{url}&schema=corpus&options=-csearch_path%3Dcorpus")
    (LOGS / version / SUMS).write_text(sums(LOGS / version))


if __name__ == "__main__":
    record_all(sys.argv[1], set(sys.argv[2:]))
