"""What a database needs before and between releases: numbered migrations, and what follows from comparing those that a
release knows with those that were applied.

`NNNN_what.pre.sql` only adds: the release before goes on with it, and every open applies it. `NNNN_what.post.sql` takes
away what that release needed, and makes a schema too new for it. `NNNN_what.sql` is both, for a store without stages.
A file is applied once and never edited: its digest is kept in the database and compared at every open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

from outlive.model.errors import OutliveError, SchemaTooNew, StoreUnavailable
from outlive.store.port import WorkerRow

Stage = Literal["pre", "post", "whole"]

# Is told the name of a file before it is applied, and once it has been committed.
Told = Callable[[str, Literal["applying", "applied"]], None]


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    number: int
    stage: Stage
    name: str
    text: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Applied:
    """One file as the database remembers it."""

    number: int
    stage: Stage
    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A database as it is found. `applied` is None where nothing of ours is there yet.

    `unsafe` are settings for which a store is refused, `warnings` what may lose acknowledged commits too and is not.
    `wrong` is why no release of this kind can work on it, whatever was applied. `older` are the live workers that do
    not know the newest migration that was applied.
    """

    server: str
    applied: tuple[Applied, ...] | None
    known: tuple[Migration, ...]
    unsafe: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    older: tuple[WorkerRow, ...] = ()
    wrong: OutliveError | None = None


class Upkeep(Protocol):
    """The care of one database, without a store that is open."""

    name: str

    async def look(self) -> Condition:
        """See what is there; nothing is changed. Raises StoreUnavailable, StoreBusy where it cannot be seen."""
        ...

    async def migrate(self, *, finish: bool, told: Told) -> list[WorkerRow]:
        """Apply what is missing, under the lock; with `finish` also the *post* files.

        Each file is applied in full or not at all. Returns the live workers of an older release for whose sake a *post*
        file was left. Raises NotAStore, UnsafeDurability, SchemaTooNew, StoreUnavailable, StoreBusy, StoreFull.
        """
        ...


def migrations(folder: Path) -> list[Migration]:
    """All files of a folder, in order: a number's pre before its post."""
    found = []
    for path in folder.glob("[0-9][0-9][0-9][0-9]_*.sql"):
        data, stage = path.read_bytes(), path.name.split(".")[1]
        staged = cast(Stage, stage if stage in ("pre", "post") else "whole")
        found.append(Migration(int(path.name[:4]), staged, path.name, data.decode(), hashlib.sha256(data).hexdigest()))
    return sorted(found, key=lambda one: (one.number, one.stage == "post"))


def newest(some: Sequence[Migration | Applied]) -> int:
    """The highest number, 0 of none."""
    return max((one.number for one in some), default=0)


def missing(known: Sequence[Migration], applied: Sequence[Applied], *, store: str) -> list[Migration]:
    """What was not applied, in order.

    Raises SchemaTooNew where something was that this release does not know and cannot do with, StoreUnavailable for a
    file that has another content than when it was applied.
    """
    ended = newest([one for one in applied if one.stage != "pre"])
    if ended > newest(known):
        raise SchemaTooNew(store=store, found=ended, known=newest(known))
    there = {(one.number, one.stage): one for one in applied}
    for one in known:
        was = there.get((one.number, one.stage))
        if was is not None and was.sha256 != one.sha256:
            why = (
                f"migration {was.name} was applied with another content than {one.name} has now: another build has "
                "made this store, which was never released, or somebody has edited the file; nothing brings it up to "
                "date. Use that build, or a new store"
            )
            raise StoreUnavailable(store=store, why=why)
    return [one for one in known if (one.number, one.stage) not in there]


def required(some: Sequence[Migration]) -> list[Migration]:
    """Those without which this release cannot work."""
    return [one for one in some if one.stage != "post"]


def outdated(store: str) -> StoreUnavailable:
    """The error of who changes nothing and finds that something is missing."""
    why = "an older release made it; the next start, run or worker brings it up to date, or `outlive db upgrade`"
    return StoreUnavailable(store=store, why=why)


def tables(names: Sequence[str]) -> str:
    """Tables as they are told of: `table a`, `tables a, b, c and 2 more`."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"table{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{more}"


def silent(_name: str, _step: Literal["applying", "applied"]) -> None:
    """For who wants to be told nothing."""
