"""What an operation needs before it is sent, and how it is asked for: proposal, wait, decision, consumption.

What people decide is in the approval's own row; the log copies it. Nothing is sent but with a commit that has found the
approval good for this operation, these arguments and the present rule. Where it is not, nothing is written, and it is
asked for anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from outlive.engine.definition import ApprovalRule, ToolSpec
from outlive.engine.journal import Also, Item
from outlive.engine.lineage import keys_of
from outlive.engine.scope import Parked
from outlive.log import kinds
from outlive.log.asked import Asked
from outlive.log.fold import Call
from outlive.model.approval import Approval, ApprovalRow, ApprovalStatus, Reading, Use, Vote, agreeing
from outlive.model.errors import BadArguments, Diverged, Refused, UndecodableEntry
from outlive.model.ids import ApprovalId, OperationId

if TYPE_CHECKING:
    from outlive.engine.send import Send

log = logging.getLogger("outlive.approval")

T = TypeVar("T")

# The roles that somebody has, by the application's own directory.
Roles = Callable[[str], Awaitable[set[str]]]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is asked for these arguments, and the version of what asks: an approval under another does not count."""

    approval: Approval
    policy: str


def rule_of(tool: ToolSpec, option: Approval | None, arguments: Mapping[str, object]) -> Rule | None:
    """What the tool's rule asks for these arguments; where it asks for nothing, what the call does.

    Raises Refused for a rule that gives something else.
    """
    declared = tool.policy.approval
    if declared is None or isinstance(declared, Approval):
        found, source = declared, ""
    else:
        named = {name: arguments[name] for name in inspect.signature(declared).parameters}
        given, source = declared(**named), _source(declared)
        if given is not None and not isinstance(given, Approval):
            raise Refused(what=f"the approval rule of {tool.name}", why=f"it gave {given!r}: an Approval, or None")
        found = given
    if found is not None:
        return Rule(found, _version(tool, found, source))
    return None if option is None else Rule(option, _version(tool, option, "of the call"))


def _source(rule: ApprovalRule) -> str:
    """What tells a rule from the one that it was: its name, and its text where that can be had."""
    try:
        text = inspect.getsource(rule)
    except (OSError, TypeError):
        text = rule.__code__.co_code.hex() + repr(rule.__code__.co_consts)
    return f"{rule.__qualname__}\n{text}"


def _version(tool: ToolSpec, approval: Approval, source: str) -> str:
    parts = [
        1, tool.name, tool.policy.effect, approval.role, approval.quorum, approval.expires.total_seconds(),
        approval.on_expiry, approval.escalate_to, source,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class Consent:
    """The approval of one call. `use` is what the commit before the next send consumes, None where none is needed."""

    def __init__(self, send: Send, option: Approval | None) -> None:
        self._of, self._option = send, option
        self._proposed = dict(send.arguments)
        self.rule = rule_of(send.tool, option, self._proposed)
        self.use: Use | None = None
        self.executed = send.asked.digest

    def _call(self) -> Call | None:
        return self._of.attempt.fold.keys.get(self._of.key)

    def _asked(self) -> Asked | None:
        call = self._call()
        return call.asked if call is not None else None

    @property
    def needed(self) -> bool:
        """Whether there is anything to obtain, or to take back."""
        return self.rule is not None or self._asked() is not None

    # ---- what is recorded

    def adopt(self) -> None:
        """What was approved is what is, or was, sent. Raises Diverged where that does not fit the tool any more."""
        asked, call = self._asked(), self._call()
        if asked is None or call is None or call.sent is None or not asked.executed:
            return
        if why := self._take(asked):
            asks = f"{self._of.asked.shown}, which does not take them: {why}"
            raise Diverged(has=f"{call.shown} with other arguments", asks=asks, line=self._of.asked.line, seq=call.seq)

    def _take(self, asked: Asked) -> str:
        """Make the approved arguments those of the call; why they cannot be, if they cannot."""
        if asked.edited is None:
            self._of.arguments, self.executed = dict(self._proposed), self._of.asked.digest
            return "" if asked.executed == self.executed else "it was given for other arguments"
        signature = self._of.tool.signature
        try:
            arguments = signature.decode(asked.edited, where="the approved arguments")
        except UndecodableEntry as error:
            return f"the approved arguments do not fit the tool: {error.why}"
        executed = self._of.attempt.digest(signature.digest_form(arguments))
        if executed != asked.executed:
            return "the approved arguments are not those that were decided about"
        self._of.arguments, self.executed = arguments, executed
        return ""

    def stale(self) -> bool:
        """Whether a repetition under the same key has no approval, by what is recorded and by the present rule."""
        if (asked := self._asked()) is None:
            return self.rule is not None
        return self.rule is not None and (asked.decision != "approved" or asked.policy != self.rule.policy)

    # ---- before a send

    async def obtain(self) -> bool:
        """Whether it may be sent now, with `use` if one is needed. False: it was rejected, which is the call's outcome.

        Parks until it is decided. Raises Unwind when the run is unloaded meanwhile.
        """
        self.use = None
        asked, rule, scope = self._asked(), self.rule, self._of.scope
        if rule is None:
            if asked is not None and not asked.over:
                why = "the rule does not ask for it any more"
                await self._patiently(lambda: self._end(asked, "withdrawn", why))
                if (reading := await self._read(asked)) is not None and reading.row.status == "rejected":
                    # Somebody had said no before the rule was gone: that is no less true.
                    await self._copy(asked, reading)
                    return False
                await self._record(kinds.Decided(approval=asked.id, decision="withdrawn", why=why))
            self._of.arguments, self.executed = dict(self._proposed), self._of.asked.digest
            return True
        try:
            return await self._until_decided(rule)
        except asyncio.CancelledError:
            # The branch was cancelled: nobody has to decide any more.
            if (left := self._asked()) is not None and left.decision in ("", "approved"):
                await self._patiently(lambda: self._end(left, "withdrawn", "the branch was cancelled"))
            raise
        finally:
            scope.executing = False
            self._of.attempt.changed.set()

    async def _until_decided(self, rule: Rule) -> bool:
        attempt, scope = self._of.attempt, self._of.scope
        while True:
            await attempt.gate(scope)
            scope.executing = True  # what is read here is acted on before the attempt may end
            asked = self._asked()
            if asked is None or asked.over:
                await self._ask(rule)
                continue
            if asked.decision == "rejected":
                return False
            reading = await self._read(asked)
            if asked.policy != rule.policy:
                await self._lapse(asked, "superseded", "it was asked for under another rule")
            elif asked.decision == "approved":
                if not (why := await self._wrong(asked, reading)):
                    self.use = Use(ApprovalId(asked.id), self._operation, self.executed, rule.policy)
                    return True
                await self._lapse(asked, "expired" if reading and self._over(reading.row) else "superseded", why)
            else:
                await self._wait(asked, reading)

    async def _wait(self, asked: Asked, reading: Reading | None) -> None:
        """One move of an approval that nobody has decided, as far as the log knows."""
        attempt, now = self._of.attempt, self._of.attempt.kit.time.now()
        if reading is None:
            await self._lapse(asked, "withdrawn", "it was asked for by another run")
        elif reading.row.open and now >= asked.expires_at:
            row = await self._patiently(lambda: self._end(asked, "expired", "nobody has decided in time"))
            if row is None or row.open:
                await attempt.kit.clock.sleep(0.05)  # by the database's clock it is not over yet
        elif not reading.row.open:
            await self._copy(asked, reading)
        elif asked.remind_at and not asked.reminded and now >= asked.remind_at:
            await self._record(kinds.Reminded(approval=asked.id, role=asked.role))
        else:
            due = [asked.expires_at, *([asked.remind_at] if asked.remind_at and not asked.reminded else [])]
            why = f"an approval of {asked.role}"
            await attempt.park(self._of.scope, Parked(why, until=min(due), message=True, detail=asked.id))

    async def withdraw(self, why: str) -> None:
        """Nobody has to decide any more: the call has its outcome without."""
        asked = self._asked()
        if asked is not None and asked.decision in ("", "approved"):
            await self._patiently(lambda: self._end(asked, "withdrawn", why))
            await self._record(kinds.Decided(approval=asked.id, decision="withdrawn", why=why))

    def repeat(self) -> None:
        """Of an operation in doubt, which is repeated under its key: by the approval that it was sent with."""
        asked = self._asked()
        self.use = None
        if self.rule is not None and asked is not None:
            self.use = Use(ApprovalId(asked.id), self._operation, self.executed, self.rule.policy)

    async def refused(self, approval: str) -> None:
        """The commit found the approval not good. If it is over, say so; if the clocks differ, wait a moment."""
        asked = self._asked()
        assert asked is not None and asked.id == approval
        row = await self._patiently(lambda: self._end(asked, "expired", "it was not used in time"))
        if row is not None and row.status == "approved":
            await self._of.attempt.kit.clock.sleep(0.05)

    async def lapsed(self, why: str) -> None:
        """Of an operation in doubt: its approval does not cover a repetition any more."""
        if (asked := self._asked()) is not None and not asked.over:
            await self._record(kinds.Decided(approval=asked.id, decision="lapsed", why=why))

    # ---- moves

    @property
    def _operation(self) -> OperationId:
        return OperationId(keys_of(self._of.attempt, self._of.scope.name, self._of.key)[0])

    async def _ask(self, rule: Rule, *before: kinds.Fact, escalated: bool = False) -> None:
        """Propose it: in the log and in a row of its own, in one commit. `before` is what became of the last one."""
        of, attempt = self._of, self._of.attempt
        of.arguments = dict(self._proposed)
        text, now, run = of.text(), attempt.kit.time.now(), attempt.journal.row
        wants, role = rule.approval, rule.approval.escalate_to if escalated else rule.approval.role
        id = ApprovalId(f"ap-{attempt.kit.clock.token()[:20]}")
        expires_at = now + round(wants.expires.total_seconds() * 1000)
        fact = kinds.Proposed(
            name=of.asked.name, digest=of.asked.digest, shown=of.asked.shown, operation=self._operation, approval=id,
            role=role, quorum=wants.quorum, policy=rule.policy, asked_at=now, expires_at=expires_at,
            remind_at=0 if wants.remind is None else now + round(wants.remind.total_seconds() * 1000),
            escalated=escalated,
        )  # fmt: skip
        row = ApprovalRow(
            run.tenant, run.id, id, self._operation, of.tool.name, of.asked.shown, text, of.asked.digest, rule.policy,
            role, wants.quorum, run.principal, expires_at,
        )  # fmt: skip
        await self._record(*before, fact, payload=text, asks=(row,))

    async def _copy(self, asked: Asked, reading: Reading) -> None:
        """What its own row says becomes an entry."""
        row, rule = reading.row, self.rule
        by = [vote.who + (f" for {vote.place}" if vote.place else "") for vote in reading.votes]
        match row.status:
            case "approved":
                by = [
                    one.who + (f" for {one.place}" if one.place else "")
                    for one in agreeing(reading.votes, row.executed)
                ]
                fact = kinds.Decided(approval=asked.id, decision="approved", why=row.why, by=by, executed=row.executed)
                await self._record(fact, payload=row.edited)
            case "rejected":
                rejecting = [one.who for one in reading.votes if one.act == "reject"]
                await self._reject(kinds.Decided(approval=asked.id, decision="rejected", why=row.why, by=rejecting))
            case "expired" if rule is not None and rule.approval.escalate_to and not asked.escalated:
                why = f"expired: nobody of {asked.role} has decided in time; {rule.approval.escalate_to} is asked"
                lapsed = kinds.Decided(approval=asked.id, decision="lapsed", why=why, by=by)
                await self._ask(rule, lapsed, escalated=True)
            case "expired" if self._of.compensates:
                why = f"expired: {asked.role} has not approved it in time, and is asked again"
                await self._record(kinds.Decided(approval=asked.id, decision="lapsed", why=why, by=by))
            case "expired":
                why = f"expired: {asked.role} has not approved it in time"
                await self._reject(kinds.Decided(approval=asked.id, decision="rejected", why=why, by=by))
            case _:
                why = f"{row.status}: {row.why}"
                await self._record(kinds.Decided(approval=asked.id, decision="lapsed", why=why, by=by))

    async def _reject(self, fact: kinds.Decided) -> None:
        """That is the outcome; of one that was known not to have acted before, its record says so too."""
        call = self._call()
        if call is None or call.sent is None:
            await self._record(fact, progress=True)
            return
        error = kinds.ErrorRecord(type="Rejected", message=fact.why)
        outcome = kinds.Outcome(
            operation=call.sent.id, attempt=call.attempt, status="failed", how="person", error=error
        )  # fmt: skip
        await self._record(fact, outcome, progress=True)

    async def _lapse(self, asked: Asked, status: ApprovalStatus, why: str) -> None:
        """It does not count any more: first in its row, then in the log."""
        await self._patiently(lambda: self._end(asked, status, why))
        needed = self.rule is not None
        await self._record(
            kinds.Decided(approval=asked.id, decision="lapsed" if needed else "withdrawn", why=why)
        )  # fmt: skip

    async def _wrong(self, asked: Asked, reading: Reading | None) -> str:
        """Why an approval does not count any more; empty if it does. The last word has the commit that consumes it."""
        if reading is None:
            return "it was given to another run"
        row, roles = reading.row, self._of.attempt.kit.roles
        if row.status != "approved":
            return f"{row.status}: {row.why}"
        if self._over(row):
            return "it was not used in time"
        if why := self._take(asked):
            return why
        again = rule_of(self._of.tool, None, self._of.arguments)
        if again is not None and self.rule is not None and again.policy != self.rule.policy:
            return f"with the approved arguments it takes one of {again.approval.role}"
        if roles is None:
            return ""
        left = [one for one in agreeing(reading.votes, row.executed) if row.role in await self._roles(roles, one)]
        return "" if len(left) >= row.quorum else f"somebody who gave it has the role {row.role} no more"

    async def _roles(self, roles: Roles, vote: Vote) -> set[str]:
        """The roles of somebody now, or of whose place they have taken. A directory that fails is asked again."""
        who = vote.place or vote.who
        while True:
            try:
                return set(await roles(who))
            except Exception as error:  # noqa: BLE001 - the application's own code may raise anything
                log.warning(
                    "run %s: the roles of %s are not known now: %s", self._of.attempt.journal.row.id, who, error
                )
                await self._of.attempt.kit.clock.sleep(1.0)
                await self._of.attempt.journal.grip.ensure()

    def _over(self, row: ApprovalRow) -> bool:
        return self._of.attempt.kit.time.now() >= row.expires_at

    # ---- store and log

    async def _read(self, asked: Asked) -> Reading | None:
        return await self._patiently(lambda: self._reading(asked))

    async def _reading(self, asked: Asked) -> Reading | None:
        """Its row, unless it is another run's: a fork has the entries of its parent, and none of its approvals."""
        run = self._of.attempt.journal.row
        found = await self._of.attempt.journal.store.approval(run.tenant, ApprovalId(asked.id))
        return found if found is not None and found.row.run == run.id else None

    async def _end(self, asked: Asked, status: ApprovalStatus, why: str) -> ApprovalRow | None:
        if await self._reading(asked) is None:
            return None
        run, kit = self._of.attempt.journal.row, self._of.attempt.kit
        return await self._of.attempt.journal.store.end_approval(
            run.tenant, ApprovalId(asked.id), status, why, now=kit.clock.now()
        )

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await self._of.attempt.patiently(ask, "its approval")

    async def _record(
        self, *facts: kinds.Fact, payload: str | None = None, progress: bool = False,
        asks: tuple[ApprovalRow, ...] = (),
    ) -> None:  # fmt: skip
        of, attempt = self._of, self._of.attempt
        items = [Item(fact, of.scope.name, of.key) for fact in facts]
        items[-1] = Item(facts[-1], of.scope.name, of.key, payload)
        await attempt.journal.append(*items, also=Also(progress=progress, asks=asks))
        await attempt.recorded(of.scope)


def check_edit(tool: ToolSpec, arguments: dict[str, object], row: ApprovalRow) -> None:
    """Refuse edited arguments that would take another approval than the one that is decided. Raises BadArguments."""
    again = rule_of(tool, None, arguments)
    if again is not None and again.policy != row.policy:
        why = (
            f"with these arguments it takes an approval of its own, by {again.approval.quorum} of {again.approval.role}"
        )
        raise BadArguments(function=row.tool, why=why)
