"""What `outlive db` asks for: can this release work on a database, make one, bring one up to date.

None of it opens a store, and none of it needs an application.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outlive.app.compose import upkeep_of
from outlive.app.operate import check_place
from outlive.app.settings import Settings
from outlive.model.errors import StoreError, StoreUnavailable, UnsafeDurability
from outlive.store.port import WorkerRow
from outlive.store.upkeep import Condition, Migration, Told, Upkeep, missing, newest, outdated, required

_NOTHING = "there is no store yet; the first start makes it, or `outlive db init`"


@dataclass(frozen=True, kw_only=True)
class Health:
    """What `check` found. `server` is None where the database cannot be reached, `version` where nothing is there.

    `pending` are the files without which this release cannot work, `to_finish` those that take away what an older one
    needs, `older` the live workers of such a release. It is `usable` if there are no `problems`;
    `warnings` are what may lose acknowledged commits all the same.
    """

    store: str
    problems: tuple[str, ...]
    server: str | None = None
    version: int | None = None
    known: int = 0
    applied: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    to_finish: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    older: tuple[WorkerRow, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether this release can work on it."""
        return not self.problems


@dataclass(frozen=True, kw_only=True)
class Change:
    """What was done to a database: the files that were applied and those that were `left`.

    `older` are the live workers for whose sake something was left that should have been applied.
    """

    store: str
    version: int
    applied: tuple[str, ...]
    left: tuple[str, ...] = ()
    older: tuple[WorkerRow, ...] = ()


async def check(settings: Settings) -> Health:
    """See whether this release can work on the database; changes nothing. Raises SettingInvalid."""
    upkeep = upkeep_of(settings)
    try:
        check_place(settings.store)
        found = await upkeep.look()
    except StoreError as error:
        return Health(store=upkeep.name, problems=(str(error),))
    left, problems = _left(upkeep, found)
    pending = required(left)
    if found.applied is not None and pending:
        problems.append(str(outdated(upkeep.name)))
    if found.unsafe and not settings.unsafe_durability:
        problems.append(str(UnsafeDurability(store=upkeep.name, setting=", ".join(found.unsafe))))
    return Health(
        store=upkeep.name, problems=tuple(problems), server=found.server,
        version=None if found.applied is None else newest(found.applied), known=newest(found.known),
        applied=tuple(one.name for one in found.applied or ()), pending=_names(pending),
        to_finish=() if found.applied is None else _names([one for one in left if one not in pending]),
        unsafe=found.unsafe, warnings=found.warnings, older=found.older,
    )  # fmt: skip


async def init(settings: Settings, told: Told) -> Change:
    """Make what a store needs where nothing is there; a store that is up to date is left as it is.

    Raises NotAStore, StoreUnavailable for one of an older release, SchemaTooNew, UnsafeDurability, StoreBusy.
    """
    upkeep = upkeep_of(settings)
    check_place(settings.store)
    found = await upkeep.look()
    if found.wrong is not None:
        raise found.wrong
    if found.applied is not None and required(missing(found.known, found.applied, store=upkeep.name)):
        raise outdated(upkeep.name)
    return await _migrated(upkeep, told, finish=False)


async def upgrade(settings: Settings, told: Told, *, finish: bool) -> Change:
    """Apply what is missing, with `finish` also what an older release cannot go on with.

    Raises NotAStore, StoreUnavailable where no store is there, SchemaTooNew, UnsafeDurability, StoreBusy.
    """
    upkeep = upkeep_of(settings)
    check_place(settings.store)
    found = await upkeep.look()
    if found.wrong is not None:
        raise found.wrong
    if found.applied is None:
        raise StoreUnavailable(store=upkeep.name, why=_NOTHING)
    return await _migrated(upkeep, told, finish=finish)


async def _migrated(upkeep: Upkeep, told: Told, *, finish: bool) -> Change:
    applied = list[str]()

    def tell(name: str, step: Literal["applying", "applied"]) -> None:
        if step == "applied":
            applied.append(name)
        told(name, step)

    older = await upkeep.migrate(finish=finish, told=tell)
    found = await upkeep.look()
    there = found.applied or ()
    left = _names(missing(found.known, there, store=upkeep.name))
    return Change(
        store=upkeep.name, version=newest(there), applied=tuple(applied), left=left, older=tuple(older)
    )  # fmt: skip


def _left(upkeep: Upkeep, found: Condition) -> tuple[list[Migration], list[str]]:
    """What was not applied, and what is wrong with it."""
    if found.wrong is not None:
        return [], [str(found.wrong)]
    if found.applied is None:
        return [*found.known], [str(StoreUnavailable(store=upkeep.name, why=_NOTHING))]
    try:
        return missing(found.known, found.applied, store=upkeep.name), []
    except StoreError as error:
        return [], [str(error)]


def _names(some: Sequence[Migration]) -> tuple[str, ...]:
    return tuple(one.name for one in some)
