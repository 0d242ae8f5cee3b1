"""Retention: runs that ended long enough ago are forgotten, with all that belongs to them, in small commits.

What a run that goes on may still need is kept, and so is an operation in doubt, whatever its age; a store judges that
where it forgets. Blobs go when no entry names them any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

from outlive.duty.rota import Done, Shift
from outlive.model.ids import Tenant
from outlive.model.run import Status
from outlive.store.keeping import Aged, Forgetting, Forgotten
from outlive.store.survey import Stray, Survey

T = TypeVar("T")

# What one commit takes away: that many runs, that many entries, that many blobs at most.
RUNS, ENTRIES, BLOBS = 20, 1000, 20
KEYS = 500
_PAGE = 500
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Ages:
    """How long after its end a run is kept, by its status; one whose status is not named is kept for ever."""

    by_status: tuple[tuple[Status, timedelta], ...]
    keys: timedelta | None = None
    """How long after its last change a business key is kept; None: for ever."""

    def milliseconds(self) -> dict[Status, int]:
        """The same for a store."""
        return {status: age // timedelta(milliseconds=1) for status, age in self.by_status}

    def __str__(self) -> str:
        named = [*self.by_status, *([("keys", self.keys)] if self.keys is not None else [])]
        return ",".join(f"{name}={shown(age)}" for name, age in named) or "off"


DEFAULT_AGES = Ages(
    (
        ("succeeded", timedelta(days=30)),
        ("failed", timedelta(days=90)),
        ("cancelled", timedelta(days=90)),
        ("expired", timedelta(days=90)),
    )
)


@dataclass(slots=True)
class Tally:
    """What was forgotten, and what was kept although it is old enough, by the reason."""

    runs: int = 0
    entries: int = 0
    blobs: int = 0
    keys: int = 0
    kept: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        kept = "".join(f"; {count} kept for {why}" for why, count in sorted(self.kept.items()))
        keys = f", {self.keys} business keys" if self.keys else ""
        return f"forgot {self.runs} runs, {self.entries} entries, {self.blobs} blobs{keys}{kept}"


class Retention:
    """The duty."""

    name = "retention"
    due = timedelta(hours=1)

    def __init__(self, store: Forgetting, ages: Ages) -> None:
        self._store, self._ages = store, ages

    async def work(self, shift: Shift) -> Done:
        """See `Duty`. Stopped halfway it is due at once, for whoever is next."""
        tally = Tally()
        for status, age in self._ages.by_status:
            if not await self._forget(status, int(age.total_seconds() * 1000), tally, shift):
                return Done(f"{tally}; not done yet", 0.0)
        if self._ages.keys is not None and not await self._forget_keys(self._ages.keys, tally, shift):
            return Done(f"{tally}; not done yet", 0.0)
        return Done(str(tally), idle=not tally.entries and not tally.keys)

    async def _forget_keys(self, age: timedelta, tally: Tally, shift: Shift) -> bool:
        older_ms = age // timedelta(milliseconds=1)
        while True:
            begun = shift.clock()
            gone = await self._store.forget_keys(older_ms=older_ms, most=KEYS)
            tally.keys += gone
            if gone < KEYS:
                return True
            await shift.rest(begun)
            if not await shift.goes_on():
                return False

    async def _forget(self, status: Status, older_ms: int, tally: Tally, shift: Shift) -> bool:
        after, ages = Aged(), self._ages.milliseconds()
        while page := await self._store.aged(status, older_ms=older_ms, after=after, limit=_PAGE, ages=ages):
            tally.kept.update(one.why for one in page if one.why)
            for some in _parts([one for one in page if not one.why], RUNS):
                left: Sequence[Aged] = some
                while left:
                    begun = shift.clock()
                    gone = await self._store.forget(status, left, older_ms=older_ms, most=ENTRIES, ages=ages)
                    tally.runs, tally.entries = tally.runs + gone.runs, tally.entries + gone.entries
                    tally.blobs += await self._drop(gone, shift)
                    await shift.rest(begun)
                    if not await shift.goes_on():
                        return False
                    left = gone.left
            after = page[-1]
        return True

    async def _drop(self, gone: Forgotten, shift: Shift) -> int:
        dropped = 0
        for some in _parts(gone.blobs, BLOBS):
            begun = shift.clock()
            dropped += await self._store.drop_blobs(some)
            await shift.rest(begun)
        return dropped


class OrphanBlobs:
    """The duty that finds what an interruption has left: blobs that no entry names."""

    name = "blobs"
    due = timedelta(days=1)

    def __init__(self, survey: Survey, store: Forgetting) -> None:
        self._survey, self._store = survey, store

    async def work(self, shift: Shift) -> Done:
        """See `Duty`."""
        after, dropped = Stray(), 0
        while page := await self._survey.unnamed_blobs(after=after, limit=_PAGE):
            for some in _parts(page, BLOBS):
                begun = shift.clock()
                blobs: list[tuple[Tenant, str]] = [(one.tenant, one.address) for one in some]
                dropped += await self._store.drop_blobs(blobs)
                await shift.rest(begun)
                if not await shift.goes_on():
                    return Done(f"dropped {dropped} blobs that no entry named; not done yet", 0.0)
            after = page[-1]
        return Done(f"dropped {dropped} blobs that no entry named", idle=not dropped)


def _parts(some: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (some[start : start + most] for start in range(0, len(some), most))


def shown(age: timedelta) -> str:
    """A time as one would write it in the setting: `30d`."""
    seconds = int(age.total_seconds())
    unit, size = next((unit, size) for unit, size in _UNITS if seconds % size == 0)
    return f"{seconds // size}{unit}"
