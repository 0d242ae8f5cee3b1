"""What is worth a hint to other processes: what somebody else may claim, or has to look after, from now on.

A hint goes out after the commit, never in it, and may be lost: the condition that it points at is read from the tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from outlive.store.port import Append

# Workers look at least this often, and learn of what is further away by themselves.
NEAR_MS = 5_000


def worth_a_hint(append: Append) -> bool:
    """Whether an append leaves a run that is claimable, or will be soon: also one that waits for a business key."""
    change = append.change
    if append.marks:
        return True
    if change is None or change.status not in ("ready", "waiting"):
        return False
    if change.status == "ready":
        return True
    written_at = append.drafts[-1].at if append.drafts else 0
    return change.wake_at is not None and change.wake_at - written_at <= NEAR_MS


async def never() -> AsyncGenerator[bool]:
    """As the port's `hints`, where nobody listens."""
    yield False
    await asyncio.get_running_loop().create_future()
