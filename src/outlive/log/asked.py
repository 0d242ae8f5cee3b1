"""What a log says of the approval of a call: the last one that it has asked for, and what became of that. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlive.log import kinds
from outlive.model.errors import UndecodableEntry

if TYPE_CHECKING:
    from outlive.log.fold import Call


@dataclass(slots=True)
class Asked:
    """The last approval that a call has asked for, and what became of it."""

    id: str
    operation: str
    role: str
    policy: str
    asked_at: int
    expires_at: int
    remind_at: int = 0
    escalated: bool = False
    reminded: bool = False
    decision: str = ""
    executed: str = ""
    edited: str | None = None

    @property
    def over(self) -> bool:
        """Whether it does not count any more, so that one has to be asked for anew."""
        return self.decision in ("lapsed", "withdrawn")


def asked(fact: kinds.Proposed) -> Asked:
    """A proposal begins it anew."""
    return Asked(
        fact.approval, fact.operation, fact.role, fact.policy, fact.asked_at, fact.expires_at, fact.remind_at,
        fact.escalated,
    )  # fmt: skip


def decided(call: Call | None, seq: int, fact: kinds.Decided | kinds.Reminded, payload: str | None) -> None:
    """Fold in what became of the approval of a call. Raises UndecodableEntry for one that was not asked for there."""
    if call is None or call.asked is None or call.asked.id != fact.approval:
        why = f"it speaks of {fact.approval}, which was not asked for here"
        raise UndecodableEntry(where=f"entry {seq} ({fact.KIND})", why=why)
    if isinstance(fact, kinds.Reminded):
        call.asked.reminded = True
        return
    call.asked.decision = fact.decision
    if fact.decision == "approved":
        call.asked.executed, call.asked.edited = fact.executed, payload
    if fact.decision == "rejected":
        call.done, call.payload, call.declared = True, None, False
        call.error = kinds.ErrorRecord(type="Rejected", message=fact.why)


def sent_before(call: Call, lost: Call) -> None:
    """What a call has asked for is in the log still; that it was sent is known from entries that were lost."""
    call.sent, call.attempt, call.done = lost.sent, lost.attempt, lost.done
    call.payload, call.error, call.declared = lost.payload, lost.error, lost.declared
