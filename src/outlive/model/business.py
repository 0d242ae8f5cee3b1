"""A business key: what one action is, whichever run does it. Its states, and its row, which outlives the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlive.model.ids import OperationId, RunId, Tenant
from outlive.model.operation import OPEN, OperationStatus

# open = the operation that has it may still get an outcome by itself; unknown = only a person can say what became of
# it; free = nothing was done under it, and whoever comes next takes it.
KeyStatus = Literal["open", "unknown", "succeeded", "raised", "abandoned", "compensated", "free"]

KEY_STATUSES: tuple[KeyStatus, ...] = (
    "open", "unknown", "succeeded", "raised", "abandoned", "compensated", "free",
)  # fmt: skip

# The topic of what wakes a run that waits for a business key.
KEY = "business key"

MOST_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class KeyMark:
    """What an append says of a business key: which operation has it, for which arguments, and what became of that.

    `key` is a keyed digest of the text, `shown` the text as people may read it, `digest` that of the arguments that are
    executed. `error` is the JSON text of what was raised, `outcome` that of the result.
    """

    key: str
    shown: str
    tool: str
    digest: str
    run: RunId
    operation: OperationId
    status: KeyStatus = "open"
    outcome: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A business key as the store has it. `waiters` are runs that are woken when it changes; `changes` counts that."""

    tenant: Tenant
    mark: KeyMark
    created_at: int
    updated_at: int
    waiters: tuple[RunId, ...] = ()
    changes: int = 0


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Which business keys to list; what is empty matches all. `after` is the key behind which the next page begins."""

    text: str = ""
    run: str = ""
    statuses: tuple[KeyStatus, ...] = ()
    awaited: bool = False
    limit: int = 100
    after: str = ""


def key_status(status: OperationStatus, *, over: bool, stands: bool, acted: bool) -> KeyStatus:
    """What the state of an operation means for its business key.

    `over` says that it will not be sent again: its run has ended, or its branch was cancelled. `stands` says that its
    run does not go on by itself. `acted` says that an attempt that was known not to have acted turned out to have:
    then nothing is free, whatever became of the last one.
    """
    found = _status(status, over=over, stands=stands)
    return "abandoned" if found == "free" and acted else found


def _status(status: OperationStatus, *, over: bool, stands: bool) -> KeyStatus:
    if status in OPEN:
        return "unknown" if status == "unknown" and (over or stands) else "open"
    if status in ("retrying", "absent", "held"):
        return "free" if over else "open"
    if status in ("succeeded", "raised", "abandoned", "compensated"):
        return status
    return "free"
