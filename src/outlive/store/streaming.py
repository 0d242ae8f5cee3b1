"""The streaming port: text of calls that are being made, for whoever follows the run now. None of it is a fact.

It is never written in the transaction of an append. A write of it names epoch and token, as every write of a run does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outlive.model.ids import RunId, Tenant
from outlive.model.run import Authority


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of what one attempt at a call has streamed: `attempt` is its number, `epoch` that of its claim.

    `call` is its key in the log. `after_seq` is where the log ended then; `place` is how many characters came before
    this piece. `position` orders all pieces of a store, and is the store's to give.
    """

    call: str
    epoch: int
    attempt: int
    name: str
    after_seq: int
    place: int
    text: str
    position: int = 0


@dataclass(frozen=True, slots=True)
class Over:
    """What a run has streamed for a call (None: for any), while its log ended at `upto` or before, is superseded."""

    tenant: Tenant
    run: RunId
    call: str | None
    upto: int


@runtime_checkable
class Streaming(Protocol):
    """Pieces of text on their way."""

    async def add_deltas(
        self, deltas: Sequence[tuple[Authority, Delta]], over: Sequence[Over], *, now: int | None = None
    ) -> None:
        """In one commit: take away what is over, then add these, but for runs whose epoch or token is another."""
        ...

    async def deltas(self, tenant: Tenant, run: RunId, *, after: int, limit: int) -> list[Delta]:
        """Those of a run behind a position, in order."""
        ...

    async def drop_deltas(self, *, older_ms: int, now: int | None = None) -> int:
        """Take away what is so old, whosever it is: how many that were."""
        ...
