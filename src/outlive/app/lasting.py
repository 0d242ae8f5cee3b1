"""`outlive retention`: how long runs are kept, what would go now, and what stays although it is old enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from outlive.duty.retention import Ages, shown
from outlive.model.ids import Tenant
from outlive.model.run import ENDED, Status
from outlive.store.keeping import Aged, Forgetting

_PAGE = 500


@dataclass(slots=True)
class Standing:
    """One status: `age` is None where its runs are kept for ever. `kept` counts by what keeps a run.

    `ages` are those of all statuses, in milliseconds.
    """

    status: Status
    age: timedelta | None
    ages: Mapping[Status, int]
    going: int = 0
    kept: Counter[str] = field(default_factory=Counter)


def age(standing: Standing) -> str:
    """How long runs of the status are kept, in words."""
    return "for ever" if standing.age is None else shown(standing.age)


def standings(ages: Ages) -> list[Standing]:
    """One for each status in which a run ends."""
    known = dict(ages.by_status)
    return [Standing(status, known.get(status), ages.milliseconds()) for status in sorted(ENDED)]


async def old_enough(store: Forgetting, standing: Standing, tenant: Tenant | None) -> AsyncIterator[Aged]:
    """The runs that are old enough, of one tenant or all, with what keeps each; they are counted in `standing`."""
    if standing.age is None:
        return
    after, older_ms = Aged(), int(standing.age.total_seconds() * 1000)
    while page := await store.aged(standing.status, older_ms=older_ms, after=after, limit=_PAGE, ages=standing.ages):
        for one in page:
            if tenant is not None and one.tenant != tenant:
                continue
            standing.going += not one.why
            standing.kept.update([one.why] if one.why else [])
            yield one
        after = page[-1]
