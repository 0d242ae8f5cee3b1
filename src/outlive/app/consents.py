"""What approvals and votes have to be: by the log, which copies what was decided, and by the votes, judged once more.

A log that was imported came without them, and the entries that a fork has from its parent speak of the parent's. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from outlive.log import kinds
from outlive.log.entry import Entry
from outlive.model.approval import ApprovalRow, ApprovalStatus, Reading, Vote, agreeing, judge
from outlive.model.errors import OutliveError
from outlive.store.survey import Consents

Misfits = Iterator[tuple[str, str]]

# What ends an approval without a vote.
_ENDED: tuple[ApprovalStatus, ...] = ("expired", "superseded", "withdrawn")


@dataclass(slots=True)
class _Logged:
    """What the log says of an approval: how it was asked for, what people decided, whether it was used or let go."""

    fact: kinds.Proposed
    arguments: str
    decided: kinds.Decided | None = None
    edited: str | None = None
    used: bool = False
    over: bool = False


@dataclass(slots=True)
class Consented:
    """The approvals of a log as far as it was read."""

    logged: dict[str, _Logged] = field(default_factory=dict)

    def take(self, entry: Entry, fact: kinds.Fact) -> None:
        """Read the next entry."""
        match fact:
            case kinds.Forked():
                self.logged.clear()
            case kinds.Proposed():
                self.logged[fact.approval] = _Logged(fact, entry.payload or "")
            case kinds.Decided() if fact.approval in self.logged:
                one = self.logged[fact.approval]
                if fact.decision in ("approved", "rejected"):
                    one.decided, one.edited = fact, entry.payload
                else:
                    one.over = True
            case kinds.Intent() | kinds.Done() if fact.approval in self.logged:
                self.logged[fact.approval].used = True
            case _:
                pass

    def of_approvals(self, found: Consents, requester: str) -> Misfits:
        """The approvals that do not fit, each with why."""
        there = {str(one.row.id): one for one in found.readings}
        for id, one in there.items():
            if id not in self.logged:
                yield id, "no entry asks for it"
                continue
            yield from ((id, why) for why in _asked(self.logged[id], one.row, requester))
            yield from ((id, why) for why in _voted(one))
            yield from ((id, why) for why in _decided(self.logged[id], one))
        if not found.imported:
            yield from ((id, "its row is not there") for id in self.logged if id not in there)


def _asked(log: _Logged, row: ApprovalRow, requester: str) -> Iterator[str]:
    fact = log.fact
    for name, is_, should in (
        ("operation", row.operation, fact.operation), ("shown", row.shown, fact.shown),
        ("arguments", row.arguments, log.arguments), ("proposed", row.proposed, fact.digest),
        ("policy", row.policy, fact.policy), ("role", row.role, fact.role), ("quorum", row.quorum, fact.quorum),
        ("expires_at", row.expires_at, fact.expires_at), ("requester", row.requester, requester),
    ):  # fmt: skip
        if is_ != should:
            yield f"{name}: the row says {is_!r}, the log {should!r}"


def _voted(found: Reading) -> Iterator[str]:
    """The votes are judged again, one after the other: they must lead to what the row says."""
    end = found.row
    now = replace(end, status="asked", votes=0, executed="", edited=None, why="", used_at=None)
    if end.votes != len(found.votes):
        yield f"votes: the row counts {end.votes}, {len(found.votes)} are there"
        return
    for number, vote in enumerate(found.votes, start=1):
        try:
            # Its time is that at which it was written, which may be a moment after it was judged.
            ruling = judge(now, found.votes[: number - 1], vote, min(vote.at, end.expires_at - 1))
        except OutliveError as error:
            yield f"vote {number}, of {vote.who}: {error}"
            return
        now = replace(
            now, status=ruling.status, votes=number, executed=ruling.executed, edited=ruling.edited, why=ruling.why
        )
    ended = end.status in _ENDED and now.status in ("asked", "approved")
    if end.status != now.status and not ended:
        yield f"status: the row says {end.status}, its votes {now.status}"
    for name, is_, should in (("executed", end.executed, now.executed), ("edited", end.edited, now.edited)):
        if is_ != should:
            yield f"{name}: the row says {is_!r}, its votes {should!r}"


def _decided(log: _Logged, found: Reading) -> Iterator[str]:
    row, fact = found.row, log.decided
    if fact is None and log.over and row.open:
        yield "status: the row says asked, the log that it is over"
    if log.used and row.used_at is None:
        yield "used_at: the row says that it was not used, the log that it was"
    if fact is None:
        return
    allowed: tuple[ApprovalStatus, ...] = ("rejected", "expired")
    if fact.decision == "approved":
        allowed = ("approved", "revoked", *_ENDED)
        if (row.executed, row.edited) != (fact.executed, log.edited):
            yield "executed: the row and the log say that other arguments were approved"
    if row.status not in allowed:
        yield f"status: the row says {row.status}, the log {fact.decision}"
    if list(by := _by(row, found.votes, fact)) != fact.by:
        yield f"votes: by them {', '.join(by) or 'nobody'} decided, by the log {', '.join(fact.by) or 'nobody'}"
    if row.status == "rejected" and row.why != fact.why:
        yield f"why: the row says {row.why!r}, the log {fact.why!r}"


def _by(row: ApprovalRow, votes: Sequence[Vote], fact: kinds.Decided) -> list[str]:
    """Who decided, as the log names them."""
    if fact.decision == "approved":
        return [_name(one) for one in agreeing(votes, row.executed)]
    if row.status == "rejected":
        return [one.who for one in votes if one.act == "reject"]
    return [_name(one) for one in votes]


def _name(vote: Vote) -> str:
    return vote.who + (f" for {vote.place}" if vote.place else "")
