"""An approval: the rule that asks for one, its row, the votes on it, and the pure judgement of a vote.

A row is decided once, under its own lock: the store reads row and votes, lets `judge` decide, and sets what it says
only if nothing has changed meanwhile. What is bound: one operation, the digest of its arguments, the policy version.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, get_args

from outlive.model.errors import ApprovalClosed, LinkUsed, MayNotDecide, Refused
from outlive.model.ids import ApprovalId, OperationId, RunId, Tenant

OnExpiry = Literal["reject", "escalate"]
ApprovalStatus = Literal["asked", "approved", "rejected", "expired", "revoked", "superseded", "withdrawn"]
Act = Literal["approve", "reject", "delegate", "revoke"]

# The topic of the message that an approval was decided.
APPROVAL = "approval"

STATUSES: tuple[ApprovalStatus, ...] = get_args(ApprovalStatus)


@dataclass(frozen=True, slots=True)
class Approval:
    """What has to be approved, and by whom, before an operation is sent.

    `quorum` different people of `role` must agree on the same arguments within `expires`, which begins when it is
    asked. After `remind` they are reminded once. When nobody has decided in time it is rejected, or (`escalate`) those
    of `escalate_to` are asked, once, for as long again. Raises Refused for a rule that could not be met.
    """

    role: str
    quorum: int = 1
    expires: timedelta = timedelta(days=1)
    on_expiry: OnExpiry = "reject"
    remind: timedelta | None = None
    escalate_to: str = ""

    def __post_init__(self) -> None:
        if why := self._wrong():
            raise Refused(what=f"Approval(role={self.role!r}, …)", why=why)

    def _wrong(self) -> str:
        if not self.role.strip() or not self.role.isprintable():
            return "the role is a printable text"
        if self.quorum < 1:
            return "the quorum is the number of people who must agree: 1 or more"
        if self.expires < timedelta(seconds=1):
            return "say how long it can be decided and used, such as expires=timedelta(days=1)"
        if self.remind is not None and not timedelta(0) < self.remind < self.expires:
            return "remind is a time after the asking and before it expires"
        if self.on_expiry not in get_args(OnExpiry):
            return f"on_expiry is one of {', '.join(get_args(OnExpiry))}"
        if (self.on_expiry == "escalate") != bool(self.escalate_to):
            return 'on_expiry="escalate" and escalate_to="a role" go together'
        return ""


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """What was asked, of whom, and what became of it. Times are database milliseconds.

    `proposed` is the digest of the arguments that were proposed, `executed` of those that were approved; `edited` is
    their JSON text where the two differ. `arguments` is the readable form (scrubbed) of the proposed ones. `policy` is
    the version of the rule that asked. `votes` counts what people have done; with the status it changes at each act.
    """

    tenant: Tenant
    run: RunId
    id: ApprovalId
    operation: OperationId
    tool: str
    shown: str
    arguments: str
    proposed: str
    policy: str
    role: str
    quorum: int
    requester: str
    expires_at: int
    asked_at: int = 0
    status: ApprovalStatus = "asked"
    votes: int = 0
    executed: str = ""
    edited: str | None = None
    why: str = ""
    decided_at: int | None = None
    used_at: int | None = None

    @property
    def open(self) -> bool:
        """Whether it can still be decided, if it has not expired."""
        return self.status == "asked"


@dataclass(frozen=True, slots=True)
class Vote:
    """What one person did about an approval.

    `place` is in whose place, for somebody who was named by a delegation; `to` is whom a delegation names. `digest` is
    that of the arguments which an approval is for, `edited` their text where they are not the proposed ones. `nonce`
    is that of the link which was used.
    """

    who: str
    act: Act
    role: str = ""
    place: str = ""
    to: str = ""
    why: str = ""
    digest: str = ""
    edited: str | None = None
    nonce: str = ""
    at: int = 0


@dataclass(frozen=True, slots=True)
class Use:
    """What an append consumes: the approval of one operation, for exactly these arguments under this policy."""

    approval: ApprovalId
    operation: OperationId
    executed: str
    policy: str


@dataclass(frozen=True, slots=True)
class ApprovalFilter:
    """Which approvals are listed, oldest first. Empty fields match everything."""

    statuses: tuple[ApprovalStatus, ...] = ("asked",)
    role: str = ""
    run: str = ""
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a vote makes of an approval."""

    status: ApprovalStatus
    why: str = ""
    executed: str = ""
    edited: str | None = None


def same_person(one: str, other: str) -> bool:
    """Whether two names are one person's: case, width and spaces around it are no difference."""
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip().casefold()


def judge(row: ApprovalRow, votes: Sequence[Vote], vote: Vote, now: int) -> Ruling:
    """What the vote makes of the approval. Pure.

    Raises LinkUsed, ApprovalClosed for one that is decided or has expired, MayNotDecide for who is not allowed to.
    """
    if vote.nonce and any(one.nonce == vote.nonce for one in votes):
        raise LinkUsed(approval=row.id)
    if vote.act == "revoke":
        return _revoked(row, votes, vote)
    if not row.open:
        raise ApprovalClosed(approval=row.id, status=row.status)
    if now >= row.expires_at:
        raise ApprovalClosed(approval=row.id, status="expired")
    _check_person(row, votes, vote)
    match vote.act:
        case "reject":
            return Ruling("rejected", vote.why)
        case "delegate":
            _check_delegation(row, votes, vote)
            return Ruling("asked")
        case _:
            agreed = [one for one in votes if one.act == "approve" and one.digest == vote.digest]
            if len(agreed) + 1 < row.quorum:
                return Ruling("asked")
            edited = vote.edited if vote.digest != row.proposed else None
            return Ruling("approved", vote.why, vote.digest, edited)


def _revoked(row: ApprovalRow, votes: Sequence[Vote], vote: Vote) -> Ruling:
    """Whoever has the role can take an approval back that was not used yet."""
    if row.status != "approved":
        raise ApprovalClosed(approval=row.id, status=row.status)
    if row.used_at is not None:
        raise ApprovalClosed(approval=row.id, status="used")
    if vote.role != row.role:
        raise MayNotDecide(approval=row.id, who=vote.who, why=f"it takes the role {row.role}")
    return Ruling("revoked", vote.why, row.executed, row.edited)


def _check_person(row: ApprovalRow, votes: Sequence[Vote], vote: Vote) -> None:
    def refuse(why: str) -> MayNotDecide:
        return MayNotDecide(approval=row.id, who=vote.who, why=why)

    if not vote.who.strip():
        raise refuse("nobody decides without a name")
    if row.requester and same_person(vote.who, row.requester):
        raise refuse("whoever asks for something does not decide about it")
    if any(same_person(one.who, vote.who) for one in votes):
        raise refuse("they have decided already")
    if vote.place:
        named = [one for one in votes if one.act == "delegate" and same_person(one.who, vote.place)]
        if not named or not same_person(named[0].to, vote.who):
            raise refuse(f"{vote.place} has not named them")
        if vote.act == "delegate":
            raise refuse("who decides in somebody's place does not pass that on")
    elif vote.role != row.role:
        raise refuse(f"it takes the role {row.role}")


def _check_delegation(row: ApprovalRow, votes: Sequence[Vote], vote: Vote) -> None:
    taken = [row.requester, vote.who, *(one.who for one in votes), *(one.to for one in votes)]
    if not vote.to.strip() or any(one and same_person(one, vote.to) for one in taken):
        why = f"{vote.to!r} cannot decide in their place: name somebody else, who neither asks nor has a say yet"
        raise MayNotDecide(approval=row.id, who=vote.who, why=why)


def place_of(votes: Sequence[Vote], who: str) -> str:
    """In whose place a person decides who was named by a delegation; empty for nobody's."""
    return next((one.who for one in votes if one.act == "delegate" and same_person(one.to, who)), "")


def agreeing(votes: Sequence[Vote], executed: str) -> list[Vote]:
    """The votes that made an approval for these arguments."""
    return [one for one in votes if one.act == "approve" and one.digest == executed]


@dataclass(frozen=True, slots=True)
class Reading:
    """An approval with all that was done about it."""

    row: ApprovalRow
    votes: tuple[Vote, ...] = field(default=())
